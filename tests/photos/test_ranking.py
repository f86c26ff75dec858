"""Order of hits by the real-valued outputs of the query."""

import numpy as np
import pytest

import bitprint as bp
from bitprint.codes import Codes
from bitprint.photos import searching
from bitprint.photos.searching import find_hits

BITS, COUNT = 12, 60


@pytest.fixture
def index(tmp_path):
    codes = Codes.from_signs(np.random.default_rng(0).random((COUNT, BITS)) < 0.5)
    with bp.Index.create(tmp_path / "codes.bp", bits=BITS) as index:
        index.add(range(COUNT), codes)
        yield index


def by_brute_force(index, outputs, k, candidates):
    """Return the ids of the first k hits, one code after the other."""
    signs = index.codes(range(COUNT)).signs()
    code = np.where(outputs >= 0, 1, -1)
    distances = [(int((row != code).sum()), number) for number, row in enumerate(signs)]
    nearest = sorted(distances)[:candidates]
    scores = [
        (-float(np.dot(signs[number], outputs)), distance, number) for distance, number in nearest
    ]
    return [number for _, _, number in sorted(scores)[:k]]


@pytest.mark.parametrize(("k", "candidates"), [(5, 20), (30, 20), (100, 20), (5, 100)])
def test_hits_are_ordered_by_outputs(index, monkeypatch, k, candidates):
    monkeypatch.setattr(searching, "CANDIDATES", candidates)
    outputs = np.random.default_rng(1).standard_normal((3, BITS)).astype(np.float32)
    found = find_hits(index, Codes.from_signs(outputs >= 0), k, outputs=outputs)
    expected = [by_brute_force(index, row, k, max(k, candidates)) for row in outputs]
    assert [[hit.id for hit in hits] for hits in found] == expected
    assert all(
        hit.distance == index_distance(index, hit.id, row)
        for hits, row in zip(found, outputs, strict=True)
        for hit in hits
    )


def index_distance(index, number, outputs):
    [signs] = index.codes([number]).signs()
    return int(((signs > 0) != (outputs >= 0)).sum())


def test_without_outputs_hits_are_ordered_by_distance(index):
    outputs = np.random.default_rng(1).standard_normal((1, BITS))
    [hits] = find_hits(index, Codes.from_signs(outputs >= 0), 20)
    assert [hit.distance for hit in hits] == sorted(hit.distance for hit in hits)


def test_an_index_without_codes_has_no_hits(tmp_path):
    outputs = np.ones((2, BITS))
    with bp.Index.create(tmp_path / "empty.bp", bits=BITS) as empty:
        assert find_hits(empty, Codes.from_signs(outputs >= 0), outputs=outputs) == [[], []]
