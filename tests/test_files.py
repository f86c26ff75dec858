import errno
import os

import pytest

from bitprint.files import write_atomically


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "deep" / "folder" / "note"
    for content in (b"first", b"second, and longer", b""):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]


def test_what_a_crash_left_behind_does_no_harm(tmp_path):
    path = tmp_path / "note"
    (tmp_path / "note.partial").write_bytes(b"half of some longer text")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "note"
    write_atomically(path, b"old")

    def disk_full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_file(tmp_path, monkeypatch):
    def disk_full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", disk_full)
    path = tmp_path / "note"
    with pytest.raises(OSError, match=f"^{path}: no space left on this disk; free some") as stop:
        write_atomically(path, b"new")
    assert stop.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_content_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    path = tmp_path / "note"
    write_atomically(path, b"old")
    seen = []

    def look(descriptor):
        seen.append((path.read_bytes(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", look)
    write_atomically(path, b"new content")
    assert seen[0] == (b"old", len(b"new content"))
    assert path.read_bytes() == b"new content"
