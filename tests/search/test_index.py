import itertools
import json
import sqlite3
import tracemalloc
from contextlib import closing

import numpy as np
import pytest
from store_contract import play_histories, random_codes

from bitprint.search import chunks, details, id_lookup, id_ranges
from bitprint.search.file import checksum
from bitprint.search.id_ranges import as_names
from bitprint.search.ids import to_bytes
from bitprint.search.index import Index


@pytest.mark.parametrize(("size", "mean_length"), [(2, 8), (3, 1)])
def test_results_do_not_depend_on_the_layout(tmp_path, monkeypatch, size, mean_length):
    monkeypatch.setattr(chunks, "_CHUNK", size)
    monkeypatch.setattr(id_ranges, "_MEAN_LENGTH", mean_length)
    monkeypatch.setattr(id_lookup, "_SHORT", 1)
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


def integers(number):
    return np.arange(number)


def decimals(number):
    return [str(each) for each in range(number)]


@pytest.mark.parametrize("ids_of", [integers, decimals])
def test_codes_with_numbers_as_ids_take_9_bytes(tmp_path, ids_of):
    count = 200_000
    ids, codes = ids_of(count), random_codes(count, 64)
    with Index.create(tmp_path / "a.bp", 64) as index:
        for start in range(0, count, 50_000):
            index.add(ids[start : start + 50_000], codes[start : start + 50_000])
    assert (tmp_path / "a.bp").stat().st_size < 9 * count
    tracemalloc.start()
    try:
        index = Index.open(tmp_path / "a.bp")
        opened, _ = tracemalloc.get_traced_memory()
        index.add(ids_of(count + 100)[-100:], codes[:100])
        index.add(ids_of(100), codes[100:200])
        added, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert opened < 9 * count + 100_000
    assert added < 10 * count + 400_000  # with a flag for each code, because some were replaced
    with index:
        assert index.ids().tolist() == [*ids_of(count + 100)[100:], *ids_of(100)]
        assert index.codes(ids_of(100)) == codes[100:200]
        assert index.codes(ids_of(300)[100:]) == codes[100:300]


def as_version_1(path):
    """Rewrite a file as earlier releases wrote it, with an array of ids in each chunk."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE meta SET value = '1' WHERE key = 'version'")
        rows = dict(db.execute("SELECT key, value FROM meta WHERE key != 'checksum'"))
        total = str(checksum(*sorted(rows.items())))
        db.execute("UPDATE meta SET value = ? WHERE key = 'checksum'", (total,))
        kind = json.loads(rows["kind"])
        for *place, codes, data in db.execute(
            "SELECT first, count, described, codes, ids FROM chunks"
        ).fetchall():
            ids = id_ranges.decode(data, kind)
            ids = ids.ids(kind) if isinstance(ids, id_ranges.Ranges) else ids
            blobs = codes, to_bytes(ids)
            db.execute(
                "UPDATE chunks SET ids = ?, checksum = ? WHERE first = ?",
                (blobs[1], checksum(*place, *blobs), place[0]),
            )


def version_of(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]


@pytest.mark.parametrize("ids_of", [integers, decimals])
def test_a_file_of_version_1_is_read_and_upgraded_by_a_write(tmp_path, ids_of):
    path, count = tmp_path / "a.bp", 70_000
    ids, codes = ids_of(count), random_codes(count, 64)
    with Index.create(path, 64) as index:
        index.add(ids, codes)
        index.remove(ids[100:200])
    as_version_1(path)
    size = path.stat().st_size
    with Index.open(path) as index:
        assert index.ids().tolist() == [*ids[:100], *ids[200:]]
        assert index.codes(ids[200:300]) == codes[200:300]
        assert [part.size for part in index._mirror._memory._ids.view().parts()] == [count]
    assert (version_of(path), path.stat().st_size) == ("1", size)
    with Index.open(path) as index:
        index.add(ids[150:160], codes[150:160])
    assert version_of(path) == "2"
    with Index.open(path) as index:
        index.compact()
        assert index.ids().tolist() == [*ids[:100], *ids[200:], *ids[150:160]]
        assert index.codes(ids[150:160]) == codes[150:160]
    assert path.stat().st_size < 10 * count < size


def test_ids_stay_in_ranges_after_compaction(tmp_path):
    codes = random_codes(70_000, 16)
    with Index.create(tmp_path / "a.bp", 16) as index:
        index.add(range(70_000), codes)
        index.remove(range(10, 70_000, 1000))
        index.compact()
        (part,) = index._mirror._memory._ids.view().parts()
        assert len(part.starts) == 71
        index.add(range(10, 70_000, 1000), codes[10::1000])
        expected = [*(i for i in range(70_000) if i % 1000 != 10), *range(10, 70_000, 1000)]
        assert index.ids().tolist() == expected
        assert index.codes(range(70_000)) == codes
        index.remove(range(65_536))
        index.compact()
        expected = [i for i in expected if i >= 65_536]
        assert index.ids().tolist() == expected
        assert index.codes(expected) == codes[expected]
        index.add(range(-5, 65_536), codes[: 65_536 + 5])
        assert index.codes(range(-5, 65_536)) == codes[: 65_536 + 5]
        assert len(index) == 70_005


@pytest.mark.parametrize("strings", [True, False])
def test_numbers_follow_the_largest_id_that_is_left(tmp_path, strings):
    form = as_names if strings else np.asarray
    codes = random_codes(3, 12)
    with Index.create(tmp_path / "a.bp", 12) as index:
        index.add(form(np.arange(200, 100, -1)), random_codes(100, 12))
        index.add(form(np.array([7, 300, 2])), codes)
        index.add(codes[:2])
        assert index.ids()[-2:].tolist() == form(np.array([301, 302])).tolist()
        index.remove(form(np.array([*range(190, 201), 300, 301, 302])))
        index.add(codes[:1])
        assert index.ids()[-1:].tolist() == form(np.array([190])).tolist()
        index.remove(index.ids())
        index.add(codes[:1])
        assert index.ids().tolist() == form(np.array([0])).tolist()


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
