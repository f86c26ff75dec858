"""Base class for context managers with a `close` method, and cleanup on errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Closable(ABC):
    """Base class of objects that a `with` statement closes."""

    @abstractmethod
    def close(self) -> None:
        """Close the object, which cannot be used afterwards.

        Examples
        --------
        >>> class Door(Closable):
        ...     def close(self) -> None:
        ...         print("closed")
        >>> with Door() as door:
        ...     print("open")
        open
        closed
        >>> door.close()
        closed
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def on_error(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the body of the `with` statement raises.

    Examples
    --------
    >>> with on_error(lambda: print("closed")):
    ...     raise ValueError("wrong")
    Traceback (most recent call last):
    ValueError: wrong
    """
    try:
        yield
    except BaseException:
        undo()
        raise
