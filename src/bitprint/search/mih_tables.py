"""Tables of multi-index hashing: the positions of codes, sorted by each of their substrings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.parallel import on_every_core
from bitprint.popcount import popcount
from bitprint.words import Words


class Tables(NamedTuple):
    """The first N codes of a database by their m substrings.

    They take 4 m bytes per code, and 4 bytes for each value that a substring may have.
    """

    starts: NDArray[np.int64]
    """Shape (m + 1,): substring t is the bits from starts[t] to starts[t + 1]."""
    bases: NDArray[np.int64]
    """Shape (m + 1,): the offsets of table t are those from bases[t] to bases[t + 1]."""
    offsets: NDArray[np.uint32]
    """Where the positions of each value begin and, one further, end; table after table."""
    positions: NDArray[np.uint32]
    """Shape (m, N): those of one value ascend."""


def cut(bits: int, longest: int) -> NDArray[np.int64]:
    """Where substrings of nearly equal length, none over `longest`, begin and the last one ends.

    Words hold whole bytes: what fills the last byte of a code is cut as well.

    Examples
    --------
    >>> cut(62, 23).tolist()
    [0, 21, 42, 64]
    """
    length = -(-bits // 8) * 8
    number = -(-length // longest)
    return np.arange(number + 1) * length // number


def build(planes: Words, count: int, starts: NDArray[np.int64]) -> Tables:
    """Sort the first `count` codes, fewer than 2^32, by their substrings: a table per core.

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
    return Tables(starts, bases, offsets, positions)


@njit(nogil=True, cache=True)
def _sort(
    planes: Words,
    count: int,
    start: int,
    stop: int,
    offsets: NDArray[np.uint32],
    positions: NDArray[np.uint32],
) -> None:
    """Counting sort. The offsets are zeros, one more than needed, so that they can be cursors."""
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
    """Count pairs of two sets of planes by the distance of each substring, (m, longest + 1)."""
    counts = np.zeros((len(starts) - 1, np.max(np.diff(starts)) + 1), np.int64)
    for t in range(len(starts) - 1):
        for i in range(rows.shape[1]):
            own = substring(rows, i, starts[t], starts[t + 1])
            for j in range(columns.shape[1]):
                counts[t, popcount(own ^ substring(columns, j, starts[t], starts[t + 1]))] += 1
    return counts


@njit(nogil=True, cache=True, forceinline=True)
def substring(planes: Words, position: int, start: int, stop: int) -> np.uint64:
    """Bits start..stop of a code, which lie in one word or in two."""
    word, shift = start >> 6, np.uint64(start & 63)
    value = planes[word, position] >> shift
    if (stop - 1) >> 6 > word:
        value |= planes[word + 1, position] << (np.uint64(64) - shift)
    mask = (np.uint64(1) << np.uint64(stop - start)) - np.uint64(1)
    return np.uint64(value & mask)
