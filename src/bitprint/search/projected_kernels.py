"""Compiled scan that ranks codes by the real-valued projections of a query.

The score of a code is the sum of the projections, each with the sign of its bit. This is the sum of
their magnitudes minus twice the cost of the code: the magnitudes of the bits whose sign differs
from that of the projection.

The scan approximates costs by integers. Magnitudes are replaced by 4-bit levels, so that the
integer cost of a code is the sum of the levels of the differing bits. It exceeds the cost, in units
of the step between levels, by at most a known slack. Codes whose integer cost is too high for the k
best are skipped, and the exact costs of the others are computed.

Integer costs are computed for 512 codes at a time, bit by bit. The codes of a block are transposed
to rows: bit i of all codes, and its complement. A query has a list of rows for each bit of a level:
the bits that have this level bit, as they are where the projection is negative, else complemented.
Rows are added by full adders, which replace three rows of the same weight by a sum and a carry of
twice the weight. Each instruction of an adder works on all codes, so that a row takes about three
instructions for 512 codes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils import lanes
from bitprint.utils.lanes import LANES
from bitprint.utils.popcount import popcount
from bitprint.utils.words import Words

PLANES = 4  # bits of a level
BATCH = 16  # rows that are added together; lists are padded to a multiple
MISSING = np.iinfo(np.int64).max  # cost of a code that was not found
_BLOCK = 64 * LANES  # codes per block
_SUMS = PLANES + 11  # bits of an integer cost, enough for 1,024 bits of the highest level

Marks = NDArray[np.uint8]
Integers = NDArray[np.int64]
Numbers = NDArray[np.uint16]
Floats = NDArray[np.float64]


@njit(nogil=True, cache=True)
def scan_projected(
    signs: Words,
    magnitudes: Integers,
    levels: Marks,
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
    magnitudes : ndarray of int64, shape (Q, 64 W)
        Magnitudes in the order of the bits of a word, the lowest bit first.
    levels : ndarray of uint8, shape (Q, 64 W)
        Levels in the same order, less than 2^PLANES.
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
    limits = np.full(len(signs), MISSING, np.int64)
    lists, batches, widths = _list_rows(signs, levels)
    rows = _aligned(128 * len(planes) + 1)
    sums, valid, found = _aligned(_SUMS), _aligned(1), _aligned(1)
    for block in range(start, stop, _BLOCK):
        end = min(block + _BLOCK, stop)
        _transpose(planes, block, end, rows)
        _mark_valid(alive, block, end, valid)
        for q in range(len(signs)):
            _add_rows(rows, lists, batches, q, sums)
            _compare(sums, widths[q], min(limits[q], 1 << widths[q]), valid, found)
            for lane in range(LANES):
                word = found[lane]
                while word:
                    # Within a block, later positions can come first: equal costs are compared
                    # by position. Across blocks, a code must be better than the limit.
                    position = block + LANES * _lowest_bit(word) + lane
                    word &= word - np.uint64(1)
                    cost = _cost(signs, magnitudes, q, planes, position)
                    if _better(cost, position, costs[q, 0], positions[q, 0]):
                        _replace_worst(positions, costs, q, k, position, cost)
            if costs[q, 0] < MISSING:
                limits[q] = np.int64(costs[q, 0] / steps[q] + slacks[q]) + 1
    for q in range(len(signs)):
        _sort(positions, costs, q, k)
    return positions, costs


@njit(nogil=True, cache=True)
def _aligned(count: int) -> Words:
    """Return rows of zeros, each in one cache line."""
    words = np.zeros(LANES * (count + 1), np.uint64)
    start = -(words.ctypes.data // 8) % LANES
    return words[start : start + LANES * count]


@njit(nogil=True, cache=True)
def _list_rows(signs: Words, levels: Marks) -> tuple[Numbers, Integers, Integers]:
    """List the rows to add for each query and bit of a level.

    Returns
    -------
    lists : ndarray of uint16, shape (Q, PLANES, at least 64 W)
        Numbers of the rows, padded with that of the row of zeros.
    batches : ndarray of int64, shape (Q, PLANES)
        Number of batches in each list.
    widths : ndarray of int64, shape (Q,)
        Number of bits of the highest possible integer cost.
    """
    bits = levels.shape[1]
    lists = np.full((len(signs), PLANES, bits), 2 * bits, np.uint16)
    batches = np.zeros((len(signs), PLANES), np.int64)
    widths = np.zeros(len(signs), np.int64)
    for q in range(len(signs)):
        highest = np.int64(0)
        for plane in range(PLANES):
            size = 0
            for bit in range(bits):
                if levels[q, bit] >> plane & 1:
                    negative = signs[q, bit >> 6] >> np.uint64(bit & 63) & np.uint64(1) == 0
                    lists[q, plane, size] = bit if negative else bits + bit
                    size += 1
            highest += size << plane
            batches[q, plane] = (size + BATCH - 1) // BATCH
        while highest >> widths[q]:
            widths[q] += 1
    return lists, batches, widths


@njit(nogil=True, cache=True)
def _transpose(planes: Words, block: int, end: int, rows: Words) -> None:
    """Write the rows of a block: bit by bit, then complemented.

    Lane g of a row has the bits of the codes g, 8 + g, 16 + g, ... of the block, the first one in
    the lowest bit. Codes after the end are zeros.
    """
    for w in range(len(planes)):
        first = 64 * LANES * w
        for i in range(np.uint64(end - block)):
            rows[np.uint64(first) + i] = planes[w, np.uint64(block) + i]
        rows[first + end - block : first + _BLOCK] = 0
        # Swap ever smaller squares on both sides of the diagonal.
        mask, side = np.uint64(0x00000000FFFFFFFF), 32
        while side:
            selected, shift = lanes.broadcast(mask), np.uint64(side)
            for upper in range(64):
                if not upper & side:
                    above, below = first + LANES * upper, first + LANES * (upper + side)
                    high, low = lanes.load(rows, above), lanes.load(rows, below)
                    swapped = lanes.differ(lanes.shift_right(high, shift), low)
                    swapped = lanes.both(swapped, selected)
                    lanes.store(rows, below, lanes.differ(low, swapped))
                    high = lanes.differ(high, lanes.shift_left(swapped, shift))
                    lanes.store(rows, above, high)
            side >>= 1
            mask ^= mask << np.uint64(side)
    size = np.uint64(64 * LANES * len(planes))
    for i in range(size):
        rows[size + i] = ~rows[i]


@njit(nogil=True, cache=True)
def _mark_valid(alive: Marks, block: int, end: int, valid: Words) -> None:
    """Set the bits of the codes of a block that are not removed, in the order of `_transpose`."""
    valid[:] = 0
    for i in range(end - block):
        if len(alive) == 0 or alive[block + i]:
            valid[i % LANES] |= np.uint64(1) << np.uint64(i // LANES)


@njit(nogil=True, cache=True, forceinline=True)
def _row(rows: Words, number: int) -> Any:
    return lanes.load(rows, LANES * np.int64(number))


@njit(nogil=True, cache=True, forceinline=True)
def _full_adder(one: Any, two: Any, three: Any) -> tuple[Any, Any]:
    """Return the sum and the carry of three rows."""
    return lanes.parity(one, two, three), lanes.majority(one, two, three)


@njit(nogil=True, cache=True, forceinline=True)
def _half_adder(one: Any, two: Any) -> tuple[Any, Any]:
    """Return the sum and the carry of two rows."""
    return lanes.differ(one, two), lanes.both(one, two)


@njit(nogil=True, cache=True, forceinline=True)
def _add_rows(rows: Words, lists: Numbers, batches: Integers, q: int, sums: Words) -> None:
    """Add the rows of a query; row b of `sums` is bit b of the integer costs."""
    ones = twos = fours = eights = lanes.zero()
    s4 = s5 = s6 = s7 = s8 = s9 = s10 = s11 = s12 = lanes.zero()
    for plane in range(PLANES):
        for batch in range(batches[q, plane]):
            at = np.uint64(BATCH * batch)
            s, a = _add_two(rows, lists, q, plane, at, _row(rows, lists[q, plane, at]), 1)
            s, b = _add_two(rows, lists, q, plane, at, s, 3)
            s, c = _add_two(rows, lists, q, plane, at, s, 5)
            s, d = _add_two(rows, lists, q, plane, at, s, 7)
            s, e = _add_two(rows, lists, q, plane, at, s, 9)
            s, f = _add_two(rows, lists, q, plane, at, s, 11)
            s, g = _add_two(rows, lists, q, plane, at, s, 13)
            last = _row(rows, lists[q, plane, at + np.uint64(15)])
            ones, h = _full_adder(s, last, ones)
            s, a = _full_adder(a, b, c)
            s, b = _full_adder(s, d, e)
            s, c = _full_adder(s, f, g)
            twos, d = _full_adder(s, h, twos)
            s, a = _full_adder(a, b, c)
            fours, b = _full_adder(s, d, fours)
            eights, carry = _full_adder(a, b, eights)
            s4, carry = _half_adder(s4, carry)
            s5, carry = _half_adder(s5, carry)
            s6, carry = _half_adder(s6, carry)
            s7, carry = _half_adder(s7, carry)
            s8, carry = _half_adder(s8, carry)
            s9, carry = _half_adder(s9, carry)
            s10, carry = _half_adder(s10, carry)
            s11, carry = _half_adder(s11, carry)
            s12 = lanes.differ(s12, carry)
        lanes.store(sums, LANES * plane, ones)
        ones, twos, fours, eights, s4, s5, s6, s7 = twos, fours, eights, s4, s5, s6, s7, s8
        s8, s9, s10, s11, s12 = s9, s10, s11, s12, lanes.zero()
    lanes.store(sums, LANES * (PLANES + 0), ones)
    lanes.store(sums, LANES * (PLANES + 1), twos)
    lanes.store(sums, LANES * (PLANES + 2), fours)
    lanes.store(sums, LANES * (PLANES + 3), eights)
    lanes.store(sums, LANES * (PLANES + 4), s4)
    lanes.store(sums, LANES * (PLANES + 5), s5)
    lanes.store(sums, LANES * (PLANES + 6), s6)
    lanes.store(sums, LANES * (PLANES + 7), s7)
    lanes.store(sums, LANES * (PLANES + 8), s8)
    lanes.store(sums, LANES * (PLANES + 9), s9)
    lanes.store(sums, LANES * (PLANES + 10), s10)


@njit(nogil=True, cache=True, forceinline=True)
def _add_two(
    rows: Words, lists: Numbers, q: int, plane: int, at: np.uint64, total: Any, number: int
) -> tuple[Any, Any]:
    """Add the rows `number` and `number` + 1 of a batch; return the sum and the carry."""
    one = _row(rows, lists[q, plane, at + np.uint64(number)])
    two = _row(rows, lists[q, plane, at + np.uint64(number + 1)])
    return _full_adder(one, two, total)


@njit(nogil=True, cache=True, forceinline=True)
def _compare(sums: Words, width: int, limit: int, valid: Words, found: Words) -> None:
    """Set the bits of the valid codes whose integer cost is below the limit, at most 2^width."""
    below = lanes.zero()
    for bit in range(width + 1):
        chosen = lanes.broadcast(np.uint64(-(limit >> bit & 1)))
        # The borrow of a subtraction: lower if this bit is lower, or equal and the rest is lower.
        below = lanes.majority(lanes.invert(lanes.load(sums, LANES * bit)), chosen, below)
    lanes.store(found, 0, lanes.both(below, lanes.load(valid, 0)))


@njit(nogil=True, cache=True, forceinline=True)
def _better(cost: np.int64, position: np.int64, other: np.int64, place: np.int64) -> bool:
    """Return whether a code has a lower cost than another one, or the same and is earlier."""
    if cost == other:
        return bool(position < place)
    return bool(cost < other)


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
    positions: Integers, costs: Integers, q: int, size: int, position: np.int64, cost: np.int64
) -> None:
    """Replace the first entry of a heap whose first entry is the worst."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _better(
            costs[q, child], positions[q, child], costs[q, child + 1], positions[q, child + 1]
        ):
            child += 1
        if _better(costs[q, child], positions[q, child], cost, position):
            break
        costs[q, at], positions[q, at] = costs[q, child], positions[q, child]
        at = child
    costs[q, at], positions[q, at] = cost, position


@njit(nogil=True, cache=True)
def _sort(positions: Integers, costs: Integers, q: int, k: int) -> None:
    """Sort a heap by cost, then by position."""
    for last in range(k - 1, 0, -1):
        position, cost = positions[q, last], costs[q, last]
        positions[q, last], costs[q, last] = positions[q, 0], costs[q, 0]
        _replace_worst(positions, costs, q, last, position, cost)
