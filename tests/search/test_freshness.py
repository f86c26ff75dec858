"""Searches see all earlier commits of others, although they run no statement if there are none."""

import os
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from store_contract import codes_of

from bitprint.search import file
from bitprint.search.index import Index


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, bits=12) as index:
        index.add([1, 2], codes_of(1, 2))
    return path


def found(index):
    """Return the sorted ids of a search for all codes, without the padding."""
    ids = index.search(codes_of(1), k=100).ids[0]
    assert sorted(ids[ids >= 0]) == sorted(index.within(codes_of(1), 12).ids[0])
    return sorted(ids[ids >= 0].tolist())


def state_of(index):
    return index._mirror._file.commit_state()


def fail_in_transaction(index):
    with suppress(KeyError), index.transaction():
        index.add([3], codes_of(3))
        index.attach({"large": bytes(10_000_000)})  # exceeds the cache, so that pages are written
        raise KeyError


def test_every_commit_of_another_connection_changes_the_state(path):
    with Index.open(path) as index, Index.open(path) as other:
        for change in (
            lambda: other.add([3], codes_of(3)),
            lambda: other.remove([1]),
            lambda: other.attach({"note": b"a"}),
            lambda: other.attach({"note": None}),
            other.compact,
            lambda: other.add([1], codes_of(1)),
        ):
            before = state_of(index)
            assert before == state_of(index) == state_of(other)
            change()
            assert state_of(index) == state_of(other) != before


def test_search_runs_statements_only_after_a_commit(path):
    statements = []
    with Index.open(path) as index, Index.open(path) as other:
        assert found(index) == [1, 2]
        index._mirror._file.db.set_trace_callback(statements.append)
        assert found(index) == [1, 2]
        assert statements == []
        other.add([3], codes_of(3))
        assert found(index) == [1, 2, 3]
        assert statements != []


ADD = """
import sys, numpy as np, bitprint as bp
from bitprint.search import file
file._LONGEST_LOG = 100_000
with bp.Index.open(sys.argv[1]) as index:
    for number in range(10, 40):
        index.add([number], np.ones((1, 12), int))
        if number % 7 == 0:
            index.remove([number])
        if number % 11 == 0:
            index.compact()
        print(number, flush=True)
        sys.stdin.readline()
"""


def test_search_sees_each_commit_of_another_process(path):
    """The other process merges the log several times, after which SQLite writes it anew."""
    expected = [1, 2]
    with (
        Index.open(path) as index,
        subprocess.Popen(
            [sys.executable, "-c", ADD, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as writer,
    ):
        for line in writer.stdout:
            expected += [int(line)] if int(line) % 7 else []
            assert found(index) == expected
            assert state_of(index) is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
    assert len(expected) == 2 + 30 - 4
    assert writer.returncode == 0


def test_an_undone_transaction_that_is_repeated_is_seen(path):
    """The log then begins with the same pages as before."""
    with Index.open(path) as index, Index.open(path) as other:
        fail_in_transaction(other)
        assert found(index) == [1, 2]
        with other.transaction():
            other.add([3], codes_of(3))
            other.attach({"large": bytes(10_000_000)})
        assert found(index) == found(other) == [1, 2, 3]


def test_changes_of_a_transaction_are_seen_inside_it_only(path):
    with Index.open(path) as index, Index.open(path) as other:
        with index.transaction():
            assert state_of(index) is None
            index.add([3], codes_of(3))
            assert found(index) == [1, 2, 3]
            assert found(other) == [1, 2]
        assert found(other) == found(index) == [1, 2, 3]
        fail_in_transaction(index)
        assert found(index) == [1, 2, 3]


def without_pread(monkeypatch, _path):
    monkeypatch.delattr(os, "pread", raising=False)


def with_another_version(monkeypatch, _path):
    monkeypatch.setattr(file, "_SHARED_VERSION", 4_000_000)


def with_another_file(monkeypatch, path):
    """As if another thread had closed the last connection at the same time."""
    stat = path.stat()
    descriptor = os.open(path.parent / "old", os.O_RDWR | os.O_CREAT)
    monkeypatch.setitem(file._shared_memory, (stat.st_dev, stat.st_ino), descriptor)


@pytest.mark.parametrize("change", [without_pread, with_another_version, with_another_file])
def test_without_the_state_commits_are_seen_too(monkeypatch, path, change):
    change(monkeypatch, path)
    with Index.open(path) as index, Index.open(path) as other:
        assert state_of(index) is None
        for number in (3, 4):
            other.add([number], codes_of(number))
            assert found(index) == [1, 2, *range(3, number + 1)]


def test_the_shared_memory_is_closed_after_the_last_connection(path):
    stat = path.stat()
    with Index.open(path) as index:
        descriptor = file._shared_memory[stat.st_dev, stat.st_ino]
        with Index.open(path):
            assert file._shared_memory[stat.st_dev, stat.st_ino] == descriptor
        assert state_of(index) == os.pread(descriptor, 48, 0)
    assert (stat.st_dev, stat.st_ino) not in file._shared_memory
    with Index.open(path) as index:
        assert len(state_of(index)) == 48


@pytest.mark.parametrize("queries", [0, 1, 3])
@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("ids", [[5, 6], ["a", "b"]])
def test_search_pads_ids_of_missing_neighbors(tmp_path, queries, k, ids):
    with Index.create(tmp_path / "b.bp", bits=12) as index:
        index.add(ids, codes_of(1, 2))
        matches = index.search(codes_of(*[1] * queries) if queries else codes_of(1)[:0], k)
    padding = [-1 if ids == [5, 6] else None] * max(0, k - 2)
    assert matches.ids.shape == matches.distances.shape == (queries, k)
    for row in matches.ids.tolist():
        assert row == (ids + padding)[:k]
    assert np.all((matches.distances >= 0).sum(axis=1) == min(k, 2))
