"""Compiled scans over a database of codes: they release the GIL, and count instead of sorting.

A scan takes blocks of the database that stay in the first-level cache, and lets all queries take
turns on each. Within a block it looks at groups of 64 codes: in nearly all of them no code is
close enough for the query, which costs a vectorised xor, popcount and comparison.

Two habits keep these loops fast. Rows of arrays are not sliced but indexed, because a slice costs
a reference count; and an index with an offset is unsigned, because a signed one might count from
the end, and then the loop does not vectorise.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.popcount import popcount
from bitprint.words import Words

_GROUP = 64  # codes compared at once: the outcome fits one word
_BLOCK = 1024  # codes whose words and partial distances stay in the first-level cache
_LIMIT, _CLOSER, _HELD = 0, 1, 2  # a query's state in the search for its nearest codes

Marks = NDArray[np.uint8]
Positions = NDArray[np.int64]
Distances = NDArray[np.int32]
Counts = NDArray[np.int64]


@njit(nogil=True, cache=True)
def scan_nearest(
    queries: Words, planes: Words, alive: Marks, start: int, stop: int, k: int
) -> tuple[Positions, Distances]:
    """Find the k nearest of the codes start..stop: positions and distances, (Q, k), or -1.

    A query holds candidates in the order of their positions, and accepts only what is closer than
    its k-th nearest so far: a later tie never wins. The limit follows from a histogram.
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
                at = _skip(queries, q, planes, block, end, at, limit, partial)
                found = _compare(queries, q, planes, alive, block, end, at, limit, partial)
                while found:
                    position = at + _lowest(found)
                    found &= found - np.uint64(1)
                    distance = _distance(queries, q, planes, block, position, partial)
                    if distance < states[q, _LIMIT]:
                        _hold(q, position, distance, k, states, histograms, positions, distances)
                at += _GROUP
    best = np.full((len(queries), k), -1, np.int64)
    nearness = np.full((len(queries), k), -1, np.int32)
    for q in range(len(queries)):
        _rank(q, states, histograms, positions, distances, best, nearness)
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
                at = _skip(queries, q, planes, block, end, at, limit, partial)
                found = _compare(queries, q, planes, alive, block, end, at, limit, partial)
                while found:
                    position = at + _lowest(found)
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
    """Write what `count_within` counted to where `cursors`, (Q, radius + 1), point; move them."""
    limit = cursors.shape[1]
    partial = np.zeros(_BLOCK, np.uint64)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        for q in range(len(queries)):
            _add_planes(queries, q, planes, block, end, partial)
            at = block
            while at < end:
                at = _skip(queries, q, planes, block, end, at, limit, partial)
                found = _compare(queries, q, planes, alive, block, end, at, limit, partial)
                while found:
                    position = at + _lowest(found)
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
    """Distances of the codes start..stop over all words but the last: none if there is one."""
    last, first = len(planes) - 1, np.uint64(start)
    if last % 2:
        word = queries[q, 0]
        for i in range(np.uint64(stop - start)):
            partial[i] = popcount(planes[0, first + i] ^ word)
    elif last:
        partial[: stop - start] = 0
    for w in range(last % 2, last, 2):  # two at a time: half the traffic with `partial`
        word, other = queries[q, w], queries[q, w + 1]
        for i in range(np.uint64(stop - start)):
            ones = popcount(planes[w, first + i] ^ word)
            partial[i] += ones + popcount(planes[w + 1, first + i] ^ other)


@njit(nogil=True, cache=True, forceinline=True)
def _skip(
    queries: Words,
    q: int,
    planes: Words,
    block: int,
    end: int,
    start: int,
    limit: int,
    partial: Words,
) -> int:
    """Where, from `start` on, the first whole group begins that has a code closer than `limit`.

    If there is none, where the whole groups end.
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
    """Which codes of the group at `start` are closer than `limit`: bit i stands for start + i.

    The last group of a block may be short, or empty.
    """
    last = len(planes) - 1
    word, bound = queries[q, last], np.uint64(limit)
    first, before = np.uint64(start), np.uint64(start - block)
    found = np.uint64(0)
    if start + _GROUP <= end:  # a constant number, so that the loop is unrolled
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
def _lowest(word: np.uint64) -> np.int64:
    """Position of the lowest bit that is set."""
    return np.int64(popcount(~word & (word - np.uint64(1))))


@njit(nogil=True, cache=True, forceinline=True)
def _hold(
    q: int,
    position: np.int64,
    distance: np.int64,
    k: int,
    states: Counts,
    histograms: Counts,
    positions: Positions,
    distances: Distances,
) -> None:
    """Add a code closer than the limit to a query's candidates, and lower the limit if it may."""
    limit, closer, held = states[q, _LIMIT], states[q, _CLOSER], states[q, _HELD]
    if held == positions.shape[1]:
        held = _drop(k, q, limit, closer, positions, distances)
    positions[q, held] = position
    distances[q, held] = distance
    histograms[q, distance] += 1
    closer += 1
    while closer >= k:
        limit -= 1
        closer -= histograms[q, limit]
    states[q, _LIMIT], states[q, _CLOSER], states[q, _HELD] = limit, closer, held + 1


@njit(nogil=True, cache=True)
def _drop(
    k: int, q: int, limit: int, closer: int, positions: Positions, distances: Distances
) -> int:
    """Keep the candidates closer than `limit` and, of those at it, the first; say how many."""
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
def _rank(
    q: int,
    states: Counts,
    histograms: Counts,
    positions: Positions,
    distances: Distances,
    best: Positions,
    nearness: Distances,
) -> None:
    """Order a query's candidates by distance, those of one distance as they were found."""
    limit = states[q, _LIMIT]
    rank = 0
    for distance in range(limit + 1):
        items = histograms[q, distance]
        histograms[q, distance] = rank
        rank += items
    for i in range(states[q, _HELD]):
        distance = distances[q, i]
        rank = histograms[q, distance]
        if distance <= limit and rank < best.shape[1]:
            best[q, rank] = positions[q, i]
            nearness[q, rank] = distance
            histograms[q, distance] += 1
