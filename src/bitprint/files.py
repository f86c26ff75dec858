"""Writing files so that a crash leaves the old one or the new one, never half of one."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def no_part_left(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Remove what a write of `path` that fails has begun; of a full disk, say for which file.

    Parameters
    ----------
    path : path
        The file that is to be.
    partial : path, optional
        What is written before it gets that name; `path` itself by default.

    Examples
    --------
    >>> with no_part_left(Path("of/mine")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    OSError: of/mine: no space left on this disk; free some space, and run it again
    """
    try:
        yield
    except OSError as error:
        part = path if partial is None else partial
        if part.is_file():  # and no device, such as /dev/stdout
            part.unlink()
        if error.errno is None:  # as NumPy raises where it could not write all
            raise OSError(f"{path}: cannot be written ({error}); is the disk full?") from error
        if error.errno not in _NO_ROOM:
            raise
        full = OSError(f"{path}: no space left on this disk; free some space, and run it again")
        full.errno = error.errno
        raise full from error


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`; durable when the call returns.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "note", b"kept")
    ...     (Path(folder) / "note").read_bytes()
    b'kept'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with no_part_left(path, partial):
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    # The rename itself is on disk only when the folder is.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
