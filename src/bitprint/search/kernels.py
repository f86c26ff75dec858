"""Compiled scans over a database of codes, with counting sort and without the GIL.

A scan processes the database in blocks that fit the first-level cache, and compares each block with
all queries, in groups of 64 codes. In nearly all groups no code is close enough, and the group is
skipped.

A match is one integer, its key, with the distance above the bits of the position.

Two rules keep these loops fast. Rows of arrays are indexed, not sliced, because a slice costs a
reference count. Indices with an offset are unsigned, because signed indices may be negative, which
prevents vectorization.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.search.groups import GROUP, any_closer, find_closer, nonzero
from bitprint.utils.popcount import popcount
from bitprint.utils.words import Words

POSITION_BITS = 40  # of a key
_POSITION = (1 << POSITION_BITS) - 1
_DISTANCE_BITS = 11  # of a key
_QUERY_SHIFT = POSITION_BITS + _DISTANCE_BITS  # of the query number in a key of `collect_within`
MOST_QUERIES = 1 << 63 - _QUERY_SHIFT
"""Maximum number of queries of `collect_within`."""

_BLOCK = 2048  # words of each block, which fit the first-level cache
_CANDIDATES = 8  # per neighbor; with fewer, candidates are dropped more often
_MEAN, _SPREAD = 32, 14  # of the distances of uniform words: mean, 3.5 standard deviations
_CLOSER_CODE = 2  # result of `any_closer`
_PASSES, _GROUPS = 8, 64  # at most 1 group in 8 passes in vain; the first ones do not count
_LIMIT, _CLOSER, _FILLED = 0, 1, 2  # columns of the state of a query in `scan_nearest`

Marks = NDArray[np.uint8]
Positions = NDArray[np.int64]
Distances = NDArray[np.int32]
Counts = NDArray[np.int64]
Keys = NDArray[np.int64]


@njit(nogil=True, cache=True)
def scan_nearest(
    queries: Words,
    planes: Words,
    alive: Marks,
    start: int,
    stop: int,
    k: int,
    positions: Positions,
    distances: Distances,
) -> None:
    """Find the k nearest of the codes start..stop.

    Writes positions and distances, shape (Q, k), padded with -1. The candidates of a query are
    stored in the order of their positions. A group is searched for codes closer than the k-th
    nearest candidate, because later ties lose. A histogram of distances gives this limit.
    """
    farthest = 64 * len(planes)
    # Little of this memory is used, unless many codes are closer than all earlier ones.
    capacity = min(_CANDIDATES * k, stop - start) + GROUP
    candidates = np.empty((len(queries), capacity), np.int64)
    histograms = np.zeros((len(queries), farthest + 2), np.int64)
    states = np.zeros((len(queries), 3), np.int64)
    states[:, _LIMIT] = farthest + 1
    group = np.empty(GROUP, np.uint64)
    passed = 0
    size = _block_size(queries, planes, stop - start)
    for block in range(start, stop, size):
        end = min(block + size, stop)
        for q in range(len(queries)):
            limit, closer, filled = states[q, _LIMIT], states[q, _CLOSER], states[q, _FILLED]
            prefix = _prefix(limit, len(planes))
            at = block
            while at < end:
                at, level = _next_group(queries, q, planes, at, end, limit, prefix)
                if level < _CLOSER_CODE:
                    passed += 1
                    prefix = _less_often(queries, planes, at - start, passed, prefix)
                    at += GROUP
                    continue
                found = _matches(queries, q, planes, alive, at, end, limit, group)
                if filled + GROUP > capacity:
                    filled = _prune(q, limit, k - closer, filled, candidates)
                closer += np.int64(popcount(found))
                while found:
                    i = _lowest_bit(found)
                    found &= found - np.uint64(1)
                    distance = np.int64(group[i])
                    candidates[q, filled] = distance << POSITION_BITS | (at + np.int64(i))
                    histograms[q, distance] += 1
                    filled += 1
                if closer >= k:
                    while closer >= k:
                        limit -= 1
                        closer -= histograms[q, limit]
                    prefix = _prefix(limit, len(planes))
                at += GROUP
            states[q, _LIMIT], states[q, _CLOSER], states[q, _FILLED] = limit, closer, filled
    for q in range(len(queries)):
        _sort(q, states, histograms, candidates, positions, distances)


@njit(nogil=True, cache=True)
def collect_within(
    queries: Words, planes: Words, alive: Marks, start: int, stop: int, radius: int
) -> tuple[Keys, Counts]:
    """Find the codes start..stop within the radius, and count them by distance.

    Returns keys, which also contain the number of the query, and counts, shape (Q, radius + 1). The
    keys of a query are in the order of positions. There may be at most `MOST_QUERIES`.
    """
    counts = np.zeros((len(queries), radius + 1), np.int64)
    keys, filled = np.empty(4 * GROUP, np.int64), 0
    group = np.empty(GROUP, np.uint64)
    prefix, passed = _prefix(radius + 1, len(planes)), 0
    size = _block_size(queries, planes, stop - start)
    for block in range(start, stop, size):
        end = min(block + size, stop)
        for q in range(len(queries)):
            query = np.int64(q) << _QUERY_SHIFT
            at = block
            while at < end:
                at, level = _next_group(queries, q, planes, at, end, radius + 1, prefix)
                if level < _CLOSER_CODE:
                    passed += 1
                    prefix = _less_often(queries, planes, at - start, passed, prefix)
                    at += GROUP
                    continue
                found = _matches(queries, q, planes, alive, at, end, radius + 1, group)
                if filled + GROUP > len(keys):
                    keys = _enlarged(keys, filled)
                while found:
                    i = _lowest_bit(found)
                    found &= found - np.uint64(1)
                    distance = np.int64(group[i])
                    keys[filled] = query | distance << POSITION_BITS | (at + np.int64(i))
                    counts[q, distance] += 1
                    filled += 1
                at += GROUP
    return keys[:filled], counts


@njit(nogil=True, cache=True)
def place_within(keys: Keys, cursors: Counts, positions: Positions, distances: Distances) -> None:
    """Write the matches of keys to their places.

    `cursors`, shape (Q, radius + 1), are the output offsets by query and distance; they are
    advanced.
    """
    for key in keys:
        distance = (key >> POSITION_BITS) & ((1 << _DISTANCE_BITS) - 1)
        query = key >> _QUERY_SHIFT
        place = cursors[query, distance]
        positions[place] = key & _POSITION
        distances[place] = distance
        cursors[query, distance] = place + 1


@njit(nogil=True, cache=True)
def scan_within(
    queries: Words, planes: Words, alive: Marks, start: int, stop: int, radius: int
) -> tuple[Counts, Positions, Distances]:
    """Find the codes start..stop within the radius, ordered by query, distance and position.

    Returns the offsets of the queries, shape (Q + 1,), the positions and the distances.
    """
    keys, cursors = collect_within(queries, planes, alive, start, stop, radius)
    offsets = np.empty(len(queries) + 1, np.int64)
    place = 0
    for q in range(len(queries)):
        offsets[q] = place
        for distance in range(radius + 1):
            count = cursors[q, distance]
            cursors[q, distance] = place
            place += count
    offsets[len(queries)] = place
    positions = np.empty(place, np.int64)
    distances = np.empty(place, np.int32)
    place_within(keys, cursors, positions, distances)
    return offsets, positions, distances


@njit(nogil=True, cache=True, forceinline=True)
def _block_size(queries: Words, planes: Words, count: int) -> int:
    """Return the number of codes of a block, a multiple of the group size or all codes."""
    if len(queries) == 1:
        return max(1, count)
    return int(max(GROUP, _BLOCK // len(planes) // GROUP * GROUP))


@njit(nogil=True, cache=True, forceinline=True)
def _prefix(limit: int, words: int) -> int:
    """Return the number of words that are compared first, see `any_closer`.

    Of uniformly random codes, 64 are hardly ever closer than `limit` by these words alone. Data
    with other distributions need more time, but give the same results.
    """
    for prefix in range(1, words // 2 + 1):
        if _MEAN * prefix - _SPREAD * np.sqrt(prefix) >= limit:
            return prefix
    return words


@njit(nogil=True, cache=True, forceinline=True)
def _next_group(
    queries: Words, q: int, planes: Words, start: int, end: int, limit: int, prefix: int
) -> tuple[int, np.int64]:
    """Return the start of the first full group that `any_closer` does not skip, and its result.

    The search begins at `start`. Without such a group, return the end of the last full group, and
    the result for a group with a closer code.
    """
    while start + GROUP <= end:
        level = any_closer(queries, q, planes, start, limit, prefix)
        if level:
            return start, np.int64(level)
        start += GROUP
    return start, np.int64(_CLOSER_CODE)


@njit(nogil=True, cache=True, forceinline=True)
def _less_often(queries: Words, planes: Words, codes: int, passed: int, prefix: int) -> int:
    """Return the prefix, or all words if many groups passed a prefix in vain.

    The other words of these groups are read at scattered places, which is slow if the database is
    read from memory for one query.
    """
    if len(queries) == 1 and _PASSES * passed > codes // GROUP + _GROUPS:
        return len(planes)
    return prefix


@njit(nogil=True, cache=True, forceinline=True)
def _matches(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    start: int,
    end: int,
    limit: int,
    group: Words,
) -> np.uint64:
    """Return a bit mask of the live codes in the group at `start` that are closer than `limit`.

    Bit i is the code at start + i. The last group of a block may be shorter, or empty. Writes the
    distances to `group`.
    """
    found = np.uint64(0)
    if start + GROUP <= end:
        found = np.uint64(find_closer(queries, q, planes, start, limit, group))
        if len(alive):
            found &= nonzero(alive, start)
        return found
    for i in range(np.uint64(end - start)):
        group[i] = 0
        for w in range(len(planes)):
            group[i] += popcount(planes[w, np.uint64(start) + i] ^ queries[q, w])
        live = len(alive) == 0 or alive[np.uint64(start) + i] != 0
        found |= np.uint64(live and group[i] < np.uint64(limit)) << i
    return found


@njit(nogil=True, cache=True, forceinline=True)
def _lowest_bit(word: np.uint64) -> np.uint64:
    """Return the position of the lowest set bit."""
    return np.uint64(popcount(~word & (word - np.uint64(1))))


@njit(nogil=True, cache=True)
def _enlarged(keys: Keys, filled: int) -> Keys:
    """Return a copy of an array of twice the length, with the same first elements."""
    larger = np.empty(2 * len(keys), np.int64)
    larger[:filled] = keys[:filled]
    return larger


@njit(nogil=True, cache=True)
def _prune(q: int, limit: int, room: int, filled: int, candidates: Keys) -> int:
    """Drop candidates that cannot be among the nearest; return the number of those kept.

    `room` is the number of candidates at the limit that are kept.
    """
    kept = 0
    for i in range(filled):
        key = candidates[q, i]
        distance = key >> POSITION_BITS
        chosen = (distance == limit) & (room > 0)
        room -= chosen
        candidates[q, kept] = key
        kept += (distance < limit) | chosen
    return kept


@njit(nogil=True, cache=True)
def _sort(
    q: int,
    states: Counts,
    histograms: Counts,
    candidates: Keys,
    positions: Positions,
    distances: Distances,
) -> None:
    """Write the k nearest candidates of a query, by distance, then by position."""
    limit, k = states[q, _LIMIT], positions.shape[1]
    rank = 0
    for distance in range(limit + 1):
        items = histograms[q, distance]
        histograms[q, distance] = rank
        rank += items
    for i in range(min(rank, k), k):
        positions[q, i] = distances[q, i] = -1
    for i in range(states[q, _FILLED]):
        distance = candidates[q, i] >> POSITION_BITS
        if distance > limit:
            continue
        rank = histograms[q, distance]
        if rank < k:
            positions[q, rank] = candidates[q, i] & _POSITION
            distances[q, rank] = distance
            histograms[q, distance] = rank + 1
