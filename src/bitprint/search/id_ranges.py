"""Ids as ascending or descending ranges, which take no memory or file space per id.

Strings that are decimal numbers, such as "0", "1", "2", are stored as ranges of their numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.search.ids import Ids, from_bytes, kind_of, to_bytes

Integers = NDArray[np.int64]

_MEAN_LENGTH = 8  # with shorter ranges, an array of the ids takes less memory
_MARK = b"\xff"  # UTF-8 has no such byte, and the length of an array of ids is a multiple of 8
_DIGITS = 18  # numbers of at most 18 digits fit 64 bits


class Ranges(NamedTuple):
    """Consecutive ids as ranges, each of shape (number of ranges,).

    Range r has the ids starts[r], starts[r] + steps[r], and so on, counts[r] in total. Steps are
    not 0, and all ids are between -2^63 and 2^63 - 1.
    """

    starts: Integers
    steps: Integers
    counts: Integers

    @property
    def size(self) -> int:
        """Number of ids."""
        return int(self.counts.sum())

    def offsets(self) -> Integers:
        """Return the number of ids in front of each range."""
        return np.cumsum(self.counts) - self.counts

    def ends(self) -> Integers:
        """Return the first and the last id of each range, as numbers."""
        return np.concatenate([self.starts, self.starts + self.steps * (self.counts - 1)])

    def numbers(self) -> Integers:
        """Return all ids as numbers."""
        within = np.arange(self.size) - np.repeat(self.offsets(), self.counts)
        return np.repeat(self.starts, self.counts) + np.repeat(self.steps, self.counts) * within

    def ids(self, kind: str | None) -> Ids:
        """Return all ids as integers or strings."""
        return as_names(self.numbers()) if kind == "string" else self.numbers()


def as_names(numbers: Integers) -> Ids:
    """Return numbers as decimal strings."""
    names = np.empty(len(numbers), object)
    names[:] = [str(number) for number in numbers.tolist()]
    return names


def as_number(name: str) -> int:
    """Return the number whose decimal string is `name`, or -1 if there is none below 10^18.

    Examples
    --------
    >>> [as_number(name) for name in ("0", "75", "075", "+1", "cat")]
    [0, 75, -1, -1, -1]
    """
    if not 0 < len(name) <= _DIGITS or not (name.isascii() and name.isdecimal()):
        return -1
    return int(name) if name[0] != "0" or name == "0" else -1


def compress(ids: Ids) -> Ids | Ranges:
    """Return ids as ranges if these take less memory.

    Examples
    --------
    >>> ids = np.array([*range(50, 100), *range(40)])
    >>> [part.tolist() for part in compress(ids)]
    [[50, 0], [1, 1], [50, 40]]
    >>> compress(ids[::-1] ** 2) is ids
    False
    """
    if len(ids) < _MEAN_LENGTH:
        return ids
    if kind_of(ids) == "integer":
        found = _find_ranges(ids)
    else:
        numbers = _as_numbers(ids)
        found = None if numbers is None else _find_ranges(numbers)
    return ids if found is None else found


def _as_numbers(names: Ids) -> Integers | None:
    numbers = np.empty(len(names), np.int64)
    for place, name in enumerate(names):
        number = numbers[place] = as_number(name)
        if number < 0:
            return None
    return numbers


def _find_ranges(ids: Integers) -> Ranges | None:
    """Split ids into ranges, each as long as possible; return None if they are short."""
    steps = np.diff(ids)
    if not np.all(steps) or np.any((steps > 0) != (ids[1:] > ids[:-1])):
        return None  # repeated ids, or a difference that does not fit 64 bits
    # Group g is a maximal sequence of equal steps. It has one more id than steps, but its first id
    # is also the last id of the previous group. That id belongs to the previous group, unless the
    # previous group had no other id left and became no range.
    bounds = np.flatnonzero(steps[1:] != steps[:-1]) + 1
    bounds = np.concatenate([[0], bounds, [len(steps)]]) if len(steps) else np.zeros(1, np.int64)
    firsts, sizes = bounds[:-1], np.diff(bounds)
    if len(sizes) * _MEAN_LENGTH > 2 * len(ids):
        return None
    numbers = np.arange(len(sizes))
    latest_long = np.maximum.accumulate(np.where(sizes > 1, numbers, -2))
    taken = (numbers - np.concatenate([[-2], latest_long])[:-1]) % 2
    kept = (taken == 0) | (sizes > 1)
    firsts, counts, steps = (firsts + taken)[kept], (sizes + 1 - taken)[kept], steps[firsts[kept]]
    if counts.sum() < len(ids):
        firsts, counts, steps = (
            np.append(part, end) for part, end in ((firsts, len(ids) - 1), (counts, 1), (steps, 1))
        )
    if len(counts) * _MEAN_LENGTH > len(ids):
        return None
    return Ranges(ids[firsts], steps, counts)


def encode(ids: Ids) -> bytes:
    """Serialize ids, as ranges if these take less space."""
    ranges = compress(ids)
    if not isinstance(ranges, Ranges):
        return to_bytes(ids)
    return _MARK + np.stack(ranges).astype("<i8").tobytes()


def decode(data: bytes, kind: str) -> Ids | Ranges:
    """Deserialize what `encode` returned for at least one id; raise ValueError if it is invalid."""
    if not data.startswith(_MARK) or len(data) % 8 != 1:
        ids = from_bytes(data, kind)
        return compress(ids) if _looks_like_range(ids) else ids
    table = np.frombuffer(data, "<i8", offset=1).astype(np.int64, copy=False)
    ranges = Ranges(*table.reshape(3, -1))
    if not _is_valid(ranges, kind):
        raise ValueError("invalid ranges of ids")
    return ranges


def _looks_like_range(ids: Ids) -> bool:
    """Return whether it is worth it to compress ids that an earlier version stored."""
    if ids.dtype == object:
        return as_number(ids[0]) >= 0
    first, second, last = (int(ids[place]) for place in (0, min(1, len(ids) - 1), -1))
    return last == first + (second - first) * (len(ids) - 1)


def _is_valid(ranges: Ranges, kind: str) -> bool:
    """Return whether all ids of crafted ranges can be represented."""
    starts, steps, counts = ranges
    if not ((counts >= 1) & (counts <= 2**31) & (steps != 0)).all():
        return False
    ends = starts + steps * (counts - 1)  # may wrap around
    forward = steps > 0
    # If the product is at least 2^64, its remainder is too small.
    spans = np.where(forward, ends - starts, starts - ends).view(np.uint64)
    sizes = np.where(forward, steps, -steps).view(np.uint64)
    fits = (spans // sizes == (counts - 1).view(np.uint64)) & ((ends >= starts) == forward)
    fits |= counts == 1
    if kind == "string":
        fits &= (np.minimum(starts, ends) >= 0) & (np.maximum(starts, ends) < 10**_DIGITS)
    return bool(fits.all())
