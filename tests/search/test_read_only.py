"""An index where nothing may be written: on a read-only disk, or in such a folder."""

import os
import shutil
import subprocess

import numpy as np
import pytest

from bitprint.codes import Codes
from bitprint.search.index import Index

CODES = Codes(np.array([[1], [2], [7]], np.uint8), 8)


@pytest.fixture
def index_file(tmp_path):
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "photos.bp"
    with Index.create(path, bits=8) as index:
        index.add(["a", "b"], CODES[:2], labels=[["cat"], ["dog"]])
    return path


@pytest.fixture
def locked(index_file, tmp_path):
    """The path of the index in its folder, where nothing may be written."""
    folder, view = index_file.parent, tmp_path / "view"
    if os.geteuid():
        folder.chmod(0o555)
        yield index_file
        folder.chmod(0o755)
        return
    view.mkdir()  # permissions do not hold root back, a read-only disk does
    commands = (["mount", "--bind", folder, view], ["mount", "-o", "remount,ro,bind", view])
    mounted = shutil.which("mount") and not any(
        subprocess.run(command, capture_output=True).returncode for command in commands
    )
    try:
        if not mounted:
            pytest.skip("root may not mount here")
        yield view / index_file.name
    finally:
        subprocess.run(["umount", view], capture_output=True)


def leave_a_log(path, folder):
    """Add a code and put the index as it is then, its log beside it, into a folder."""
    with Index.open(path) as index:
        index.add(["c"], CODES[2:])
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.with_name(name), folder / name)


def test_it_is_searched_and_described(locked):
    with Index.open(locked) as index:
        assert index.search(CODES[:1], k=2).ids.tolist() == [["a", "b"]]
        assert index.search(CODES[:1], k=1, label="dog").ids.tolist() == [["b"]]
        assert index.labels() == ["cat", "dog"]
        assert len(index) == 2
    assert [path.name for path in locked.parent.iterdir()] == [locked.name]


def test_writing_says_that_it_may_not(locked):
    with Index.open(locked) as index:
        for write in (
            lambda: index.add(["c"], CODES[2:]),
            lambda: index.remove(["a"]),
            lambda: index.attach({"note": b"Ada"}),
            index.compact,
        ):
            with pytest.raises(PermissionError, match="may not be written"):
                write()
        assert index.ids().tolist() == ["a", "b"]


def test_a_log_that_cannot_be_read_is_not_passed_over(index_file, tmp_path, request):
    other = tmp_path / "other"
    other.mkdir()
    leave_a_log(index_file, other)
    for path in other.iterdir():
        shutil.copy(path, index_file.parent)
    locked = request.getfixturevalue("locked")
    with pytest.raises(PermissionError, match=r"its log, photos\.bp-wal, cannot be read"):
        Index.open(locked)


def test_a_change_by_others_is_said(locked, index_file):
    with Index.open(locked) as index:
        index_file.parent.chmod(0o755)
        with Index.open(index_file) as other:
            other.add(["c"], CODES[2:])
            with pytest.raises(OSError, match="changed while it was read"):
                index.search(CODES[:1])
        with pytest.raises(OSError, match="changed while it was read"):
            index.items(["a"])
    with Index.open(locked) as index:
        assert len(index) == 3
