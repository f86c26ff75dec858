"""What an open index holds in memory: codes by planes, ids, and which codes are alive."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitprint.search.chunks import Chunk, Flags, Packed
from bitprint.search.ids import Ids, IntegerLookup, Positions, StringLookup
from bitprint.words import as_words


@dataclass(frozen=True)
class View:
    """What one search looks at; nothing that happens to the index later changes it.

    planes : (W, capacity) words, ids : (count,), alive : (count,) bytes, or None if all are.
    """

    planes: NDArray[np.uint64]
    ids: Ids
    alive: Flags | None

    @property
    def count(self) -> int:
        """How many positions there are, those of removed codes included."""
        return len(self.ids)

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids at positions of any shape; -1 or None where the position is -1."""
        missing = -1 if self.ids.dtype == np.int64 else None
        ids = np.full(positions.shape, missing, self.ids.dtype)
        found = positions >= 0
        ids[found] = self.ids[positions[found]]
        return ids


class Memory:
    """Arrays with room to grow; a position is a column, and columns are in insertion order.

    8 bytes per code for each 64 bits begun, 8 for an integer id and 1 for `alive`. A string id
    takes 8 bytes and the Python string. The lookup of ids is built when it is first needed.
    """

    def __init__(self, bits: int, kind: str | None) -> None:
        self.bits = bits
        self.kind = kind
        self.count = 0
        self.live = 0
        self.chunks: list[Chunk] = []
        self._planes = np.empty((-(-bits // 64), 0), np.uint64)
        self._ids: Ids = np.empty(0, object if kind == "string" else np.int64)
        self._alive: Flags = np.empty(0, np.uint8)
        self._lookup: IntegerLookup | StringLookup | None = None

    def reserve(self, total: int) -> None:
        """Make room for `total` codes, and for as many again if there was some already."""
        if total <= len(self._alive):
            return
        capacity = max(total, 2 * len(self._alive))
        planes = np.empty((len(self._planes), capacity), np.uint64)
        planes[:, : self.count] = self._planes[:, : self.count]
        ids = np.empty(capacity, self._ids.dtype)
        ids[: self.count] = self._ids[: self.count]
        alive = np.empty(capacity, np.uint8)
        alive[: self.count] = self._alive[: self.count]
        self._planes, self._ids, self._alive = planes, ids, alive

    def append(self, chunk: Chunk, packed: Packed, ids: Ids) -> None:
        """Take in the codes that follow, for which room was reserved."""
        span = slice(chunk.first, chunk.first + chunk.size)
        self._planes[:, span] = as_words(packed).T
        self._ids[span] = ids
        self._alive[span] = 1
        self.chunks.append(chunk)
        self.count = span.stop
        self.live += chunk.size
        if self._lookup is not None:
            self._lookup.extend(ids, chunk.first)

    def bury(self, removed: Sequence[tuple[int, Flags]]) -> None:
        """Mark removed codes: per chunk its first position and its flags."""
        if not removed:
            return
        self._alive = self._alive.copy()  # a search in another thread may be reading the old one
        for first, flags in removed:
            span = slice(first, first + self.chunk_at(first).size)
            self.live -= int(np.count_nonzero(self._alive[span]))
            self._alive[span] = 1 - flags[: span.stop - span.start]
            self.live += int(np.count_nonzero(self._alive[span]))

    def chunk_at(self, position: int) -> Chunk:
        """Return the chunk that holds a position."""
        return self.chunks[bisect_right(self.chunks, position, key=lambda chunk: chunk.first) - 1]

    def packed(self, positions: Positions) -> Packed:
        """Return the codes at positions, packed as bytes."""
        words = np.ascontiguousarray(self._planes[:, positions].T)
        return np.ascontiguousarray(words.view(np.uint8)[:, : -(-self.bits // 8)])

    def view(self) -> View:
        """Return what a search needs."""
        alive = self._alive[: self.count] if self.live < self.count else None
        return View(self._planes, self._ids[: self.count], alive)

    @property
    def alive(self) -> Flags:
        """One byte per position, 0 where the code is removed."""
        return self._alive[: self.count]

    def find(self, ids: Ids) -> Positions:
        """Return the positions at which ids live, -1 for those that do not."""
        if self._lookup is None:
            self._lookup = StringLookup() if self.kind == "string" else IntegerLookup()
            self._lookup.extend(self._ids[: self.count], 0)
        positions = self._lookup.find(ids)
        known = np.flatnonzero(positions >= 0)
        gone = known[self._alive[positions[known]] == 0]
        positions[gone] = -1
        return positions
