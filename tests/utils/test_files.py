import errno
import os
import stat
from pathlib import Path

import pytest

from bitprint.utils.files import (
    make_folder,
    read_regular,
    write_atomically,
    write_in_order,
    write_new,
)


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "deep" / "folder" / "note"
    for content in (b"first", b"second, and longer", b""):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]


def test_partial_file_of_a_crash_is_replaced(tmp_path):
    path = tmp_path / "note"
    (tmp_path / "note.partial").write_bytes(b"half of some longer text")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "note"
    write_atomically(path, b"old")

    def disk_full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_full_disk_error_names_the_file(tmp_path, monkeypatch):
    def disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    path = tmp_path / "note"
    with pytest.raises(OSError, match=f"^{path}: no space left on this disk; free some") as stop:
        write_atomically(path, b"new")
    assert stop.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_content_is_synced_before_the_rename(tmp_path, monkeypatch):
    path = tmp_path / "note"
    write_atomically(path, b"old")
    seen = []

    def record(descriptor):
        seen.append((path.read_bytes(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", record)
    write_atomically(path, b"new content")
    assert seen[0] == (b"old", len(b"new content"))
    assert path.read_bytes() == b"new content"


def test_files_written_in_order_are_synced_in_order(tmp_path, monkeypatch):
    first, second = tmp_path / "a", tmp_path / "b"
    write_in_order({first: b"1", second: b"2"})
    seen = []

    def record(file):
        name = Path(f"/proc/self/fd/{file}").readlink().name
        seen.append((name, first.read_bytes(), second.read_bytes()))

    monkeypatch.setattr(os, "fsync", record)
    write_in_order({first: b"3", second: b"4"})
    assert seen == [
        ("a.partial", b"1", b"2"),
        ("b.partial", b"1", b"2"),
        (tmp_path.name, b"1", b"2"),
        (tmp_path.name, b"3", b"2"),
        (tmp_path.name, b"3", b"4"),
    ]


def test_files_written_in_order_stay_if_one_fails(tmp_path, monkeypatch):
    first, second = tmp_path / "a", tmp_path / "b"
    write_in_order({first: b"1", second: b"2"})
    synced = []

    def fail_second(file):
        synced.append(file)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail_second)
    with pytest.raises(OSError, match="no space left on this disk"):
        write_in_order({first: b"3", second: b"4"})
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")
    assert len(list(tmp_path.iterdir())) == 2


def fail(error):
    def failing(*arguments, **options):
        raise error

    return failing


@pytest.fixture(params=["unnamed", "no unnamed files", "no links to unnamed files", "no links"])
def system(request, monkeypatch):
    """Simulate the abilities of several systems and file systems."""
    link, opened = os.link, os.open

    def open_named(path, flags, *mode, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return opened(path, flags, *mode, **options)

    def link_named(source, target, **options):
        if options:
            raise OSError(errno.ENOENT, "No such file or directory")
        link(source, target)

    if request.param == "no unnamed files":
        monkeypatch.setattr(os, "open", open_named)
    elif request.param == "no links to unnamed files":
        monkeypatch.setattr(os, "link", link_named)
    elif request.param == "no links":
        monkeypatch.setattr(os, "link", fail(PermissionError(errno.EPERM, "not permitted")))


@pytest.mark.usefixtures("system")
def test_new_file_is_written_once(tmp_path):
    path = tmp_path / "deep" / "note"
    write_new(path, b"first")
    with pytest.raises(FileExistsError):
        write_new(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.usefixtures("system")
def test_new_file_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match=f"^{tmp_path}/note: no space left on this disk"):
        write_new(tmp_path / "note", b"content")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("system")
def test_new_file_and_its_folder_are_synced(tmp_path, monkeypatch):
    seen = []

    def record(file):
        seen.append((stat.S_ISDIR(os.fstat(file).st_mode), (tmp_path / "note").exists()))

    monkeypatch.setattr(os, "fsync", record)
    write_new(tmp_path / "note", b"content")
    assert seen[0] == (False, False)
    assert seen[-1] == (True, True)


def test_new_file_has_the_usual_permissions(tmp_path):
    write_new(tmp_path / "new", b"")
    (tmp_path / "usual").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_new_folders_are_synced_into_their_parents(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    top = tmp_path.resolve()
    make_folder(top / "a" / "b")
    assert set(synced) == {str(top), str(top / "a")}
    make_folder(top / "a" / "b")
    assert len(synced) == 2


def test_reading_refuses_pipes_and_folders(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match=f"^{path}: expected a regular file, got a pipe"):
            read_regular(path)
