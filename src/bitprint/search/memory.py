"""In-memory arrays of an open index: code planes, ids and removal flags."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bitprint.search.chunks import Chunk, Flags, Packed
from bitprint.search.ids import Ids, IntegerLookup, Positions, StringLookup
from bitprint.utils.words import as_words


@dataclass(frozen=True)
class Snapshot:
    """The codes that one search reads; later changes of the index do not affect them.

    Parameters
    ----------
    planes : ndarray of uint64, shape (W, capacity)
        The codes, plane by plane.
    ids : ndarray, shape (count,)
        int64, or strings.
    alive : ndarray of uint8, shape (count,), or None
        0 for removed codes; None if no code is removed.
    """

    planes: NDArray[np.uint64]
    ids: Ids
    alive: Flags | None

    @property
    def count(self) -> int:
        """Number of positions, including those of removed codes."""
        return len(self.ids)

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids at `positions` (of any shape); position -1 gives -1 or None."""
        missing = -1 if self.ids.dtype == np.int64 else None
        ids = np.full(positions.shape, missing, self.ids.dtype)
        found = positions >= 0
        ids[found] = self.ids[positions[found]]
        return ids


class Memory:
    """Growable arrays of codes in insertion order; a position is a column.

    Each code takes 8 bytes per started 64 bits, 8 bytes for an integer id and 1 byte for `alive`.
    A string id takes 8 bytes plus the Python string. The id lookup is built on first use.
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
        """Make room for `total` codes; at least double the capacity when the arrays grow."""
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
        """Append a chunk, for which room must be reserved."""
        span = slice(chunk.first, chunk.first + chunk.size)
        self._planes[:, span] = as_words(packed).T
        self._ids[span] = ids
        self._alive[span] = 1
        self.chunks.append(chunk)
        self.count = span.stop
        self.live += chunk.size
        if self._lookup is not None:
            self._lookup.extend(ids, chunk.first)

    def mark_removed(self, removed: Sequence[tuple[int, Flags]]) -> None:
        """Apply removal flags, given as pairs (first position of a chunk, flags)."""
        if not removed:
            return
        self._alive = self._alive.copy()  # other threads may still be searching the old array
        for first, flags in removed:
            span = slice(first, first + self.chunk_at(first).size)
            self.live -= int(np.count_nonzero(self._alive[span]))
            self._alive[span] = 1 - flags[: span.stop - span.start]
            self.live += int(np.count_nonzero(self._alive[span]))

    def chunk_at(self, position: int) -> Chunk:
        """Return the chunk that contains a position."""
        return self.chunks[bisect_right(self.chunks, position, key=lambda chunk: chunk.first) - 1]

    def packed(self, positions: Positions) -> Packed:
        """Return the codes at `positions` as packed bytes."""
        words = np.ascontiguousarray(self._planes[:, positions].T)
        return np.ascontiguousarray(words.view(np.uint8)[:, : -(-self.bits // 8)])

    def snapshot(self) -> Snapshot:
        """Return a snapshot for a search, without copying."""
        alive = self._alive[: self.count] if self.live < self.count else None
        return Snapshot(self._planes, self._ids[: self.count], alive)

    @property
    def alive(self) -> Flags:
        """One byte per position, 0 if the code is removed."""
        return self._alive[: self.count]

    def find(self, ids: Ids) -> Positions:
        """Return the positions of ids, -1 for ids that are unknown or removed."""
        if self._lookup is None:
            self._lookup = StringLookup() if self.kind == "string" else IntegerLookup()
            self._lookup.extend(self._ids[: self.count], 0)
        positions = self._lookup.find(ids)
        known = np.flatnonzero(positions >= 0)
        removed = known[self._alive[positions[known]] == 0]
        positions[removed] = -1
        return positions
