"""An index on a read-only disk or in a read-only folder."""

import os
import shutil
import subprocess
import sys

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
    """The path of the index in a folder that is not writable."""
    folder, view = index_file.parent, tmp_path / "view"
    if os.geteuid():
        folder.chmod(0o555)
        yield index_file
        folder.chmod(0o755)
        return
    view.mkdir()  # root ignores permissions, so mount the folder read-only
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
    """Add a code, and copy the open index with its log into a folder."""
    with Index.open(path) as index:
        index.add(["c"], CODES[2:])
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.with_name(name), folder / name)


def test_search_and_labels_work(locked):
    with Index.open(locked) as index:
        assert index.search(CODES[:1], k=2).ids.tolist() == [["a", "b"]]
        assert index.search(CODES[:1], k=1, label="dog").ids.tolist() == [["b"]]
        assert index.labels() == ["cat", "dog"]
        assert len(index) == 2
    assert [path.name for path in locked.parent.iterdir()] == [locked.name]


def test_writing_raises_permission_error(locked):
    with Index.open(locked) as index:
        for write in (
            lambda: index.add(["c"], CODES[2:]),
            lambda: index.remove(["a"]),
            lambda: index.attach({"note": b"Ada"}),
            index.compact,
        ):
            with pytest.raises(PermissionError, match="is not writable"):
                write()
        assert index.ids().tolist() == ["a", "b"]


def test_an_unreadable_log_is_an_error(index_file, tmp_path, request):
    other = tmp_path / "other"
    other.mkdir()
    leave_a_log(index_file, other)
    for path in other.iterdir():
        shutil.copy(path, index_file.parent)
    locked = request.getfixturevalue("locked")
    with pytest.raises(PermissionError, match=r"its log photos\.bp-wal cannot be read"):
        Index.open(locked)


def test_a_change_by_another_process_is_an_error(locked, index_file):
    with Index.open(locked) as index:
        index_file.parent.chmod(0o755)
        with Index.open(index_file) as other:
            other.add(["c"], CODES[2:])
            with pytest.raises(OSError, match="changed while it was open read-only"):
                index.search(CODES[:1])
        with pytest.raises(OSError, match="changed while it was open read-only"):
            index.items(["a"])
    with Index.open(locked) as index:
        assert len(index) == 3


OPEN_WITH_FEW_DESCRIPTORS = """
import resource, sys
from bitprint.search.index import Index
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
with Index.open(sys.argv[1]):
    pass  # everything is imported
files = []
while True:
    try:
        files.append(open(sys.argv[1], "rb"))
    except OSError:
        break
for _ in range(8):
    try:
        Index.open(sys.argv[1]).close()
        print("opened")
    except OSError as error:
        print(error)
    files.pop().close()
"""


def test_index_without_descriptors_names_the_cause(index_file):
    command = [sys.executable, "-c", OPEN_WITH_FEW_DESCRIPTORS, os.fspath(index_file)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    *failures, last = result.stdout.splitlines()
    assert last == "opened"
    assert f"{index_file}: too many open files; raise the limit (ulimit -n)" in failures
    for line in failures:
        assert line == "opened" or "too many open files" in line.lower(), result.stdout
        assert os.fspath(index_file) in line or line == "opened"
