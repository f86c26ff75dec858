"""Compiled scans over a database of codes, with counting sort and without the GIL.

A scan processes the database in blocks that fit the first-level cache, and compares each block with
all queries. Within a block it tests groups of 64 codes with a vectorized xor, popcount and
comparison. In nearly all groups no code is close enough, and the group is skipped.

Two rules keep these loops fast. Rows of arrays are indexed, not sliced, because a slice costs a
reference count. Indices with an offset are unsigned, because signed indices may be negative, which
prevents vectorization.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.popcount import popcount
from bitprint.utils.words import Words

_GROUP = 64  # codes per group, whose comparison result fits one word
_BLOCK = 1024  # codes whose words and partial distances fit the first-level cache
_LIMIT, _CLOSER, _SIZE = 0, 1, 2  # columns of the state of a query in `scan_nearest`

Marks = NDArray[np.uint8]
Positions = NDArray[np.int64]
Distances = NDArray[np.int32]
Counts = NDArray[np.int64]


@njit(nogil=True, cache=True)
def scan_nearest(
    queries: Words, planes: Words, alive: Marks, start: int, stop: int, k: int
) -> tuple[Positions, Distances]:
    """Find the k nearest of the codes start..stop.

    Returns positions and distances of shape (Q, k), padded with -1. The candidates of a query are
    stored in the order of their positions. A code is accepted only if it is closer than the k-th
    nearest candidate, because later ties lose. A histogram of distances gives this limit.
    """
    capacity = 2 * min(k, stop - start) + _GROUP
    positions = np.empty((len(queries), capacity), np.int64)
    distances = np.empty((len(queries), capacity), np.int32)
    farthest = 64 * len(planes)
    histograms = np.zeros((len(queries), farthest + 2), np.int64)
    states = np.zeros((len(queries), 3), np.int64)
    states[:, _LIMIT] = farthest + 1
    partial = np.zeros(_BLOCK, np.uint64)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        for q in range(len(queries)):
            _add_planes(queries, q, planes, block, end, partial)
            at = block
            while at < end:
                limit = states[q, _LIMIT]
                at = _next_group(queries, q, planes, block, end, at, limit, partial)
                found = _compare(queries, q, planes, alive, block, end, at, limit, partial)
                while found:
                    position = at + _lowest_bit(found)
                    found &= found - np.uint64(1)
                    distance = _distance(queries, q, planes, block, position, partial)
                    if distance < states[q, _LIMIT]:
                        _add(q, position, distance, k, states, histograms, positions, distances)
                at += _GROUP
    best = np.full((len(queries), k), -1, np.int64)
    nearness = np.full((len(queries), k), -1, np.int32)
    for q in range(len(queries)):
        _sort(q, states, histograms, positions, distances, best, nearness)
    return best, nearness


@njit(nogil=True, cache=True)
def count_within(
    queries: Words, planes: Words, alive: Marks, start: int, stop: int, radius: int
) -> Counts:
    """Count the codes start..stop by distance up to `radius`, shape (Q, radius + 1)."""
    limit = radius + 1
    counts = np.zeros((len(queries), limit), np.int64)
    partial = np.zeros(_BLOCK, np.uint64)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        for q in range(len(queries)):
            _add_planes(queries, q, planes, block, end, partial)
            at = block
            while at < end:
                at = _next_group(queries, q, planes, block, end, at, limit, partial)
                found = _compare(queries, q, planes, alive, block, end, at, limit, partial)
                while found:
                    position = at + _lowest_bit(found)
                    found &= found - np.uint64(1)
                    counts[q, _distance(queries, q, planes, block, position, partial)] += 1
                at += _GROUP
    return counts


@njit(nogil=True, cache=True)
def place_within(
    queries: Words,
    planes: Words,
    alive: Marks,
    start: int,
    stop: int,
    cursors: Counts,
    positions: Positions,
    distances: Distances,
) -> None:
    """Write the matches that `count_within` counted.

    `cursors`, shape (Q, radius + 1), are the output offsets by query and distance; they are
    advanced.
    """
    limit = cursors.shape[1]
    partial = np.zeros(_BLOCK, np.uint64)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        for q in range(len(queries)):
            _add_planes(queries, q, planes, block, end, partial)
            at = block
            while at < end:
                at = _next_group(queries, q, planes, block, end, at, limit, partial)
                found = _compare(queries, q, planes, alive, block, end, at, limit, partial)
                while found:
                    position = at + _lowest_bit(found)
                    found &= found - np.uint64(1)
                    distance = _distance(queries, q, planes, block, position, partial)
                    positions[cursors[q, distance]] = position
                    distances[cursors[q, distance]] = distance
                    cursors[q, distance] += 1
                at += _GROUP


@njit(nogil=True, cache=True, forceinline=True)
def _add_planes(
    queries: Words, q: int, planes: Words, start: int, stop: int, partial: Words
) -> None:
    """Compute the distances of the codes start..stop over all words except the last."""
    last, first = len(planes) - 1, np.uint64(start)
    if last % 2:
        word = queries[q, 0]
        for i in range(np.uint64(stop - start)):
            partial[i] = popcount(planes[0, first + i] ^ word)
    elif last:
        partial[: stop - start] = 0
    for w in range(last % 2, last, 2):  # two words per pass halve the traffic with `partial`
        word, other = queries[q, w], queries[q, w + 1]
        for i in range(np.uint64(stop - start)):
            ones = popcount(planes[w, first + i] ^ word)
            partial[i] += ones + popcount(planes[w + 1, first + i] ^ other)


@njit(nogil=True, cache=True, forceinline=True)
def _next_group(
    queries: Words,
    q: int,
    planes: Words,
    block: int,
    end: int,
    start: int,
    limit: int,
    partial: Words,
) -> int:
    """Return the start of the first full group with a code closer than `limit`.

    The search begins at `start`. Without such a group, return the end of the last full group.
    """
    last = len(planes) - 1
    word, bound = queries[q, last], np.uint64(limit)
    while start + _GROUP <= end:
        first, before = np.uint64(start), np.uint64(start - block)
        closer = False
        if last == 0:
            for i in range(np.uint64(_GROUP)):
                closer |= popcount(planes[0, first + i] ^ word) < bound
        else:
            for i in range(np.uint64(_GROUP)):
                closer |= partial[before + i] + popcount(planes[last, first + i] ^ word) < bound
        if closer:
            break
        start += _GROUP
    return start


@njit(nogil=True, cache=True, forceinline=True)
def _compare(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    block: int,
    end: int,
    start: int,
    limit: int,
    partial: Words,
) -> np.uint64:
    """Return a bit mask of the codes in the group at `start` that are closer than `limit`.

    Bit i is the code at start + i. The last group of a block may be shorter, or empty.
    """
    last = len(planes) - 1
    word, bound = queries[q, last], np.uint64(limit)
    first, before = np.uint64(start), np.uint64(start - block)
    found = np.uint64(0)
    if start + _GROUP <= end:  # the constant length lets the compiler unroll the loop
        for i in range(np.uint64(_GROUP)):
            distance = partial[before + i] + popcount(planes[last, first + i] ^ word)
            found |= np.uint64(distance < bound) << i
    else:
        for i in range(np.uint64(end - start)):
            distance = partial[before + i] + popcount(planes[last, first + i] ^ word)
            found |= np.uint64(distance < bound) << i
    if len(alive):
        for i in range(np.uint64(min(_GROUP, end - start))):
            found &= ~(np.uint64(alive[first + i] == 0) << i)
    return found


@njit(nogil=True, cache=True, forceinline=True)
def _distance(
    queries: Words, q: int, planes: Words, block: int, position: np.int64, partial: Words
) -> np.int64:
    last = len(planes) - 1
    ones = popcount(planes[last, position] ^ queries[q, last])
    return np.int64(partial[position - block] + ones)


@njit(nogil=True, cache=True, forceinline=True)
def _lowest_bit(word: np.uint64) -> np.int64:
    """Return the position of the lowest set bit."""
    return np.int64(popcount(~word & (word - np.uint64(1))))


@njit(nogil=True, cache=True, forceinline=True)
def _add(
    q: int,
    position: np.int64,
    distance: np.int64,
    k: int,
    states: Counts,
    histograms: Counts,
    positions: Positions,
    distances: Distances,
) -> None:
    """Add a candidate closer than the limit, and lower the limit if possible."""
    limit, closer, size = states[q, _LIMIT], states[q, _CLOSER], states[q, _SIZE]
    if size == positions.shape[1]:
        size = _prune(k, q, limit, closer, positions, distances)
    positions[q, size] = position
    distances[q, size] = distance
    histograms[q, distance] += 1
    closer += 1
    while closer >= k:
        limit -= 1
        closer -= histograms[q, limit]
    states[q, _LIMIT], states[q, _CLOSER], states[q, _SIZE] = limit, closer, size + 1


@njit(nogil=True, cache=True)
def _prune(
    k: int, q: int, limit: int, closer: int, positions: Positions, distances: Distances
) -> int:
    """Drop candidates that cannot be among the k nearest; return the number of those kept."""
    room = k - closer
    kept = 0
    for i in range(positions.shape[1]):
        tied = distances[q, i] == limit
        if distances[q, i] < limit or (tied and room > 0):
            room -= tied
            positions[q, kept] = positions[q, i]
            distances[q, kept] = distances[q, i]
            kept += 1
    return kept


@njit(nogil=True, cache=True)
def _sort(
    q: int,
    states: Counts,
    histograms: Counts,
    positions: Positions,
    distances: Distances,
    best: Positions,
    nearness: Distances,
) -> None:
    """Write the k nearest candidates of a query, by distance, then by position."""
    limit = states[q, _LIMIT]
    rank = 0
    for distance in range(limit + 1):
        items = histograms[q, distance]
        histograms[q, distance] = rank
        rank += items
    for i in range(states[q, _SIZE]):
        distance = distances[q, i]
        rank = histograms[q, distance]
        if distance <= limit and rank < best.shape[1]:
            best[q, rank] = positions[q, i]
            nearness[q, rank] = distance
            histograms[q, distance] += 1
