"""Compiled loops of the evaluation; they release the GIL, so that queries run on all cores.

Codes and labels are 64-bit words, (Q, W) for queries and (W, N) for the database, so that the
inner loops run along the database and vectorize.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.popcount import popcount

_BLOCK = 2048  # database items whose words and buckets fit into the first-level cache
_LANES = 4  # interleaved histograms, so that an increment does not wait for the previous one
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
def stable_sums(
    query_codes: Words,
    query_labels: Words,
    codes: Words,
    labels: Words,
    one_class: bool,
    items: Counts,
    relevant: Counts,
    tops: Counts,
) -> Floats:
    """Return the sum of precisions and the number of hits up to each of `tops`, (Q, T, 2).

    `tops` must increase. Ties keep the order of the database. The histograms give the first rank of
    each distance, so one pass over the database assigns the ranks, as in a counting sort.
    """
    size = codes.shape[1]
    sums = np.zeros((len(query_codes), len(tops), 2))
    buckets = np.empty(_BLOCK, np.uint32)
    shared = np.empty(_BLOCK, np.uint64)
    for q in range(len(query_codes)):
        rank = np.cumsum(items[q]) - items[q]
        hits = np.cumsum(relevant[q]) - relevant[q]
        for start in range(0, size, _BLOCK):
            stop = min(start + _BLOCK, size)
            _fill_buckets(
                query_codes[q],
                query_labels[q],
                codes,
                labels,
                one_class,
                2,
                start,
                stop,
                shared,
                buckets,
            )
            for i in range(stop - start):
                distance = buckets[i] >> np.uint32(1)
                rank[distance] += 1
                if buckets[i] & np.uint32(1):
                    hits[distance] += 1
                    t = 0
                    while t < len(tops) and rank[distance] > tops[t]:
                        t += 1
                    if t < len(tops):
                        sums[q, t, 0] += hits[distance] / rank[distance]
                        sums[q, t, 1] += 1
        for t in range(1, len(tops)):
            sums[q, t] += sums[q, t - 1]
    return sums


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
