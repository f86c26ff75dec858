"""Tables of multi-index hashing: code positions sorted by each substring."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.parallel import on_every_core
from bitprint.utils.popcount import popcount
from bitprint.utils.words import Words


class SubstringTables(NamedTuple):
    """Positions of the first N codes of a database, sorted by each of m substrings.

    The tables take 4 m bytes per code, and 4 bytes per possible value of each substring.
    """

    starts: NDArray[np.int64]
    """Shape (m + 1,): substring t has the bits from starts[t] up to starts[t + 1]."""
    bases: NDArray[np.int64]
    """Shape (m + 1,): table t has the offsets from bases[t] up to bases[t + 1]."""
    offsets: NDArray[np.uint32]
    """Per table and value v, offsets[v] and offsets[v + 1] bound its positions."""
    positions: NDArray[np.uint32]
    """Shape (m, N): the positions sorted by value, ascending within a value."""


def cut(bits: int, longest: int) -> NDArray[np.int64]:
    """Return the bounds of substrings of nearly equal length, at most `longest` bits each.

    The substrings cover whole bytes, including the padding of the last byte of a code.

    Examples
    --------
    >>> cut(62, 23).tolist()
    [0, 21, 42, 64]
    """
    length = -(-bits // 8) * 8
    number = -(-length // longest)
    return np.arange(number + 1) * length // number


def build(planes: Words, count: int, starts: NDArray[np.int64]) -> SubstringTables:
    """Sort the first `count` codes (fewer than 2^32) by each substring, one table per core.

    Examples
    --------
    >>> codes = np.array([[0b01_01, 0b11_01, 0b01_00]], np.uint64)
    >>> tables = build(codes, 3, np.array([0, 2, 4]))
    >>> tables.positions.tolist()
    [[2, 0, 1], [0, 2, 1]]
    """
    planes = np.ascontiguousarray(planes)
    bases = np.concatenate([[0], np.cumsum((1 << np.diff(starts)) + 2)])
    offsets = np.zeros(bases[-1], np.uint32)
    positions = np.empty((len(starts) - 1, count), np.uint32)

    def sort(chosen: slice) -> None:
        for t in range(chosen.start, chosen.stop):
            span = slice(bases[t], bases[t + 1])
            _sort(planes, count, starts[t], starts[t + 1], offsets[span], positions[t])

    on_every_core(sort, len(positions), 1)
    return SubstringTables(starts, bases, offsets, positions)


@njit(nogil=True, cache=True)
def _sort(
    planes: Words,
    count: int,
    start: int,
    stop: int,
    offsets: NDArray[np.uint32],
    positions: NDArray[np.uint32],
) -> None:
    """Sort by counting; `offsets` are zeros with one extra entry, so that they serve as cursors."""
    for position in range(count):
        offsets[substring(planes, position, start, stop) + np.uint64(2)] += np.uint32(1)
    for i in range(2, len(offsets)):
        offsets[i] += offsets[i - 1]
    for position in range(count):
        value = substring(planes, position, start, stop) + np.uint64(1)
        positions[offsets[value]] = position
        offsets[value] += np.uint32(1)


@njit(nogil=True, cache=True)
def count_agreements(rows: Words, columns: Words, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the pairs of codes by the distance of each substring, shape (m, longest + 1)."""
    counts = np.zeros((len(starts) - 1, np.max(np.diff(starts)) + 1), np.int64)
    for t in range(len(starts) - 1):
        for i in range(rows.shape[1]):
            own = substring(rows, i, starts[t], starts[t + 1])
            for j in range(columns.shape[1]):
                counts[t, popcount(own ^ substring(columns, j, starts[t], starts[t + 1]))] += 1
    return counts


@njit(nogil=True, cache=True, forceinline=True)
def substring(planes: Words, position: int, start: int, stop: int) -> np.uint64:
    """Return the bits start..stop of a code; they may span two words."""
    word, shift = start >> 6, np.uint64(start & 63)
    value = planes[word, position] >> shift
    if (stop - 1) >> 6 > word:
        value |= planes[word + 1, position] << (np.uint64(64) - shift)
    mask = (np.uint64(1) << np.uint64(stop - start)) - np.uint64(1)
    return np.uint64(value & mask)
