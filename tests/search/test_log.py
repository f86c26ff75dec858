"""The write-ahead log of a local index: when it is merged, and the lock that writers hold."""

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, nullcontext

import pytest
from store_contract import codes_of

from bitprint.search import file
from bitprint.search.index import Index
from bitprint.utils.locking import locked


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, bits=12) as index:
        index.add([1, 2], codes_of(1, 2), labels=[["x"], []])
    return path


def log_of(path):
    return path.with_name(path.name + "-wal")


def ids_of_copy(path):
    """Return the ids in a copy of the file alone, made by another process."""
    copy = path.with_name("copy.bp")
    subprocess.run(["cp", path, copy], check=True)
    with Index.open(copy) as index:
        return index.ids().tolist()


# When the log is merged


def test_closing_merges_the_log_beside_an_open_index(path):
    with Index.open(path) as reader:
        with Index.open(path) as writer:
            writer.add([3], codes_of(3))
            assert log_of(path).stat().st_size > 0
        assert log_of(path).stat().st_size == 0
        assert ids_of_copy(path) == reader.ids().tolist() == [1, 2, 3]


def test_closing_a_reader_merges_the_log_of_a_killed_writer(path):
    with Index.open(path) as reader:
        kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
        add = f"index = bp.Index.open({str(path)!r}); index.remove([2])"
        subprocess.run([sys.executable, "-c", f"import bitprint as bp; {add}; {kill}"])
        assert log_of(path).stat().st_size > 0
        with Index.open(path):
            pass
        assert log_of(path).stat().st_size == 0
        assert ids_of_copy(path) == reader.ids().tolist() == [1]


def test_closing_beside_a_reader_does_not_wait_for_it(path, monkeypatch):
    monkeypatch.setattr(file, "_PATIENCE", 0.05)
    with Index.open(path) as reader, reader.snapshot():
        with Index.open(path) as writer:
            writer.add([3], codes_of(3))
        assert reader.ids().tolist() == [1, 2]
    with Index.open(path) as index:
        assert index.ids().tolist() == [1, 2, 3]


def test_closing_beside_a_writer_leaves_the_log_to_it(path):
    with Index.open(path) as writer:
        with writer.transaction():
            writer.add([3], codes_of(3))
            Index.open(path).close()
        assert log_of(path).stat().st_size > 0
    assert not log_of(path).exists()
    assert ids_of_copy(path) == [1, 2, 3]


def test_write_merges_a_long_log(path, monkeypatch):
    monkeypatch.setattr(file, "_LONGEST_LOG", 100_000)
    with Index.open(path) as index:
        index.add([3], codes_of(3))
        assert log_of(path).stat().st_size > 0
        index.attach({"large": bytes(200_000)})
        assert log_of(path).stat().st_size == 0
        assert ids_of_copy(path) == [1, 2, 3]


def test_compact_merges_the_log(path):
    with Index.open(path) as index:
        index.remove([1])
        index.compact()
        assert log_of(path).stat().st_size == 0


@pytest.mark.parametrize("longest", [0, 2**30])
def test_failed_merge_does_not_fail_the_write(path, monkeypatch, longest):
    def deny_pragmas(action, *_):
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_PRAGMA else sqlite3.SQLITE_OK

    monkeypatch.setattr(file, "_LONGEST_LOG", longest)
    with Index.open(path) as reader:
        with Index.open(path) as index:
            index._mirror._file.db.set_authorizer(deny_pragmas)
            index.remove([1])
            index.compact()
        assert log_of(path).stat().st_size > 0
        assert reader.ids().tolist() == [2]


# The lock


def test_every_write_and_merge_holds_the_lock(path, monkeypatch):
    """Otherwise, SQLite before version 3.51.3 could damage the file."""
    monkeypatch.setattr(file, "_LONGEST_LOG", 100_000)
    begun, guarded, unguarded = [], [], []

    def check(statement):
        if statement.startswith("BEGIN"):
            begun.append(statement)
        if statement == "PRAGMA wal_checkpoint(TRUNCATE)" or begun[-1] == "BEGIN IMMEDIATE":
            try:
                with locked(log_of(path), timeout=0):
                    unguarded.append(statement)
            except TimeoutError:
                guarded.append(statement)

    with Index.open(path) as other:
        index = Index.open(path)
        db = index._mirror._file.db
        assert db.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        db.set_trace_callback(check)
        index.add([3, 1], codes_of(3, 4))
        index.remove([1])
        with index.transaction():
            index.attach({"large": bytes(200_000)})
        index.compact()
        index.add([5], codes_of(5))
        index.close()
        assert other.ids().tolist() == [2, 3, 5]
    assert unguarded == []
    assert guarded.count("COMMIT") == 5
    assert guarded.count("PRAGMA wal_checkpoint(TRUNCATE)") == 3  # long log, compact, close


def test_writer_waits_while_another_merges(path):
    with Index.open(path) as index, Index.open(path, timeout=0.05) as hasty:
        with locked(log_of(path), timeout=0):
            for call in (lambda: hasty.add([3], codes_of(3)), lambda: hasty.remove([1])):
                with pytest.raises(TimeoutError, match="another process is writing to this index"):
                    call()
            assert hasty.ids().tolist() == [1, 2]
            thread = threading.Thread(target=index.remove, args=([1],))
            thread.start()
            thread.join(0.05)
            assert hasty.ids().tolist() == [1, 2]
        thread.join()
        assert hasty.ids().tolist() == [2]


ADD = """
import sys
import numpy as np
import bitprint as bp
from bitprint.search import file

file._LONGEST_LOG = 50_000
for number in range(int(sys.argv[2]), 30, 2):
    with bp.Index.open(sys.argv[1]) as index:
        index.add([f"{number}"], np.ones((1, 12), int))
        index.remove([f"{number}"])
        index.add([f"{number}"], np.ones((1, 12), int))
"""


def test_two_processes_write_and_merge_at_once(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, bits=12) as index:
        writers = [
            subprocess.Popen([sys.executable, "-c", ADD, path, str(number)]) for number in range(2)
        ]
        assert [writer.wait(300) for writer in writers] == [0, 0]
        assert sorted(index.ids().tolist()) == sorted(str(number) for number in range(30))
        assert sorted(ids_of_copy(path)) == sorted(index.ids().tolist())
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_second_handle_keeps_the_locks_of_the_first(path):
    """Closing any descriptor of a file releases the locks that SQLite has on it."""
    with Index.open(path) as index:
        Index.open(path).close()
        with pytest.raises(ValueError, match="has codes of 12 bits"):
            file_of_other_bits(path)
        add = f"bp.Index.open({str(path)!r}).remove([1])"
        subprocess.run([sys.executable, "-c", f"import bitprint as bp; {add}"], check=True)
        assert log_of(path).exists()  # another process would delete it if the lock were gone
        assert index.ids().tolist() == [2]
        index.add([3], codes_of(3))
    assert ids_of_copy(path) == [2, 3]


def file_of_other_bits(path):
    from bitprint.search.stores import open_index

    open_index(path, bits=16)


# An index that is replaced while it is open


def delete(path):
    for part in path.parent.glob("a.bp*"):
        part.unlink()


def renew_log(path):
    log_of(path).unlink()
    Index.open(path).close()
    assert log_of(path).exists()


def replace(path):
    other = path.with_name("other.bp")
    Index.create(other, bits=12).close()
    other.replace(path)


def recreate(path):
    delete(path)
    Index.create(path, bits=12)  # stays open, with a log of its own


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_name("moved.bp")),
        lambda path: log_of(path).unlink(),
        renew_log,
        delete,
        replace,
        recreate,
    ],
)
def test_index_that_was_moved_refuses_changes(path, change):
    with Index.open(path) as index:
        change(path)
        for call in (
            lambda: index.add([3], codes_of(3)),
            lambda: index.remove([1]),
            lambda: index.attach({"n": b"1"}),
            index.compact,
            lambda: index.transaction().__enter__(),
        ):
            with pytest.raises(OSError, match=r"a\.bp: the index was deleted, moved or replaced"):
                call()
        assert index.search(codes_of(1), k=1).ids.tolist() == [[1]]
    if change in (replace, recreate):
        with Index.open(path) as index:
            assert len(index) == 0
            index.add([9], codes_of(9))


def test_index_with_a_relative_path_follows_no_chdir(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    with Index.open(path.name) as index:
        monkeypatch.chdir(os.sep)
        index.add([3], codes_of(3))
    assert ids_of_copy(path) == [1, 2, 3]


@pytest.mark.parametrize("inside", [True, False])
def test_changes_in_a_snapshot_are_refused(path, inside):
    with Index.open(path) as index, index.snapshot():
        for call in (
            lambda: index.add([3], codes_of(3)),
            index.compact,
            lambda: index.transaction().__enter__(),
        ):
            with (
                index.snapshot() if inside else nullcontext(),
                pytest.raises(ValueError, match=r"inside a (transaction or a )?snapshot"),
            ):
                call()
        assert index.ids().tolist() == [1, 2]
