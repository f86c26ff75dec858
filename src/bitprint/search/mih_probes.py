"""Compiled probes into the tables of multi-index hashing.

If a code is at most m * r + t away from a query, then one of its substrings 0..t is at most r
away from the query's, or one of the others at most r - 1: else the distances would add up to
more. So the tables are probed with more and more bits flipped, one table after the other, and
after table t with r bits flipped, step m * r + t, every code within that distance was met.

A code that was met is one number, its key: the distance before the position. Keys are ordered as
matches are. Most time goes by waiting for memory, hence buckets are looked up and codes compared
many at once: then the waits overlap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.popcount import popcount
from bitprint.search.mih_tables import Tables, substring
from bitprint.words import Words

PROBE = 2  # a bucket is looked up in two places, a code in one: the unit of work
SHIFT = 32  # bits of a key that hold the position
NEVER = np.int64(2**63 - 1)  # after every key
_BUCKETS = 64  # looked up at once
_CANDIDATES = 256  # compared at once

Marks = NDArray[np.uint8]
Keys = NDArray[np.int64]
Work = NDArray[np.int64]


class _Buffer(NamedTuple):
    """Buckets and codes that are being looked at."""

    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    candidates: NDArray[np.int64]
    distances: NDArray[np.uint64]


@njit(nogil=True, cache=True)
def probe_nearest(
    queries: Words, planes: Words, alive: Marks, count: int, tables: Tables, k: int, budget: int
) -> tuple[Keys, Work]:
    """Find the k nearest of `count` codes: their keys in order, (Q, k), and the work done, (Q,).

    A query that would take more work than the budget is given up; its keys mean nothing.
    """
    keys = np.full((len(queries), k), NEVER)
    work = np.zeros(len(queries), np.int64)
    met, buffer = np.empty(_CANDIDATES, np.int64), _new_buffer()
    for q in range(len(queries)):
        met, held = _meet_tail(queries, q, planes, alive, count, tables, NEVER, met, 0, buffer)
        _keep(keys, q, met, held)
        for step in range(_steps(tables)):
            met, held, work[q] = _step(
                queries, q, planes, alive, tables, step, keys[q, 0], met, 0, work[q], budget, buffer
            )
            _keep(keys, q, met, held)
            # Only with every code at the k-th distance met is it known which of them come first.
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
    tables: Tables,
    radius: int,
    budget: int,
) -> tuple[Keys, NDArray[np.int64], Work]:
    """Find every one of `count` codes within the radius.

    Returns the keys of all queries, where those of each begin and end, (Q + 1,), and the work
    done, (Q,). A query that would take more work than the budget is given up; its keys mean
    nothing.
    """
    limit = np.int64(radius + 1) << np.int64(SHIFT)
    ends = np.zeros(len(queries) + 1, np.int64)
    work = np.zeros(len(queries), np.int64)
    met, buffer, held = np.empty(_CANDIDATES, np.int64), _new_buffer(), 0
    for q in range(len(queries)):
        met, held = _meet_tail(queries, q, planes, alive, count, tables, limit, met, held, buffer)
        for step in range(min(radius + 1, _steps(tables))):
            met, held, work[q] = _step(
                queries, q, planes, alive, tables, step, limit, met, held, work[q], budget, buffer
            )
            if work[q] > budget:
                break
        met[ends[q] : held].sort()
        ends[q + 1] = held
    return met[:held], ends, work


@njit(nogil=True, cache=True)
def _steps(tables: Tables) -> int:
    """Count the steps after which every code was met."""
    longest = np.max(np.diff(tables.starts))
    return int(len(tables.positions) * (longest + 1))


@njit(nogil=True, cache=True)
def _step(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    tables: Tables,
    step: int,
    limit: np.int64,
    met: Keys,
    held: int,
    work: int,
    budget: int,
    buffer: _Buffer,
) -> tuple[Keys, int, int]:
    """Probe one table with one number of flipped bits; add keys below the limit to those met."""
    r, t = step // len(tables.positions), step % len(tables.positions)
    buckets = _choose(tables.starts[t + 1] - tables.starts[t], r)
    work += PROBE * buckets
    flips = (np.uint64(1) << np.uint64(r)) - np.uint64(1)
    for done in range(0, buckets, _BUCKETS):
        if work > budget:
            break
        some = min(_BUCKETS, buckets - done)
        flips, codes = _look_up(queries, q, tables, t, flips, some, buffer)
        work += codes
        if work <= budget:
            met, held = _meet(
                queries, q, planes, alive, tables, t, r, some, limit, met, held, buffer
            )
    return met, held, work


@njit(nogil=True, cache=True)
def _look_up(
    queries: Words, q: int, tables: Tables, t: int, flips: np.uint64, buckets: int, buffer: _Buffer
) -> tuple[np.uint64, int]:
    """Note where some buckets begin and end; say which flips are next, and how many codes it is."""
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
def _meet(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    tables: Tables,
    t: int,
    r: int,
    buckets: int,
    limit: np.int64,
    met: Keys,
    held: int,
    buffer: _Buffer,
) -> tuple[Keys, int]:
    """Go through the codes of the buckets that were looked up."""
    firsts, lasts, candidates = buffer.firsts, buffer.lasts, buffer.candidates
    positions, row = tables.positions, np.uint64(t)
    filled = 0
    for b in range(buckets):
        first = firsts[b]
        while first < lasts[b]:
            some = min(lasts[b] - first, _CANDIDATES - filled)
            begin, end = np.uint64(first), np.uint64(filled)
            for i in range(np.uint64(some)):
                candidates[end + i] = positions[row, begin + i]
            first += some
            filled += some
            if filled == _CANDIDATES:
                met, held = _sift(
                    queries, q, planes, alive, tables, t, r, filled, limit, met, held, buffer
                )
                filled = 0
    return _sift(queries, q, planes, alive, tables, t, r, filled, limit, met, held, buffer)


@njit(nogil=True, cache=True)
def _meet_tail(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    count: int,
    tables: Tables,
    limit: np.int64,
    met: Keys,
    held: int,
    buffer: _Buffer,
) -> tuple[Keys, int]:
    """Go through the codes that are not in the tables; step 0 takes every code for a new one."""
    for first in range(tables.positions.shape[1], count, _CANDIDATES):
        filled = min(_CANDIDATES, count - first)
        for i in range(filled):
            buffer.candidates[i] = first + i
        met, held = _sift(queries, q, planes, alive, tables, 0, 0, filled, limit, met, held, buffer)
    return met, held


@njit(nogil=True, cache=True)
def _sift(
    queries: Words,
    q: int,
    planes: Words,
    alive: Marks,
    tables: Tables,
    t: int,
    r: int,
    filled: int,
    limit: np.int64,
    met: Keys,
    held: int,
    buffer: _Buffer,
) -> tuple[Keys, int]:
    """Add the keys of those candidates that are below the limit, alive, and met for once."""
    candidates, distances = buffer.candidates, buffer.distances
    distances[:filled] = 0
    for w in range(len(planes)):
        word = queries[q, w]
        for i in range(np.uint64(filled)):
            distances[i] += popcount(planes[w, np.uint64(candidates[i])] ^ word)
    if held + filled > len(met):
        met = np.concatenate((met, np.empty(len(met) + filled, np.int64)))
    for i in range(np.uint64(filled)):
        position = candidates[i]
        key = np.int64(distances[i]) << SHIFT | position
        if (
            key < limit
            and (len(alive) == 0 or alive[position] != 0)
            and _is_new(queries, q, planes, position, tables.starts, t, r)
        ):
            met[held] = key
            held += 1
    return met, held


@njit(nogil=True, cache=True)
def _is_new(
    queries: Words, q: int, planes: Words, position: int, starts: NDArray[np.int64], t: int, r: int
) -> bool:
    """Whether no step before that of table t with r bits flipped met the code."""
    for other in range(len(starts) - 1):
        start, stop = starts[other], starts[other + 1]
        flips = substring(planes, position, start, stop) ^ substring(queries.T, q, start, stop)
        ones = np.int64(popcount(flips))
        if ones < r or (ones == r and other < t):
            return False
    return True


@njit(nogil=True, cache=True)
def _keep(keys: Keys, q: int, met: Keys, held: int) -> None:
    """Let the keys met replace larger ones in row q: a heap, the largest first."""
    k = keys.shape[1]
    for key in met[:held]:
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
    """Return the next larger word with as many ones."""
    lowest = flips & (~flips + np.uint64(1))
    carried = flips + lowest
    trailing = popcount(lowest - np.uint64(1))
    return np.uint64(carried | (((flips ^ carried) >> np.uint64(2)) >> trailing))


@njit(nogil=True, cache=True)
def _choose(n: int, r: int) -> int:
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
