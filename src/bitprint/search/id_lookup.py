"""Lookup of the positions of ids."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.search.id_column import IdView
from bitprint.search.id_ranges import Integers, Ranges, as_number
from bitprint.search.ids import Ids, Positions

_SHORT = 8  # ranges with fewer ids, and steps other than 1 and -1, are looked up one by one
_CLASSES = 8  # maximum number of classes of ranges
_LARGEST_STEP = 2**31


class IdLookup:
    """Positions of ids. A range takes 32 bytes; other ids take 12, or about 100 for strings.

    Parameters
    ----------
    kind : str or None
        "integer" or "string"; None while there are no ids.
    ids : IdView
        The ids at the positions 0, 1, 2 and so on.
    """

    def __init__(self, kind: str | None, ids: IdView) -> None:
        self._kind = kind
        self._ranges = RangeLookup()
        self._others = StringLookup() if kind == "string" else IntegerLookup()
        first = 0
        for part in ids.parts():
            self.extend(part, first)
            first += part.size

    def extend(self, ids: Ids | Ranges, first: int) -> None:
        """Add ids at the positions `first`, `first + 1`, and so on."""
        if not isinstance(ids, Ranges):
            self._others.extend(ids, np.arange(first, first + len(ids)))
            return
        rest = ~self._ranges.extend(ids, first + ids.offsets())
        if np.any(rest):
            positions = np.flatnonzero(np.repeat(rest, ids.counts)) + first
            self._others.extend(Ranges(*(part[rest] for part in ids)).ids(self._kind), positions)

    def find(self, ids: Ids) -> Positions:
        """Return the last position of each id, or -1."""
        numbers = ids
        if self._kind == "string":
            numbers = np.fromiter((as_number(name) for name in ids), np.int64, len(ids))
        return np.maximum(self._ranges.find(numbers), self._others.find(ids))


class _Intervals(NamedTuple):
    """Disjoint intervals of numbers from low to high, ascending, and their positions.

    The number `low` is at position `first`, the next one at `first + direction`.
    """

    low: Integers
    high: Integers
    first: Integers
    direction: Integers

    def take(self, rows: Integers) -> _Intervals:
        return _Intervals(*(column[rows] for column in self))

    def find(self, numbers: Integers) -> Positions:
        """Return the position of each number, or -1."""
        rows = np.maximum(np.searchsorted(self.low, numbers, side="right") - 1, 0)
        low, high, first, direction = self.take(rows)
        inside = (low <= numbers) & (numbers <= high)
        return np.where(inside, first + direction * (numbers - low), -1)


class RangeLookup:
    """Positions of ids in ranges.

    Ranges are grouped into classes by step and remainder: ids of a class are
    `remainder + step * number`. A class consists of levels of disjoint intervals of numbers. Each
    level has at least twice as many intervals as the next, so that an interval is merged only a
    logarithmic number of times.
    """

    def __init__(self) -> None:
        self._classes: dict[tuple[int, int], list[_Intervals]] = {}

    def extend(self, ranges: Ranges, firsts: Positions) -> NDArray[np.bool_]:
        """Add ranges whose first ids are at the positions `firsts`; return which were added.

        Short ranges and many different steps are not worth it.
        """
        starts, steps, counts = ranges
        sizes = np.abs(steps)
        fit = (sizes == 1) | (counts >= _SHORT) & (sizes > 0) & (sizes <= _LARGEST_STEP)
        keys = np.stack([sizes, starts % np.where(fit, sizes, 1)], axis=1)
        added = np.zeros(len(starts), np.bool_)
        for size, remainder in np.unique(keys[fit], axis=0).tolist():
            if (size, remainder) not in self._classes and len(self._classes) >= _CLASSES:
                continue
            rows = np.flatnonzero(fit & np.all(keys == (size, remainder), axis=1))
            levels = self._classes.setdefault((size, remainder), [])
            direction = np.sign(steps[rows])
            begin = starts[rows] // size
            end = begin + direction * (counts[rows] - 1)
            first = np.where(direction > 0, firsts[rows], firsts[rows] + counts[rows] - 1)
            new = _Intervals(np.minimum(begin, end), np.maximum(begin, end), first, direction)
            while levels and len(levels[-1].low) < 2 * len(new.low):
                older = levels.pop()
                new = _Intervals(*map(np.concatenate, zip(older, new, strict=True)))
            levels.append(_disjoint(new))
            added[rows] = True
        return added

    def find(self, ids: Integers) -> Positions:
        """Return the last position of each id, or -1."""
        found = np.full(len(ids), -1, np.int64)
        for (step, remainder), levels in self._classes.items():
            belong = slice(None) if step == 1 else np.flatnonzero(ids % step == remainder)
            numbers = ids[belong] // step
            for level in levels:
                found[belong] = np.maximum(found[belong], level.find(numbers))
        return found


def _disjoint(intervals: _Intervals) -> _Intervals:
    """Return disjoint intervals; where intervals overlap, the last one counts."""
    order = np.argsort(intervals.low, kind="stable")
    ordered = intervals.take(order)
    if np.any(ordered.low[1:] <= ordered.high[:-1]):
        ordered = _without_overlaps(intervals)
    low, high, first, direction = ordered
    last = first + direction * (high - low)
    follows = (
        (low[1:] == high[:-1] + 1)
        & (direction[1:] == direction[:-1])
        & (first[1:] == last[:-1] + direction[:-1])
    )
    begins = np.concatenate([[True], ~follows])
    ends = np.concatenate([~follows, [True]])
    return _Intervals(low[begins], high[ends], first[begins], direction[begins])


def _without_overlaps(intervals: _Intervals) -> _Intervals:
    low, high, first, direction = intervals
    # Between two successive cuts, the same interval applies to all numbers, or none does.
    cuts = np.unique(np.concatenate([low, high[high < np.iinfo(np.int64).max] + 1]))
    owner = np.full(len(cuts), -1)
    begins, ends = np.searchsorted(cuts, low), np.searchsorted(cuts, high, side="right")
    for row, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        owner[begin:end] = row
    last = np.append(cuts[1:] - 1, np.iinfo(np.int64).max)
    owned = owner >= 0
    owner, cuts = owner[owned], cuts[owned]
    positions = first[owner] + direction[owner] * (cuts - low[owner])
    return _Intervals(cuts, last[owned], positions, direction[owner])


class IntegerLookup:
    """Positions of integer ids in sorted runs, 12 bytes per id up to 2^32 codes.

    Each run is at least twice as long as the next. The number of runs is therefore logarithmic,
    and each id is merged only a logarithmic number of times, even for small batches.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Ids, NDArray[np.integer]]] = []

    def extend(self, ids: Ids, positions: Positions) -> None:
        """Add ids at ascending positions, which are larger than all earlier ones."""
        if not len(ids):
            return
        positions = positions.astype(np.uint32 if positions[-1] < 2**32 else np.int64)
        while self._runs and len(self._runs[-1][0]) < 2 * len(ids):
            older = self._runs.pop()
            ids = np.concatenate([older[0], ids])
            positions = np.concatenate([older[1], positions])
        order = np.argsort(ids, kind="stable")
        self._runs.append((ids[order], positions[order]))

    def find(self, ids: Ids) -> Positions:
        """Return the last position of each id, or -1."""
        found = np.full(len(ids), -1, np.int64)
        for known, positions in self._runs:
            places = np.searchsorted(known, ids, side="right") - 1
            hits = (places >= 0) & (known[places] == ids)
            found[hits] = positions[places[hits]]
        return found


class StringLookup:
    """Positions of string ids, in a dictionary."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def extend(self, ids: Ids, positions: Positions) -> None:
        """Add ids at positions that are larger than all earlier ones."""
        self._positions.update(zip(ids, positions.tolist(), strict=True))

    def find(self, ids: Ids) -> Positions:
        """Return the last position of each id, or -1."""
        return np.fromiter((self._positions.get(i, -1) for i in ids), np.int64, len(ids))
