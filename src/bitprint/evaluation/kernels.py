"""Compiled loops of the evaluation; they release the GIL, so that queries run on all cores.

Codes and labels are 64-bit words, (Q, W) for queries and (W, N) for the database, so that the
inner loops run along the database and vectorize.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.popcount import popcount

_BLOCK = 2048  # database items whose words and buckets fit into the first-level cache
_LANES = 4  # interleaved histograms, so that an increment does not wait for the previous one
_SHIFT = np.uint64(32)  # of the count in a number of a count and a distance
_NEGLIGIBLE = 1e-20  # relative weight at which a probability tail is cut

Words = NDArray[np.uint64]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


@njit(nogil=True, cache=True)
def _fill_buckets(
    code: Words,
    label: Words,
    codes: Words,
    labels: Words,
    one_class: bool,
    levels: int,
    start: int,
    stop: int,
    shared: Words,
    buckets: NDArray[np.uint32],
) -> None:
    """Write levels * distance + level of the items start..stop into `buckets`.

    With `one_class` a label is a class number, and the level is 1 for equal numbers. Otherwise a
    label is a row of bits, and the level is the number of common bits; with two levels, whether
    there is a common bit.
    """
    size = stop - start
    buckets[:size] = 0
    for w in range(codes.shape[0]):
        block = codes[w, start:stop]  # contiguous, so that the loop below vectorizes
        for i in range(size):
            buckets[i] += np.uint32(popcount(block[i] ^ code[w]))
    width = np.uint32(levels)
    if one_class:
        block = labels[0, start:stop]
        for i in range(size):
            buckets[i] = width * buckets[i] + np.uint32(block[i] == label[0])
        return
    shared[:size] = 0
    for w in range(labels.shape[0]):
        block = labels[w, start:stop]
        if levels == 2:
            for i in range(size):
                shared[i] |= block[i] & label[w]
        else:
            for i in range(size):
                shared[i] += popcount(block[i] & label[w])
    if levels == 2:
        for i in range(size):
            buckets[i] = width * buckets[i] + np.uint32(shared[i] != 0)
    else:
        for i in range(size):
            buckets[i] = width * buckets[i] + np.uint32(shared[i])


@njit(nogil=True, cache=True)
def count_buckets(
    query_codes: Words,
    query_labels: Words,
    codes: Words,
    labels: Words,
    one_class: bool,
    levels: int,
    bits: int,
) -> Counts:
    """Count items by levels * distance + level, shape (Q, levels * (bits + 1)).

    A level is a number of shared labels; with two levels, whether there is any. Each block of the
    database is compared with all queries while it is in the cache.
    """
    queries, size = len(query_codes), codes.shape[1]
    lanes = np.zeros((queries, _LANES, levels * (bits + 1)), np.int64)
    buckets = np.empty(_BLOCK, np.uint32)
    shared = np.empty(_BLOCK, np.uint64)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        whole = (stop - start) // _LANES * _LANES
        for q in range(queries):
            _fill_buckets(
                query_codes[q],
                query_labels[q],
                codes,
                labels,
                one_class,
                levels,
                start,
                stop,
                shared,
                buckets,
            )
            counts = lanes[q]
            for i in range(0, whole, _LANES):
                for lane in range(_LANES):
                    counts[lane, buckets[i + lane]] += 1
            for i in range(whole, stop - start):
                counts[0, buckets[i]] += 1
    counts_by_bucket: Counts = lanes.sum(axis=1)
    return counts_by_bucket


@njit(nogil=True, cache=True)
def count_in_order(
    query_codes: Words,
    query_labels: Words,
    codes: Words,
    labels: Words,
    one_class: bool,
    bits: int,
    tops: Counts,
) -> tuple[Counts, Counts, Floats]:
    """Count all and relevant items by distance, and rank ties in the order of the database.

    Also returns the sum of precisions and the number of hits up to each of `tops`, which must
    increase, (Q, T, 2).

    Items are counted in four equal parts of the database at once, so that a count does not wait for
    the previous one. The count at a relevant item is its rank among the items of its part at its
    distance. Its rank in the database is known when all items are counted.
    """
    queries, size, each = len(query_codes), codes.shape[1], codes.shape[1] // _LANES
    items = np.zeros((queries, bits + 1), np.int64)
    relevant = np.zeros((queries, bits + 1), np.int64)
    sums = np.zeros((queries, len(tops), 2))
    buckets = np.empty((_LANES, _BLOCK), np.uint32)
    shared = np.empty(_BLOCK, np.uint64)
    counts = np.empty((_LANES, bits + 1), np.uint64)
    # Only the used part of this array takes memory: one number per relevant item.
    noted = np.empty((_LANES, each + _LANES), np.uint64)
    found = np.empty(_LANES, np.int64)
    for q in range(queries):
        query = query_codes[q], query_labels[q], codes, labels, one_class, 2
        counts[:] = np.arange(bits + 1).astype(np.uint64)
        found[:] = 0
        for first in range(0, each, _BLOCK):
            length = min(_BLOCK, each - first)
            for lane in range(_LANES):
                here = lane * each + first
                _fill_buckets(*query, here, here + length, shared, buckets[lane])
            _note_relevant(buckets, length, counts, noted, found)
        last = _LANES - 1
        _fill_buckets(*query, _LANES * each, size, shared, buckets[last])
        for i in range(size - _LANES * each):
            found[last] = _note(buckets[last, i], counts[last], noted[last], found[last])
        for lane in range(_LANES):
            for distance in range(bits + 1):
                items[q, distance] += np.int64(counts[lane, distance] >> _SHIFT)
        before = np.cumsum(items[q]) - items[q]
        _rank_relevant(counts, noted, found, before, relevant[q], tops, sums[q])
    return items, relevant, sums


@njit(nogil=True, cache=True)
def _note_relevant(
    buckets: NDArray[np.uint32], length: int, counts: Words, noted: Words, found: Counts
) -> None:
    """Count the items of four parts, and append count and distance of the relevant items."""
    n0, n1, n2, n3 = found[0], found[1], found[2], found[3]
    for i in range(length):
        n0 = _note(buckets[0, i], counts[0], noted[0], n0)
        n1 = _note(buckets[1, i], counts[1], noted[1], n1)
        n2 = _note(buckets[2, i], counts[2], noted[2], n2)
        n3 = _note(buckets[3, i], counts[3], noted[3], n3)
    found[0], found[1], found[2], found[3] = n0, n1, n2, n3


@njit(nogil=True, cache=True)
def _note(bucket: np.uint32, counts: Words, noted: Words, found: Any) -> Any:
    """Count one item, append its count and distance if it is relevant, and return the length.

    An irrelevant item is written too, and overwritten by the next one: whether an item is relevant
    cannot be predicted, so a branch would be slower.
    """
    distance = bucket >> np.uint32(1)
    count = counts[distance] + (np.uint64(1) << _SHIFT)
    counts[distance] = count
    noted[found] = count
    return found + np.int64(bucket & np.uint32(1))


@njit(nogil=True, cache=True)
def _rank_relevant(
    counts: Words,
    noted: Words,
    found: Counts,
    before: Counts,
    relevant: Counts,
    tops: Counts,
    sums: Floats,
) -> None:
    """Add up precisions and hits up to each of `tops`, and count the relevant items.

    `before` contains the number of items at smaller distances, and is overwritten.
    """
    low = (np.uint64(1) << _SHIFT) - np.uint64(1)
    for lane in range(len(noted)):
        for k in range(found[lane]):
            relevant[noted[lane, k] & low] += 1
    hits = np.cumsum(relevant) - relevant
    for lane in range(len(noted)):
        total, number = 0.0, 0
        for k in range(found[lane]):
            distance = noted[lane, k] & low
            rank = before[distance] + np.int64(noted[lane, k] >> _SHIFT)
            hit = hits[distance] + 1
            hits[distance] = hit
            if rank <= tops[0]:
                total += hit / rank
                number += 1
                continue
            t = 1
            while t < len(tops) and rank > tops[t]:
                t += 1
            if t < len(tops):
                sums[t, 0] += hit / rank
                sums[t, 1] += 1
        sums[0, 0] += total
        sums[0, 1] += number
        for distance in range(len(before)):
            before[distance] += np.int64(counts[lane, distance] >> _SHIFT)
    for t in range(1, len(tops)):
        sums[t] += sums[t - 1]


@njit(nogil=True, cache=True)
def expected_hits(items: Counts, relevant: Counts, ranks: Counts) -> Floats:
    """Return the expected number of relevant items in the first n, for each n of `ranks`, (Q, P).

    `ranks` must increase. Within a tie the expectation grows linearly with n.
    """
    hits = np.empty((len(items), len(ranks)))
    for q in range(len(items)):
        c = 0
        ranked = 0
        found = 0
        for p in range(len(ranks)):
            while ranked + items[q, c] < ranks[p]:
                ranked += items[q, c]
                found += relevant[q, c]
                c += 1
            share = relevant[q, c] / items[q, c] if items[q, c] else 0.0
            hits[q, p] = found + (ranks[p] - ranked) * share
    return hits


@njit(nogil=True, cache=True)
def expected_cut(
    before: Floats,
    found: Counts,
    start: Counts,
    items: Counts,
    relevant: Counts,
    drawn: Counts,
    harmonic: Floats,
) -> Floats:
    """Return the expected AP for a cut within a tie, divided by the relevant items before the cut.

    For each query the cut selects `drawn` of the tied `items` at random; the number of relevant
    ones, m, is hypergeometric. The weights start from 1 at the mode and are updated by their exact
    ratios, which is accurate for ties of any size.

    Parameters
    ----------
    before, found, start : ndarray, shape (Q,)
        Sum of precisions, relevant items and items ranked before the tie.
    items, relevant, drawn : ndarray, shape (Q,)
        Items and relevant items of the tie, and items before the cut: 1 <= drawn <= items.
    harmonic : ndarray, shape (Q,)
        Sum of 1 / rank over the ranks of the tie before the cut.
    """
    result = np.empty(len(before))
    for q in range(len(before)):
        n, r, k = items[q], relevant[q], drawn[q]
        lowest, highest = max(0, k - (n - r)), min(r, k)
        mode = min(max((k + 1) * (r + 1) // (n + 2), lowest), highest)
        here = (before[q], found[q], start[q], k, harmonic[q])
        weights = 1.0
        mean = _precision_of_cut(mode, *here)
        weight = 1.0
        for m in range(mode, highest):
            weight *= (r - m) / (m + 1) * ((k - m) / (n - r - k + m + 1))
            weights += weight
            mean += weight * _precision_of_cut(m + 1, *here)
            if weight < _NEGLIGIBLE:
                break
        weight = 1.0
        for m in range(mode, lowest, -1):
            weight *= m / (r - m + 1) * ((n - r - k + m) / (k - m + 1))
            weights += weight
            mean += weight * _precision_of_cut(m - 1, *here)
            if weight < _NEGLIGIBLE:
                break
        result[q] = mean / weights
    return result


@njit(nogil=True, cache=True)
def _precision_of_cut(
    m: int, before: float, found: int, start: int, drawn: int, harmonic: float
) -> float:
    """Return the expected AP if m of the `drawn` tied items are relevant."""
    slope = (m - 1) / max(drawn - 1, 1)
    tied = m / drawn * (slope * drawn + (found + 1 - slope * (start + 1)) * harmonic)
    return (before + tied) / max(found + m, 1)
