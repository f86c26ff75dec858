"""Compiled scan that ranks codes by the real-valued projections of a query.

The score of a code is the sum of the projections, each with the sign of its bit. This is the sum of
their magnitudes minus twice the cost of the code: the magnitudes of the bits whose sign differs
from that of the projection.

The scan approximates costs by integers. Magnitudes are replaced by 4-bit levels, stored as four bit
planes, so that the integer cost is a weighted sum of popcounts. It exceeds the cost, in units of
the step between levels, by at most a known slack. Codes whose integer cost is too large for the k
best are skipped, and the exact costs of the others are computed.

The rules of `bitprint.search.kernels` apply to these loops.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.popcount import popcount
from bitprint.utils.words import Words

PLANES = 4  # bits of a level
MISSING = np.iinfo(np.int64).max  # cost of a code that was not found
_GROUP = 64  # codes per group, which is skipped as a whole if possible
_BLOCK = 1024  # codes whose words and integer costs fit the first-level cache

Marks = NDArray[np.uint8]
Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(nogil=True, cache=True)
def scan_projected(
    signs: Words,
    levels: Words,
    magnitudes: Integers,
    steps: Floats,
    slacks: Floats,
    planes: Words,
    alive: Marks,
    start: int,
    stop: int,
    k: int,
) -> tuple[Integers, Integers]:
    """Find the codes start..stop with the k lowest costs.

    Parameters
    ----------
    signs : ndarray of uint64, shape (Q, W)
        Ones where the projection is not negative.
    levels : ndarray of uint64, shape (Q, W, PLANES)
        Planes of the levels, the lowest bit first.
    magnitudes : ndarray of int64, shape (Q, 64 W)
        Magnitudes in the order of the bits of a word, the lowest bit first.
    steps, slacks : ndarray of float64, shape (Q,)
        The integer cost of a code is at most its cost divided by the step, plus the slack.

    Returns
    -------
    positions : ndarray of int64, shape (Q, k)
        Ordered by cost, then by position; padded with -1.
    costs : ndarray of int64, shape (Q, k)
        Padded with MISSING.
    """
    positions = np.full((len(signs), k), -1, np.int64)
    costs = np.full((len(signs), k), MISSING, np.int64)
    limits = np.full(len(signs), MISSING, np.uint64)
    near = np.zeros(_BLOCK, np.uint64)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        for q in range(len(signs)):
            _add_planes(signs, levels, q, planes, block, end, near)
            at = block
            while at < end:
                at = _next_group(signs, levels, q, planes, block, end, at, limits[q], near)
                found = _compare(near, alive, block, end, at, limits[q])
                while found:
                    position = at + _lowest_bit(found)
                    found &= found - np.uint64(1)
                    if near[position - block] < limits[q]:
                        cost = _cost(signs, magnitudes, q, planes, position)
                        if cost < costs[q, 0]:
                            _replace_worst(positions, costs, q, k, position, cost)
                            limits[q] = _limit(costs[q, 0], steps[q], slacks[q])
                at += _GROUP
    for q in range(len(signs)):
        _sort(positions, costs, q, k)
    return positions, costs


@njit(nogil=True, cache=True, forceinline=True)
def _limit(cost: np.int64, step: np.float64, slack: np.float64) -> np.uint64:
    """Return a number that the integer costs of all codes with a lower cost are below."""
    if cost == MISSING:
        return np.uint64(MISSING)
    return np.uint64(cost / step + slack) + np.uint64(1)


@njit(nogil=True, cache=True, forceinline=True)
def _add_planes(
    signs: Words, levels: Words, q: int, planes: Words, start: int, stop: int, near: Words
) -> None:
    """Compute the integer costs of the codes start..stop over all words except the last two."""
    first, size = np.uint64(start), np.uint64(stop - start)
    rest = max(0, len(planes) - 2)
    if rest % 2:
        for i in range(size):
            near[i] = _weigh(planes[0, first + i] ^ signs[q, 0], levels, q, 0)
    else:
        for i in range(size):
            near[i] = 0
    for w in range(rest % 2, rest, 2):  # two words per pass halve the traffic with `near`
        for i in range(size):
            near[i] += _weigh_two(
                planes[w, first + i] ^ signs[q, w],
                planes[w + 1, first + i] ^ signs[q, w + 1],
                levels,
                q,
                w,
            )


@njit(nogil=True, cache=True, forceinline=True)
def _weigh(differing: np.uint64, levels: Words, q: int, w: int) -> np.uint64:
    """Return the sum of the levels of the bits of a word."""
    total = popcount(differing & levels[q, w, 3])
    total += total + popcount(differing & levels[q, w, 2])
    total += total + popcount(differing & levels[q, w, 1])
    return total + total + popcount(differing & levels[q, w, 0])


@njit(nogil=True, cache=True, forceinline=True)
def _weigh_two(one: np.uint64, two: np.uint64, levels: Words, q: int, w: int) -> np.uint64:
    """Return the sum of the levels of the bits of words w and w + 1."""
    v = w + 1
    total = popcount(one & levels[q, w, 3]) + popcount(two & levels[q, v, 3])
    total += total + popcount(one & levels[q, w, 2]) + popcount(two & levels[q, v, 2])
    total += total + popcount(one & levels[q, w, 1]) + popcount(two & levels[q, v, 1])
    return total + total + popcount(one & levels[q, w, 0]) + popcount(two & levels[q, v, 0])


@njit(nogil=True, cache=True, forceinline=True)
def _next_group(
    signs: Words,
    levels: Words,
    q: int,
    planes: Words,
    block: int,
    end: int,
    start: int,
    limit: np.uint64,
    near: Words,
) -> int:
    """Add the last two words, group by group, up to a group with an integer cost below `limit`.

    The search begins at `start`. Return the start of the group that was found, or else the start of
    the last group, which may be shorter or empty.
    """
    last = len(planes) - 1
    while start + _GROUP <= end:
        first, before = np.uint64(start), np.uint64(start - block)
        least = np.uint64(MISSING)
        if last == 0:
            for i in range(np.uint64(_GROUP)):
                total = _weigh(planes[0, first + i] ^ signs[q, 0], levels, q, 0)
                near[before + i] = total
                least = min(least, total)
        else:
            for i in range(np.uint64(_GROUP)):
                total = near[before + i] + _weigh_two(
                    planes[last - 1, first + i] ^ signs[q, last - 1],
                    planes[last, first + i] ^ signs[q, last],
                    levels,
                    q,
                    last - 1,
                )
                near[before + i] = total
                least = min(least, total)
        if least < limit:
            return start
        start += _GROUP
    for position in range(start, end):
        near[position - block] += _weigh(planes[last, position] ^ signs[q, last], levels, q, last)
        if last:
            near[position - block] += _weigh(
                planes[last - 1, position] ^ signs[q, last - 1], levels, q, last - 1
            )
    return start


@njit(nogil=True, cache=True, forceinline=True)
def _compare(
    near: Words, alive: Marks, block: int, end: int, start: int, limit: np.uint64
) -> np.uint64:
    """Return a bit mask of the codes in the group at `start` whose cost is below `limit`."""
    before = np.uint64(start - block)
    found = np.uint64(0)
    if start + _GROUP <= end:  # the constant length lets the compiler unroll the loop
        for i in range(np.uint64(_GROUP)):
            found |= np.uint64(near[before + i] < limit) << i
    else:
        for i in range(np.uint64(end - start)):
            found |= np.uint64(near[before + i] < limit) << i
    if len(alive):
        for i in range(np.uint64(min(_GROUP, end - start))):
            found &= ~(np.uint64(alive[np.uint64(start) + i] == 0) << i)
    return found


@njit(nogil=True, cache=True, forceinline=True)
def _lowest_bit(word: np.uint64) -> np.int64:
    """Return the position of the lowest set bit."""
    return np.int64(popcount(~word & (word - np.uint64(1))))


@njit(nogil=True, cache=True, forceinline=True)
def _cost(
    signs: Words, magnitudes: Integers, q: int, planes: Words, position: np.int64
) -> np.int64:
    """Return the cost of a code."""
    cost = np.int64(0)
    for w in range(np.uint64(len(planes))):
        differing = planes[w, position] ^ signs[q, w]
        for i in range(np.uint64(64)):
            if (differing >> i) & np.uint64(1):
                cost += magnitudes[q, np.uint64(64) * w + i]
    return cost


@njit(nogil=True, cache=True, forceinline=True)
def _replace_worst(
    positions: Integers, costs: Integers, q: int, size: int, position: int, cost: int
) -> None:
    """Replace the first entry of a heap whose first entry is the worst."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _worse(positions, costs, q, child + 1, child):
            child += 1
        if costs[q, child] < cost or (costs[q, child] == cost and positions[q, child] < position):
            break
        costs[q, at], positions[q, at] = costs[q, child], positions[q, child]
        at = child
    costs[q, at], positions[q, at] = cost, position


@njit(nogil=True, cache=True, forceinline=True)
def _worse(positions: Integers, costs: Integers, q: int, one: int, other: int) -> bool:
    """Return whether an entry has a higher cost than another one, or the same and is later."""
    if costs[q, one] == costs[q, other]:
        return positions[q, one] > positions[q, other]
    return costs[q, one] > costs[q, other]


@njit(nogil=True, cache=True)
def _sort(positions: Integers, costs: Integers, q: int, k: int) -> None:
    """Sort a heap by cost, then by position."""
    for last in range(k - 1, 0, -1):
        position, cost = positions[q, last], costs[q, last]
        positions[q, last], costs[q, last] = positions[q, 0], costs[q, 0]
        _replace_worst(positions, costs, q, last, position, cost)
