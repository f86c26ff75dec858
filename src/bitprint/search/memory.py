"""In-memory arrays of an open index: code planes, ids and removal flags."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bitprint.search.chunks import Chunk, Flags, Packed, Stored
from bitprint.search.id_column import IdColumn, IdView, grown
from bitprint.search.id_lookup import IdLookup
from bitprint.search.id_ranges import Ranges
from bitprint.search.ids import Ids, Positions, largest_number
from bitprint.utils.words import as_words


class IdSequence(Protocol):
    """Ids in insertion order: an array, or an `IdView`."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64 or object."""

    def __len__(self) -> int: ...

    def __getitem__(self, positions: Positions, /) -> Ids: ...


@dataclass(frozen=True)
class Snapshot:
    """The codes that one search reads; later changes of the index do not affect them.

    Parameters
    ----------
    planes : ndarray of uint64, shape (W, capacity)
        The codes, plane by plane.
    ids : IdView or ndarray, length count
        int64, or strings.
    alive : ndarray of uint8, shape (count,), or None
        0 for removed codes; None if no code is removed.
    """

    planes: NDArray[np.uint64]
    ids: IdSequence
    alive: Flags | None

    @property
    def count(self) -> int:
        """Number of positions, including those of removed codes."""
        return len(self.ids)

    def ids_at(self, positions: Positions) -> Ids:
        """Return the ids at `positions` (of any shape); position -1 gives -1 or None."""
        if isinstance(self.ids, IdView) and self.ids.is_numbering:
            return positions
        found = positions >= 0
        if found.all():
            return self.ids[positions]
        ids = np.full(positions.shape, -1 if self.ids.dtype == np.int64 else None, self.ids.dtype)
        ids[found] = self.ids[positions[found]]
        return ids


class Memory:
    """Growable arrays of codes in insertion order; a position is a column.

    Each code takes 8 bytes per started 64 bits, an eighth more for growth, and 1 byte for `alive`
    once a code is removed. Ids take what `IdColumn` and, from the first `find` on, `IdLookup` take.
    """

    def __init__(self, bits: int, kind: str | None) -> None:
        self.bits = bits
        self.kind = kind
        self.live = 0
        self.chunks: list[Chunk] = []
        self._planes = np.empty((-(-bits // 64), 0), np.uint64)
        self._ids = IdColumn(kind)
        self._alive: Flags | None = None  # None until a code is removed
        self._lookup: IdLookup | None = None
        self._snapshot: Snapshot | None = None

    @property
    def count(self) -> int:
        """Number of positions."""
        return self._ids.count

    def reserve(self, more: Stored) -> None:
        """Make room for more codes."""
        self._snapshot = None
        self._planes = grown(self._planes, self.count, self.count + more.codes)
        self._ids.reserve(more.irregular)

    def append(self, chunk: Chunk, packed: Packed, ids: Ids | Ranges) -> None:
        """Append a chunk, for which room must be reserved."""
        span = slice(chunk.first, chunk.first + chunk.size)
        whole = packed.shape[1] % 8 == 0
        words = packed.view(np.uint64) if whole else as_words(packed)
        self._planes[:, span] = words.T
        if self._alive is not None:
            self._alive = grown(self._alive, span.start, span.stop)
            self._alive[span] = 1
        self._ids.append(ids)
        self.chunks.append(chunk)
        self.live += chunk.size
        self._snapshot = None
        if self._lookup is not None:
            self._lookup.extend(ids, chunk.first)

    def mark_removed(self, removed: Sequence[tuple[int, Flags]]) -> None:
        """Apply removal flags, given as pairs (first position of a chunk, flags)."""
        if not removed:
            return
        # Other threads may still be searching the old array.
        alive = np.ones(self.count, np.uint8) if self._alive is None else self._alive.copy()
        for first, flags in removed:
            span = slice(first, first + self.chunk_at(first).size)
            self.live -= int(np.count_nonzero(alive[span]))
            alive[span] = 1 - flags[: span.stop - span.start]
            self.live += int(np.count_nonzero(alive[span]))
        self._alive = alive
        self._snapshot = None

    def chunk_at(self, position: int) -> Chunk:
        """Return the chunk that contains a position."""
        return self.chunks[bisect_right(self.chunks, position, key=lambda chunk: chunk.first) - 1]

    def packed(self, positions: Positions) -> Packed:
        """Return the codes at `positions` as packed bytes."""
        words = np.ascontiguousarray(self._planes[:, positions].T)
        return np.ascontiguousarray(words.view(np.uint8)[:, : -(-self.bits // 8)])

    def snapshot(self) -> Snapshot:
        """Return a snapshot for a search, without copying."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self._planes, self._ids.view(), self.alive)
        return self._snapshot

    @property
    def alive(self) -> Flags | None:
        """One byte per position, 0 if the code is removed; None if no code is removed."""
        if self._alive is None or self.live == self.count:
            return None
        return self._alive[: self.count]

    def live_ids(self) -> Ids:
        """Return the ids of the codes that are not removed, in insertion order."""
        ids = self._ids.view().to_array()
        return ids if self.alive is None else ids[self.alive == 1]

    def largest_number(self) -> int:
        """Return the largest number among the ids that are not removed, at least -1."""
        largest, first, alive = -1, 0, self.alive
        for part in self._ids.view().parts():
            if isinstance(part, Ranges):
                ids = part.ends() if alive is None else part.numbers()
            else:
                ids = part
            if alive is not None:
                ids = ids[alive[first : first + part.size] == 1]
            largest = max(largest, largest_number(ids))
            first += part.size
        return largest

    def removed(self, first: int, size: int) -> Flags:
        """Return new flags of `size` positions from `first` on, 1 if the code is removed."""
        if self._alive is None:
            return np.zeros(size, np.uint8)
        return 1 - self._alive[first : first + size]

    def find(self, ids: Ids) -> Positions:
        """Return the positions of ids, -1 for ids that are unknown or removed."""
        if self._lookup is None:
            self._lookup = IdLookup(self.kind, self._ids.view())
        positions = self._lookup.find(ids)
        if self._alive is not None:
            known = np.flatnonzero(positions >= 0)
            positions[known[self._alive[positions[known]] == 0]] = -1
        return positions
