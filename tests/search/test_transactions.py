"""Errors inside a transaction of a local index, and after its commit."""

import resource
import sqlite3
from contextlib import contextmanager

import pytest
from store_contract import codes_of

from bitprint.search.index import Index
from bitprint.search.memory import Memory

LARGE = bytes(500_000)  # several of these exceed SQLite's page cache, so that it writes early
UNDONE = "an earlier error undid the whole transaction"


@contextmanager
def full_disk(limit):
    """Limit the size of files, so that SQLite fails to write and rolls back by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def index(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=12) as index:
        index.add([1, 2], codes_of(1, 2), labels=[["x"], []])
        yield index


def fill_until_undone(index):
    """Add codes and attachments until SQLite rolls back the transaction; return the next id."""
    for number in range(100, 200):
        index.add([number], codes_of(number))
        try:
            index.attach({str(number): LARGE})
        except OSError:
            if not index._mirror._file.db.in_transaction:
                return number + 1
    raise AssertionError("the disk never became full")


def check_unchanged(index):
    with Index.open(index.path) as other:
        for view in (index, other):
            assert view.ids().tolist() == [1, 2]
            assert view.search(codes_of(2), k=1).ids.tolist() == [[2]]
            assert view.labels() == ["x"]
            assert view.attachments() == {}
            assert len(view) == 2


@pytest.mark.parametrize("limit", [200_000, 1_500_000])
def test_transaction_undone_by_sqlite_stores_nothing(index, limit):
    def run():
        with index.transaction():
            with full_disk(limit):
                number = fill_until_undone(index)
            for call in (
                lambda: index.add([number], codes_of(number)),
                lambda: index.remove([1]),
                lambda: index.attach({"n": b"1"}),
                index.ids,
                index.labels,
                index.attachments,
                lambda: len(index),
                lambda: index.search(codes_of(1), label="x"),
                lambda: index.transaction().__enter__(),
            ):
                with pytest.raises(OSError, match=UNDONE):
                    call()

    with pytest.raises(OSError, match=UNDONE):
        run()
    check_unchanged(index)
    index.add([3], codes_of(3))
    with Index.open(index.path) as other:
        assert index.ids().tolist() == other.ids().tolist() == [1, 2, 3]


def test_inner_transaction_undone_by_sqlite_fails_the_outer(index):
    def run():
        with index.transaction():
            index.add([3], codes_of(3))
            with pytest.raises(OSError, match=UNDONE), index.transaction(), full_disk(200_000):
                fill_until_undone(index)
            index.add([4], codes_of(4))

    with pytest.raises(OSError, match=UNDONE):
        run()
    check_unchanged(index)


def test_failed_commit_leaves_the_memory_unchanged(index):
    def run():
        with full_disk(100_000), index.transaction():
            index.add([3], codes_of(3))
            index.attach({"n": LARGE})

    with pytest.raises(OSError, match="the disk failed or is full"):
        run()
    check_unchanged(index)


@pytest.mark.parametrize("error", [UnicodeDecodeError("utf-8", b"a", 0, 1, "no"), sqlite3.Error()])
def test_errors_of_the_caller_pass_a_transaction(index, error):
    """They are not reported as damage to the index."""

    def fail():
        with index.transaction():
            index.add([3], codes_of(3))
            raise error

    with pytest.raises(type(error)) as raised:
        fail()
    assert raised.value is error
    check_unchanged(index)


def fail_once(monkeypatch, name):
    """Let a method of the copy in memory raise MemoryError once; return the calls made so far."""
    method, calls = getattr(Memory, name), []

    def failing(self, *arguments):
        calls.append(name)
        if len(calls) == 1:
            raise MemoryError
        return method(self, *arguments)

    monkeypatch.setattr(Memory, name, failing)
    return calls


@pytest.mark.parametrize("name", ["reserve", "append", "mark_removed"])
def test_add_whose_reloading_fails_is_reported_stored(index, monkeypatch, name):
    calls = fail_once(monkeypatch, name)
    index.add([3, 1], codes_of(3, 4))
    assert calls == [name]
    assert index.ids().tolist() == [2, 3, 1]
    assert index.codes([1, 2, 3]) == codes_of(4, 2, 3)
    assert len(calls) > 1


def test_memory_error_inside_a_transaction_loses_nothing(index, monkeypatch):
    calls = fail_once(monkeypatch, "append")
    with index.transaction():
        index.add([3], codes_of(3))
        assert calls == ["append"]
        index.add([4], codes_of(4))
        assert index.ids().tolist() == [1, 2, 3, 4]
    with Index.open(index.path) as other:
        assert index.ids().tolist() == other.ids().tolist() == [1, 2, 3, 4]
