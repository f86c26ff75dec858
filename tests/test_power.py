"""The simulated power failure: what it loses, and that it notices what is lost.

`tests/test_soak.py` runs it on Bitprint.
"""

import random

import pytest

from soak import power
from soak.power import PowerFaults, check_complete, compile_library, cut_often, record
from soak.simulated import Disk, Operation, everything, losing


def nothing():
    return lambda: False


@pytest.fixture
def disk(tmp_path):
    """A disk with the folder 1, and a function that applies operations to it."""
    disk = Disk(tmp_path)
    disk._found = {1: disk.root}
    return disk


def apply(disk, *operations):
    for kind, first, second, data in operations:
        text = data if isinstance(data, bytes) else data.encode()
        disk.apply(Operation(kind, first, second, 0, text, ""))


def left(disk, folder, lose):
    disk.write(folder, lose)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_only_what_is_synced_survives(disk, tmp_path):
    apply(disk, ("N", 1, 2, "a"), ("W", 2, 0, "one"))
    assert left(disk, tmp_path / "0", everything) == {"a": b"one"}
    assert left(disk, tmp_path / "1", nothing) == {}
    apply(disk, ("S", 1, 0, ""))
    assert left(disk, tmp_path / "2", nothing) == {"a": b""}
    apply(disk, ("S", 2, 0, ""), ("W", 2, 3, "two"), ("T", 2, 1, ""))
    assert left(disk, tmp_path / "3", nothing) == {"a": b"one"}
    assert left(disk, tmp_path / "4", everything) == {"a": b"o"}


def test_renamed_file_keeps_its_old_name_until_synced(disk, tmp_path):
    apply(disk, ("N", 1, 2, "a"), ("N", 1, 3, "b"), ("W", 3, 0, "new"), ("S", 1, 0, ""))
    disk.apply(Operation("R", 1, 1, 3, b"b", "a"))
    assert left(disk, tmp_path / "0", nothing) == {"a": b"", "b": b""}
    apply(disk, ("S", 1, 0, ""))
    assert left(disk, tmp_path / "1", nothing) == {"a": b""}
    apply(disk, ("S", 3, 0, ""))
    assert left(disk, tmp_path / "2", nothing) == {"a": b"new"}


def test_deleted_file_returns_unless_synced(disk, tmp_path):
    apply(disk, ("N", 1, 2, "a"), ("W", 2, 0, "one"), ("S", 2, 0, ""), ("S", 1, 0, ""))
    apply(disk, ("U", 1, 0, "a"), ("N", 1, 2, "b"), ("W", 2, 0, "two"))  # the number is reused
    assert left(disk, tmp_path / "0", nothing) == {"a": b"one"}
    assert left(disk, tmp_path / "1", everything) == {"b": b"two"}


def test_file_without_a_name_gets_one(disk, tmp_path):
    apply(disk, ("N", 0, 2, ""), ("W", 2, 0, "one"), ("S", 2, 0, ""), ("L", 1, 2, "a"))
    assert left(disk, tmp_path / "0", nothing) == {}
    assert left(disk, tmp_path / "1", everything) == {"a": b"one"}


def test_folder_is_lost_with_its_files(disk, tmp_path):
    apply(disk, ("M", 1, 2, "f"), ("N", 2, 3, "a"), ("S", 3, 0, ""), ("S", 2, 0, ""))
    assert left(disk, tmp_path / "0", nothing) == {}
    assert left(disk, tmp_path / "1", everything) == {"f/a": b""}


def test_writes_are_lost_by_sector_and_in_any_order(disk, tmp_path):
    apply(disk, ("N", 1, 2, "a"), ("S", 1, 0, ""))
    apply(disk, ("W", 2, 0, bytes(2048)), ("S", 2, 0, ""), ("W", 2, 100, b"x" * 1500))
    seen = set()
    for number in range(200):
        content = left(disk, tmp_path / str(number), losing(random.Random(number)))["a"]
        assert len(content) == 2048
        assert content[:100] == bytes(100)
        assert content[1600:] == bytes(448)
        sectors = [content[100:512], content[512:1024], content[1024:1536], content[1536:1600]]
        assert all(set(sector) in ({0}, {ord("x")}) for sector in sectors)
        seen.add(tuple(sector[0] for sector in sectors))
    assert len(seen) == 16


# With a recorded child


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    if PowerFaults.missing():
        pytest.skip(f"{' and '.join(PowerFaults.missing())}: not installed")
    folder = tmp_path_factory.mktemp("power")
    return folder / "child", record(compile_library(folder), folder / "child", 0)


def test_power_failures_lose_nothing_acknowledged(recorded):
    folder, operations = recorded
    assert cut_often(folder, operations, 0, 20, random.Random(0)) > 100


def test_missing_syncs_are_noticed(recorded, monkeypatch):
    folder, operations = recorded
    monkeypatch.setattr(power, "losing", lambda rng: nothing)
    unsynced = [operation for operation in operations if operation.kind != "S"]
    with pytest.raises(AssertionError, match="seed 0, operation"):
        cut_often(folder, unsynced, 0, 5, random.Random(0))


def test_incomplete_trace_is_noticed(recorded):
    folder, operations = recorded
    last = max(at for at, operation in enumerate(operations) if operation.kind == "W")
    with pytest.raises(AssertionError, match="the trace is incomplete"):
        check_complete(folder, operations[:last] + operations[last + 1 :])
