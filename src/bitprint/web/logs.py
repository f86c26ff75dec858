"""Limit repeated log messages, so that a flood of requests does not fill the disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("asyncio", "bitprint.web", "uvicorn.error")


class RepeatFilter(logging.Filter):
    """Pass a number of messages of each kind per period; count the others.

    Messages are of one kind if the same line of code logs them, with the same type of exception.

    Parameters
    ----------
    most : int
        Maximum number of messages of a kind in a period.
    seconds : float
        Length of a period.

    Examples
    --------
    >>> logger = logging.getLogger("bitprint.example")
    >>> logger.addFilter(RepeatFilter(most=2, seconds=60))
    >>> class Printing(logging.Handler):
    ...     def emit(self, record: logging.LogRecord) -> None:
    ...         print(record.getMessage())
    >>> logger.addHandler(Printing())
    >>> for number in range(1000):
    ...     logger.warning("request %s failed", number)
    request 0 failed
    request 1 failed (further messages of this kind are not shown for 60 seconds)
    """

    def __init__(self, most: int, seconds: float) -> None:
        super().__init__()
        self._most = most
        self._seconds = seconds
        self._kinds: dict[tuple[object, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to show a message."""
        error = record.exc_info[0] if record.exc_info else None
        kind = (record.pathname, record.lineno, error)
        now = time.monotonic()
        since, count = self._kinds.get(kind, (now, 0))
        if now - since >= self._seconds:
            since, count = now, 0
        self._kinds[kind] = since, count + 1
        if count + 1 == self._most:
            record.msg = (
                f"{record.msg} (further messages of this kind are not shown for "
                f"{self._seconds:g} seconds)"
            )
        return count < self._most


@contextmanager
def limited_logs(most: int = 5, seconds: float = 60.0) -> Iterator[None]:
    """Limit the messages of the server, of uvicorn and of asyncio."""
    limit = RepeatFilter(most, seconds)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(limit)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(limit)
