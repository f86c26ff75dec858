"""Exclusive locks on files, between threads and processes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


@contextmanager
def locked(path: Path, timeout: float) -> Iterator[os.stat_result]:
    """Lock an existing file; yield its attributes.

    The lock excludes only other callers of this function. It ends with the process.

    Parameters
    ----------
    path : path
        A file on which no other library keeps POSIX locks, because closing it releases these.
    timeout : float
        Seconds to wait before TimeoutError is raised; 0 to try once.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file, locked(Path(file.name), timeout=0):
    ...     with locked(Path(file.name), timeout=0):
    ...         pass
    Traceback (most recent call last):
    TimeoutError: ...: locked by another process or thread
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        _wait(path, descriptor, timeout)
        try:
            yield os.fstat(descriptor)
        finally:  # explicitly, because a forked process may still have the descriptor
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _wait(path: Path, descriptor: int, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{path}: locked by another process or thread") from None
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
