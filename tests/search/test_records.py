"""Records: bytes stored with each code of an index file."""

import sqlite3
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_contract import codes_of, random_codes

import bitprint as bp
from bitprint.search import records as record_rows
from bitprint.search.copying import copy_index

WIDTH = 5


def records_of(*seeds):
    return np.array([[seed % 256, 1, 2, 3, seed // 256] for seed in seeds], np.uint8)


def create(path, width=WIDTH):
    return bp.Index.create(path, bits=12, record_bytes=width)


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.integers(0, 9), max_size=6, unique=True)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 9), max_size=3, unique=True)),
        st.tuples(st.just("compact"), st.just([])),
        st.tuples(st.just("reopen"), st.just([])),
        st.tuples(st.just("undo"), st.lists(st.integers(0, 9), max_size=6, unique=True)),
    ),
    max_size=12,
)


def undo(index, ids, seeds):
    """Add codes and records in a transaction that fails."""
    with suppress(RuntimeError), index.transaction():
        index.add(ids, codes_of(*seeds), records=records_of(*seeds))
        assert index.records(ids).tolist() == records_of(*seeds).tolist()
        raise RuntimeError


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes)
def test_records_stay_with_their_codes(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("records") / "a.bp"
    index, held, number = create(path), {}, 0
    for action, ids in steps:
        seeds = range(number, number + len(ids))
        number += len(ids)
        if action == "add":
            index.add(ids, codes_of(*seeds), records=records_of(*seeds) if ids else None)
            for key, seed in zip(ids, seeds, strict=True):
                held.pop(key, None)
                held[key] = seed
        elif action == "remove":
            index.remove([key for key in ids if key in held])
            for key in ids:
                held.pop(key, None)
        elif action == "compact":
            index.compact()
        elif action == "reopen":
            index.close()
            index = bp.Index.open(path)
        elif ids:
            undo(index, ids, seeds)
        assert index.ids().tolist() == list(held)
        if held:
            assert index.records(list(held)).tolist() == records_of(*held.values()).tolist()
            assert index.codes(list(held)) == codes_of(*held.values())
    index.close()


def test_compaction_of_many_chunks_keeps_records(tmp_path, monkeypatch):
    monkeypatch.setattr(record_rows, "_MOVED", 64)
    monkeypatch.setattr(record_rows, "_ROWS", 10)
    with create(tmp_path / "a.bp") as index:
        index.add(range(1000), random_codes(1000, 12), records=records_of(*range(1000)))
        index.remove([i for i in range(1000) if i % 3])
        kept = list(range(0, 1000, 3))
        index.compact()
        assert index.records(kept[::-1]).tolist() == records_of(*kept[::-1]).tolist()
    with sqlite3.connect(tmp_path / "a.bp") as db:
        assert db.execute("SELECT count(*), max(position) FROM records").fetchone() == (334, 333)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (None, "stores 5 bytes with each code, and got codes alone"),
        (records_of(1), r"must be uint8 of shape \(2, 5\), got uint8 of shape \(1, 5\)"),
        (records_of(1, 2).astype(int), "got int64"),
        (records_of(1, 2)[:, :4], r"got uint8 of shape \(2, 4\)"),
    ],
)
def test_bad_records_are_refused_and_nothing_is_added(tmp_path, records, message):
    with create(tmp_path / "a.bp") as index:
        with pytest.raises(ValueError, match=message):
            index.add([1, 2], codes_of(1, 2), records=records)
        assert len(index) == 0


def test_index_without_records_refuses_them(tmp_path):
    with create(tmp_path / "a.bp", width=0) as index:
        with pytest.raises(ValueError, match=r"must be uint8 of shape \(1, 0\)"):
            index.add([1], codes_of(1), records=records_of(1))
        index.add([1], codes_of(1))
        assert index.records([1]).shape == (1, 0)


def flipped(path, value, column):
    """Damage one column of one record."""
    with sqlite3.connect(path) as db:
        db.execute(f"UPDATE records SET {column} = ? WHERE position = 1", (value,))


@pytest.mark.parametrize(
    ("column", "value"),
    [("content", b"\1\2\3\4\5"), ("content", "text"), ("checksum", 1), ("position", 77)],
)
def test_damaged_record_is_noticed(tmp_path, column, value):
    with create(tmp_path / "a.bp") as index:
        index.add([5, 6, 7], codes_of(1, 2, 3), records=records_of(1, 2, 3))
    flipped(tmp_path / "a.bp", value, column)
    with bp.Index.open(tmp_path / "a.bp") as index:
        assert index.records([5, 7]).tolist() == records_of(1, 3).tolist()
        with pytest.raises(ValueError, match=r"the file is damaged .*record"):
            index.records([5, 6])
        index.remove([7])
        with pytest.raises(ValueError, match=r"the file is damaged .*record"):
            index.compact()
        assert len(index) == 2  # nothing was changed


def test_copy_has_the_same_records(tmp_path):
    with create(tmp_path / "a.bp") as index:
        index.add(["x", "y", "z"], codes_of(1, 2, 3), records=records_of(1, 2, 3))
        index.remove(["y"])
    first = copy_index(tmp_path / "a.bp", tmp_path / "b.bp")
    assert copy_index(tmp_path / "a.bp", tmp_path / "b.bp").checksum == first.checksum
    with bp.Index.open(tmp_path / "b.bp") as copy:
        assert copy.records(["x", "z"]).tolist() == records_of(1, 3).tolist()
    flipped(tmp_path / "b.bp", *[b"wrong", "content"])
    with sqlite3.connect(tmp_path / "b.bp") as db:  # with a valid checksum
        db.execute(
            "UPDATE records SET checksum = ? WHERE position = 1",
            (record_rows._checksum(1, b"wrong"),),
        )
    with pytest.raises(ValueError, match="differs from"):
        copy_index(tmp_path / "a.bp", tmp_path / "b.bp")
    with pytest.raises(ValueError, match="which only an index file can contain"):
        copy_index(tmp_path / "a.bp", "postgresql://nobody@localhost/none")
