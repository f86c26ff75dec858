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
_GROUP = 64  # codes per group, which is skipped as a whole if possible
_BLOCK = 1024  # codes whose words and integer costs fit the first-level cache
_UNLIMITED = 1 << 62

Marks = NDArray[np.uint8]
Positions = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(nogil=True, cache=True)
def scan_projected(
    signs: Words,
    levels: Words,
    magnitudes: Floats,
    steps: Floats,
    slacks: Floats,
    planes: Words,
    alive: Marks,
    start: int,
    stop: int,
    k: int,
) -> tuple[Positions, Floats]:
    """Find the codes start..stop with the k lowest costs.

    Parameters
    ----------
    signs : ndarray of uint64, shape (Q, W)
        Ones where the projection is not negative.
    levels : ndarray of uint64, shape (Q, W, PLANES)
        Planes of the levels, the lowest bit first.
    magnitudes : ndarray of float64, shape (Q, 64 W)
        Magnitudes in the order of the bits of a word, the lowest bit first.
    steps, slacks : ndarray of float64, shape (Q,)
        The integer cost of a code is at most its cost divided by the step, plus the slack.

    Returns
    -------
    positions : ndarray of int64, shape (Q, k)
        Ordered by cost, then by position; padded with -1.
    costs : ndarray of float64, shape (Q, k)
        Padded with infinity.
    """
    positions = np.full((len(signs), k), -1, np.int64)
    costs = np.full((len(signs), k), np.inf)
    limits = np.full(len(signs), _UNLIMITED, np.uint64)
    near = np.zeros(_BLOCK, np.uint64)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        for q in range(len(signs)):
            _add_planes(signs, levels, q, planes, block, end, near)
            at = block
            while at < end:
                at = _next_group(near, block, end, at, limits[q])
                found = _compare(near, alive, block, end, at, limits[q])
                while found:
                    position = at + _lowest_bit(found)
                    found &= found - np.uint64(1)
                    if near[position - block] >= limits[q]:
                        continue
                    cost = _cost(signs, magnitudes, q, planes, position)
                    if cost < costs[q, 0]:
                        _replace_worst(positions, costs, q, k, position, cost)
                        if costs[q, 0] < np.inf:
                            limits[q] = np.uint64(costs[q, 0] / steps[q] + slacks[q]) + np.uint64(1)
                at += _GROUP
    for q in range(len(signs)):
        _sort(positions, costs, q, k)
    return positions, costs


@njit(nogil=True, cache=True, forceinline=True)
def _add_planes(
    signs: Words, levels: Words, q: int, planes: Words, start: int, stop: int, near: Words
) -> None:
    """Compute the integer costs of the codes start..stop."""
    first = np.uint64(start)
    near[: stop - start] = 0
    for w in range(len(planes)):
        sign = signs[q, w]
        ones, twos, fours, eights = (
            levels[q, w, 0],
            levels[q, w, 1],
            levels[q, w, 2],
            levels[q, w, 3],
        )
        for i in range(np.uint64(stop - start)):
            differing = planes[w, first + i] ^ sign
            low = popcount(differing & ones) + (popcount(differing & twos) << np.uint64(1))
            high = popcount(differing & fours) + (popcount(differing & eights) << np.uint64(1))
            near[i] += low + (high << np.uint64(2))


@njit(nogil=True, cache=True, forceinline=True)
def _next_group(near: Words, block: int, end: int, start: int, limit: np.uint64) -> int:
    """Return the start of the first full group with an integer cost below `limit`.

    The search begins at `start`. Without such a group, return the end of the last full group.
    """
    while start + _GROUP <= end:
        before = np.uint64(start - block)
        below = False
        for i in range(np.uint64(_GROUP)):
            below |= near[before + i] < limit
        if below:
            break
        start += _GROUP
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
    signs: Words, magnitudes: Floats, q: int, planes: Words, position: np.int64
) -> np.float64:
    """Return the exact cost of a code."""
    cost = 0.0
    for w in range(len(planes)):
        differing = planes[w, position] ^ signs[q, w]
        while differing:
            cost += magnitudes[q, 64 * w + _lowest_bit(differing)]
            differing &= differing - np.uint64(1)
    return cost


@njit(nogil=True, cache=True, forceinline=True)
def _replace_worst(
    positions: Positions, costs: Floats, q: int, size: int, position: int, cost: float
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
def _worse(positions: Positions, costs: Floats, q: int, one: int, other: int) -> bool:
    """Return whether an entry has a higher cost than another one, or the same and is later."""
    if costs[q, one] == costs[q, other]:
        return positions[q, one] > positions[q, other]
    return costs[q, one] > costs[q, other]


@njit(nogil=True, cache=True)
def _sort(positions: Positions, costs: Floats, q: int, k: int) -> None:
    """Sort a heap by cost, then by position."""
    for last in range(k - 1, 0, -1):
        position, cost = positions[q, last], costs[q, last]
        positions[q, last], costs[q, last] = positions[q, 0], costs[q, 0]
        _replace_worst(positions, costs, q, last, position, cost)
