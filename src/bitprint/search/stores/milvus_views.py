"""What the rows of an index on Milvus mean, and which of them count in one of its states.

One collection holds everything. What a row is follows from its primary key, `ordinal`:

0, 1, 2, ...
    Codes in insertion order: the id in `name`, the path and the labels in `details`.
-1 and -2
    The header, written to one and the other in turn: the later generation counts, and a write that
    is cut short leaves the earlier one.
-3
    The claim of the writer who began last.
-4, -5, ...
    Pieces of attachments, and of lists of rows that are to be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bitprint.search.stores.milvus_values import to_name

HEADERS = (-1, -2)
CLAIM = -3
FIRST_PIECE = -4


@dataclass(frozen=True)
class Header:
    """What the index says about itself; see `bitprint.search.file.Header`.

    `erased` is the last generation that took rows away, `pieces` counts the ordinals that pieces
    have used, and the last `erasing` of those list rows that are still to be deleted.
    """

    bits: int
    model: str | None
    kind: str | None = None
    generation: int = 0
    erased: int = 0
    total: int = 0
    live: int = 0
    pieces: int = 0
    erasing: int = 0
    claim: str = ""

    @property
    def width(self) -> int:
        """How many bytes a code has."""
        return -(-self.bits // 8)


@dataclass(frozen=True)
class View:
    """One state of the index: the header, and rows that do not count although it counts them."""

    header: Header
    gone: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def codes(self, first: int, end: int, label: str | None = None) -> str:
        """The filter for the codes at `first` to `end`, with a label."""
        carries = (
            f'json_contains(details["labels"], "{to_name(label)}")' if label is not None else ""
        )
        return self._between(first, end, carries)

    def pieces(self, first: int, end: int, condition: str = "") -> str:
        """The filter for the pieces numbered `first` to `end`."""
        return self._between(FIRST_PIECE - end + 1, FIRST_PIECE - first + 1, condition)

    def without(self, ordinals: Iterable[int], header: Header) -> View:
        """The view with a new header, in which some more rows do not count."""
        return View(header, np.append(self.gone, np.fromiter(ordinals, np.int64)))

    def _between(self, first: int, end: int, condition: str) -> str:
        gone = self.gone[(self.gone >= first) & (self.gone < end)].tolist()
        parts = [f"ordinal >= {first} and ordinal < {end}"]
        parts += [f"ordinal not in {gone}"] if gone else []
        parts += [condition] if condition else []
        return " and ".join(parts)
