"""Compiled probes into the tables of multi-index hashing.

If a code is within distance m * r + t of a query, then one of its substrings 0..t is within
distance r of the query's substring, or one of the other substrings within r - 1; otherwise the
distances would add up to more. Step m * r + t therefore probes table t with r flipped bits, and
after it every code within that distance has been found.

A match is one integer, its key, with the distance above the bits of the position, so that sorted
keys are matches in order. Most time is spent waiting for memory. Buckets are therefore looked up
and codes compared in groups, so that memory accesses overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.search.mih_tables import SubstringTables, substring
from bitprint.utils.popcount import popcount
from bitprint.utils.words import Words

PROBE = 2  # work of a bucket lookup, which reads two places; comparing a code is 1
SHIFT = 32  # bits of the position in a key
NO_KEY = np.int64(2**63 - 1)  # padding, sorts after every key
_BUCKETS = 64  # buckets per group
_CANDIDATES = 256  # codes per group

Marks = NDArray[np.uint8]
Keys = NDArray[np.int64]
Work = NDArray[np.int64]


class _Buffer(NamedTuple):
    """Bounds of the buckets and the codes of the current group."""

    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    candidates: NDArray[np.int64]
    distances: NDArray[np.uint64]


@njit(nogil=True, cache=True)
def probe_nearest(
    queries: Words,
    planes: Words,
    alive: Marks,
    count: int,
    tables: SubstringTables,
    k: int,
    budget: int,
) -> tuple[Keys, Work]:
    """Find the k nearest of `count` codes.

    Returns the sorted keys, shape (Q, k), and the work, shape (Q,). A query whose work would exceed
    the budget is stopped, and its keys are invalid.
    """
    keys = np.full((len(queries), k), NO_KEY)
    work = np.zeros(len(queries), np.int64)
    found, buffer = np.empty(_CANDIDATES, np.int64), _new_buffer()
    for q in range(len(queries)):
        found, size = _scan_tail(queries, q, planes, alive, count, tables, NO_KEY, found, 0, buffer)
        _update_heap(keys, q, found, size)
        for step in range(_steps(tables)):
            limit = keys[q, 0]
            found, size, work[q] = _step(
                queries, q, planes, alive, tables, step, limit, found, 0, work[q], budget, buffer
            )
            _update_heap(keys, q, found, size)
            # All codes at the k-th distance must be found to determine which come first.
            if work[q] > budget or keys[q, 0] >> SHIFT <= step:
                break
        keys[q].sort()
    return keys, work


@njit(nogil=True, cache=True)
def probe_within(
    queries: Words,
    planes: Words,
    alive: Marks,
    count: int,
    tables: SubstringTables,
    radius: int,
    budget: int,
) -> tuple[Keys, NDArray[np.int64], Work]:
    """Find all of `count` codes within the radius.

    Returns the keys of all queries, their bounds, shape (Q + 1,), and the work, shape (Q,). A query
    whose work would exceed the budget is stopped, and its keys are invalid.
    """
    limit = np.int64(radius + 1) << np.int64(SHIFT)
    ends = np.zeros(len(queries) + 1, np.int64)
    work = np.zeros(len(queries), np.int64)
    found, buffer, size = np.empty(_CANDIDATES, np.int64), _new_buffer(), 0
    for q in range(len(queries)):
        found, size = _scan_tail(
            queries, q, planes, alive, count, tables, limit, found, size, buffer
        )
        for step in range(min(radius + 1, _steps(tables))):
            found, size, work[q] = _step(
                queries, q, planes, alive, tables, step, limit, found, size, work[q], budget, buffer
            )
            if work[q] > budget:
                break
        found[ends[q] : size].sort()
        ends[q + 1] = size
    return found[:size], ends, work


@njit(nogil=True, cache=True)
def _steps(tables: SubstringTables) -> int:
    """Return the number of steps that find every code."""
    longest = np.max(np.diff(tables.starts))
    return int(len(tables.positions) * (longest + 1))


@njit(nogil=True, cache=True)
def _step(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    tables: SubstringTables,
    step: int,
    limit: np.int64,
    found: Keys,
    size: int,
    work: int,
    budget: int,
    buffer: _Buffer,
) -> tuple[Keys, int, int]:
    """Probe one table with one number of flipped bits, and append new keys below the limit."""
    r, t = step // len(tables.positions), step % len(tables.positions)
    buckets = _binomial(tables.starts[t + 1] - tables.starts[t], r)
    work += PROBE * buckets
    flips = (np.uint64(1) << np.uint64(r)) - np.uint64(1)
    for done in range(0, buckets, _BUCKETS):
        if work > budget:
            break
        group = min(_BUCKETS, buckets - done)
        flips, codes = _look_up(queries, q, tables, t, flips, group, buffer)
        work += codes
        if work <= budget:
            found, size = _read_buckets(
                queries, q, planes, alive, tables, t, r, group, limit, found, size, buffer
            )
    return found, size, work


@njit(nogil=True, cache=True)
def _look_up(
    queries: Words,
    q: int,
    tables: SubstringTables,
    t: int,
    flips: np.uint64,
    buckets: int,
    buffer: _Buffer,
) -> tuple[np.uint64, int]:
    """Store the bounds of a group of buckets; return the next flips and the number of codes."""
    own = substring(queries.T, q, tables.starts[t], tables.starts[t + 1])
    base, offsets = np.uint64(tables.bases[t]), tables.offsets
    firsts, lasts = buffer.firsts, buffer.lasts
    codes = 0
    for b in range(np.uint64(buckets)):
        bucket = base + (own ^ flips)
        firsts[b], lasts[b] = offsets[bucket], offsets[bucket + np.uint64(1)]
        codes += lasts[b] - firsts[b]
        flips = _next(flips)
    return flips, codes


@njit(nogil=True, cache=True)
def _read_buckets(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    tables: SubstringTables,
    t: int,
    r: int,
    buckets: int,
    limit: np.int64,
    found: Keys,
    size: int,
    buffer: _Buffer,
) -> tuple[Keys, int]:
    """Compare the codes of the buckets that were looked up."""
    firsts, lasts, candidates = buffer.firsts, buffer.lasts, buffer.candidates
    positions, row = tables.positions, np.uint64(t)
    filled = 0
    for b in range(buckets):
        first = firsts[b]
        while first < lasts[b]:
            copied = min(lasts[b] - first, _CANDIDATES - filled)
            begin, end = np.uint64(first), np.uint64(filled)
            for i in range(np.uint64(copied)):
                candidates[end + i] = positions[row, begin + i]
            first += copied
            filled += copied
            if filled == _CANDIDATES:
                found, size = _compare(
                    queries, q, planes, alive, tables, t, r, filled, limit, found, size, buffer
                )
                filled = 0
    return _compare(queries, q, planes, alive, tables, t, r, filled, limit, found, size, buffer)


@njit(nogil=True, cache=True)
def _scan_tail(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    count: int,
    tables: SubstringTables,
    limit: np.int64,
    found: Keys,
    size: int,
    buffer: _Buffer,
) -> tuple[Keys, int]:
    """Compare the codes that are not in the tables; for step 0, `_is_new` is always true."""
    for first in range(tables.positions.shape[1], count, _CANDIDATES):
        filled = min(_CANDIDATES, count - first)
        for i in range(filled):
            buffer.candidates[i] = first + i
        found, size = _compare(
            queries, q, planes, alive, tables, 0, 0, filled, limit, found, size, buffer
        )
    return found, size


@njit(nogil=True, cache=True)
def _compare(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    tables: SubstringTables,
    t: int,
    r: int,
    filled: int,
    limit: np.int64,
    found: Keys,
    size: int,
    buffer: _Buffer,
) -> tuple[Keys, int]:
    """Append the keys of live candidates below the limit that no earlier step has found."""
    candidates, distances = buffer.candidates, buffer.distances
    distances[:filled] = 0
    for w in range(len(planes)):
        word = queries[q, w]
        for i in range(np.uint64(filled)):
            distances[i] += popcount(planes[w, np.uint64(candidates[i])] ^ word)
    if size + filled > len(found):
        found = np.concatenate((found, np.empty(len(found) + filled, np.int64)))
    for i in range(np.uint64(filled)):
        position = candidates[i]
        key = np.int64(distances[i]) << SHIFT | position
        if (
            key < limit
            and (len(alive) == 0 or alive[position] != 0)
            and _is_new(queries, q, planes, position, tables.starts, t, r)
        ):
            found[size] = key
            size += 1
    return found, size


@njit(nogil=True, cache=True)
def _is_new(
    queries: Words, q: int, planes: Words, position: int, starts: NDArray[np.int64], t: int, r: int
) -> bool:
    """Return whether no step before table t with r flipped bits has found the code."""
    for other in range(len(starts) - 1):
        start, stop = starts[other], starts[other + 1]
        flips = substring(planes, position, start, stop) ^ substring(queries.T, q, start, stop)
        ones = np.int64(popcount(flips))
        if ones < r or (ones == r and other < t):
            return False
    return True


@njit(nogil=True, cache=True)
def _update_heap(keys: Keys, q: int, found: Keys, size: int) -> None:
    """Replace larger keys in row q, which is a heap with the largest key first."""
    k = keys.shape[1]
    for key in found[:size]:
        if key >= keys[q, 0]:
            continue
        at, child = 0, 1
        while child < k:
            if child + 1 < k and keys[q, child + 1] > keys[q, child]:
                child += 1
            if keys[q, child] <= key:
                break
            keys[q, at] = keys[q, child]
            at, child = child, 2 * child + 1
        keys[q, at] = key


@njit(nogil=True, cache=True, forceinline=True)
def _next(flips: np.uint64) -> np.uint64:
    """Return the next larger word with the same number of ones."""
    lowest = flips & (~flips + np.uint64(1))
    carried = flips + lowest
    trailing = popcount(lowest - np.uint64(1))
    return np.uint64(carried | (((flips ^ carried) >> np.uint64(2)) >> trailing))


@njit(nogil=True, cache=True)
def _binomial(n: int, r: int) -> int:
    ways = 1
    for i in range(r):
        ways = ways * (n - i) // (i + 1)
    return ways


@njit(nogil=True, cache=True)
def _new_buffer() -> _Buffer:
    return _Buffer(
        np.empty(_BUCKETS, np.int64),
        np.empty(_BUCKETS, np.int64),
        np.empty(_CANDIDATES, np.int64),
        np.empty(_CANDIDATES, np.uint64),
    )
