import pytest

from bitprint.vectors import VectorIndex


@pytest.fixture
def make(tmp_path):
    """Return a function that learns an index from vectors; all are closed at the end."""
    opened = []

    def learn(vectors, bits=32, **options):
        path = tmp_path / f"{len(opened)}.bp"
        opened.append(VectorIndex.learn(path, vectors, bits=bits, **options))
        return opened[-1]

    yield learn
    for index in opened:
        index.close()
