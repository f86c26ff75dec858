"""Closable: what a `with` closes; and `on_error`, which closes it only if something is raised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Closable(ABC):
    """Something that is open, and closed at the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """Close it; it is of no use afterwards.

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
    """Undo something if anything is raised inside of a `with`.

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
