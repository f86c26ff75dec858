"""Store: the methods that every index has, in a file or on a server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from numpy.typing import NDArray

from bitprint.codes import Codes, CodesLike
from bitprint.search.details import Item
from bitprint.search.ids import IdList
from bitprint.search.matches import Matches, MatchesWithin
from bitprint.search.promises import Promise


class Store(Protocol):
    """An index; `bitprint.Index` documents the methods, `promises` lists the guarantees.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> def count(store: Store, label: str) -> int:
    ...     return sum(label in item.labels for item in store.items(store.ids()))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.open_index(f"{folder}/photos.bp", bits=2, create=True) as store:
    ...         store.add(["a", "b"], Codes.from_signs([[1, 1], [1, -1]]), labels=[["cat"], []])
    ...         count(store, "cat")
    1
    """

    bits: int
    model: str | None

    @property
    def path(self) -> Path | str:
        """The file, or the address without the password."""

    @property
    def promises(self) -> frozenset[Promise]:
        """What the index guarantees; the table in `docs/scale.md` compares the engines."""

    def close(self) -> None:
        """Close the index; later calls of other methods raise ValueError."""

    def __enter__(self) -> Store: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def __len__(self) -> int: ...

    def add(
        self,
        ids: IdList | CodesLike | None = None,
        codes: CodesLike | None = None,
        paths: Iterable[str | os.PathLike[str] | None] | None = None,
        labels: Iterable[Iterable[str]] | None = None,
    ) -> None:
        """Add codes; a code whose id is in the index replaces the earlier code."""

    def remove(self, ids: IdList) -> None:
        """Remove codes, or none if an id is unknown."""

    def compact(self) -> None:
        """Free the space of removed codes."""

    def search(self, codes: CodesLike, k: int = 10, label: str | None = None) -> Matches:
        """Find the k nearest codes of each query, exactly."""

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find all codes within Hamming distance `radius` of each query."""

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order."""

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Store named bytes in the index, and delete those that are None."""

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`, ordered by name."""

    def transaction(self) -> AbstractContextManager[None]:
        """Group changes in a `with` statement; raise ValueError if the engine cannot."""
