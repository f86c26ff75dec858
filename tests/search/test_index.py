import itertools

import numpy as np
import pytest
from store_contract import play_histories, random_codes

from bitprint.search import chunks, details
from bitprint.search.index import Index


def test_results_do_not_depend_on_the_chunk_size(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "_CHUNK", 2)
    monkeypatch.setattr(details, "_PAGE", 1)
    numbers = itertools.count()
    play_histories(lambda: str(tmp_path / f"{next(numbers)}.bp"), examples=25, steps=20)


def test_many_codes_in_several_chunks_survive_compaction(tmp_path):
    count = 150_000
    codes = random_codes(count, 32)
    ids = np.random.default_rng(1).permutation(count)
    with Index.create(tmp_path / "a.bp", 32) as index:
        index.add(ids, codes, labels=[[str(i % 7)] for i in ids])
        index.remove(ids[ids % 3 == 0])
    with Index.open(tmp_path / "a.bp") as index:
        before = index.search(codes[:20], 50), index.search(codes[:20], 50, "5")
        full = (tmp_path / "a.bp").stat().st_size
        index.compact()
        after = index.search(codes[:20], 50), index.search(codes[:20], 50, "5")
        assert (tmp_path / "a.bp").stat().st_size < 0.75 * full
        assert len(index) == np.count_nonzero(ids % 3)
    with Index.open(tmp_path / "a.bp") as index:
        again = index.search(codes[:20], 50), index.search(codes[:20], 50, "5")
    distances = codes[:20].hamming(codes)
    for number, eligible in enumerate([ids % 3 != 0, (ids % 3 != 0) & (ids % 7 == 5)]):
        positions = np.flatnonzero(eligible)
        order = np.argsort(distances[:, positions], axis=1, kind="stable")[:, :50]
        for matches in (before, after, again):
            np.testing.assert_array_equal(matches[number].ids, ids[positions][order])
            np.testing.assert_array_equal(
                matches[number].distances,
                np.take_along_axis(distances[:, positions], order, axis=1),
            )


def test_the_constructor_error_names_create_and_open():
    with pytest.raises(ValueError, match=r"Index\.create\(path, bits\) or Index\.open\(path\)"):
        Index("photos.bp")


@pytest.mark.parametrize("labels", [["cat", "dog"], [0, 1]])
def test_labels_that_are_not_lists_show_an_example(labels, tmp_path):
    with Index.create(tmp_path / "a.bp", 12) as index:
        with pytest.raises(ValueError, match=r'such as labels=\[\["cat"\]'):
            index.add(random_codes(2, 12), labels=labels)
        assert len(index) == 0


def test_a_path_as_a_query_suggests_encode(tmp_path):
    with (
        Index.create(tmp_path / "a.bp", 12) as index,
        pytest.raises(ValueError, match=r"for example with hasher\.encode\('cat\.jpg'\)$"),
    ):
        index.search("cat.jpg")
