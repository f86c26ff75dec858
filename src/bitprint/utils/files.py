"""Write files atomically and durably, and read regular files."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def read_regular(path: Path) -> bytes:
    """Read a file; raise ValueError for a pipe or a device, which could block or never end.

    Examples
    --------
    >>> read_regular(Path("/dev/zero"))
    Traceback (most recent call last):
    ValueError: /dev/zero: expected a regular file, got a pipe, device or folder
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path}: expected a regular file, got a pipe, device or folder")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


@contextmanager
def no_part_left(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Remove the partial file if writing `path` fails; name the file if the disk is full.

    Parameters
    ----------
    path : path
        The file to write.
    partial : path, optional
        Temporary file that is renamed to `path`; by default `path` is written directly.

    Examples
    --------
    >>> with no_part_left(Path("my/file")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    OSError: my/file: no space left on this disk; free some space and run again
    """
    try:
        yield
    except OSError as error:
        written = path if partial is None else partial
        if written.is_file():  # not a device such as /dev/stdout
            written.unlink()
        if error.errno is None:  # NumPy raises such errors for incomplete writes
            raise OSError(f"{path}: cannot be written ({error}); is the disk full?") from error
        if error.errno not in _DISK_FULL:
            raise
        full = OSError(f"{path}: no space left on this disk; free some space and run again")
        full.errno = error.errno
        raise full from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file with `content`; the change is on disk when the call returns.

    After a crash the file has the old or the new content. Missing folders are created.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "note", b"kept")
    ...     (Path(folder) / "note").read_bytes()
    b'kept'
    """
    write_in_order({path: content})


def write_in_order(contents: Mapping[Path, bytes]) -> None:
    """Replace files of one folder; each new file is on disk before the next one is replaced.

    After a crash, the first of them are new. If any is, the others exist as `partial_of` them.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)
    ...     write_in_order({folder / "weights": b"0.5", folder / "description": b"a weight"})
    ...     sorted(path.name for path in folder.iterdir())
    ['description', 'weights']
    """
    first, *others = contents
    make_folder(first.parent)
    with ExitStack() as stack:
        for path, content in contents.items():
            partial = partial_of(path)
            stack.enter_context(no_part_left(path, partial))
            with partial.open("wb") as file:
                _write_synced(file, content)
        if others:
            sync_folder(first.parent)
        partial_of(first).replace(first)
    sync_folder(first.parent)
    for path in others:
        partial_of(path).replace(path)
        sync_folder(path.parent)


def partial_of(path: Path) -> Path:
    """Return the path of the new content of a file until it is complete."""
    return path.with_name(path.name + ".partial")


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist yet; it is on disk when the call returns.

    After a crash there is no file or a complete one. Missing folders are created.

    Raises
    ------
    FileExistsError
        If the file exists.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_new(Path(folder) / "note", b"kept")
    ...     write_new(Path(folder) / "note", b"other")
    Traceback (most recent call last):
    FileExistsError: ...
    """
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
    with no_part_left(path, draft):
        if not _write_unnamed(path, content):
            with draft.open("wb") as file:
                _write_synced(file, content)
            _rename_new(draft, path)
    sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents; they are on disk when the call returns."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk: new, renamed and deleted files."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_synced(file: BinaryIO, content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _write_unnamed(path: Path, content: bytes) -> bool:
    """Write a file that gets its name when it is complete; return False if the system cannot.

    If the process is killed before that, the kernel deletes the file.
    """
    if not hasattr(os, "O_TMPFILE"):
        return False
    try:
        with os.fdopen(os.open(path.parent, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb") as file:
            _write_synced(file, content)
            # Python follows the link in /proc only if a folder descriptor is given; the path is
            # absolute, so its value does not matter.
            os.link(f"/proc/self/fd/{file.fileno()}", path, src_dir_fd=file.fileno())
    except FileExistsError:
        raise
    except OSError as error:  # no unnamed files or no hard links on this file system, or no /proc
        if error.errno in _DISK_FULL:
            raise
        return False
    return True


def _rename_new(draft: Path, path: Path) -> None:
    """Rename a file atomically, or raise FileExistsError if the new name is taken."""
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links, such as exFAT
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        draft.replace(path)
    else:
        draft.unlink()
