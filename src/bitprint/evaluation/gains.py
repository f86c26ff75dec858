"""Graded relevance: cumulative gains of ranked lists, from histograms of shared labels.

The relevance r of an item is the number of labels that it shares with the query. Gains are sums
over ranks, so their expectation over all orders of tied items is exact: every rank of a bucket has
the mean gain of the bucket.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_MOST_SHARED = 1000  # 2 ** 1024 is too large for float64


class Gains(NamedTuple):
    """Totals of graded relevance, for Q queries and B buckets of items at equal distances.

    Attributes
    ----------
    shared : ndarray of int64, shape (Q, B)
        Sum of r over the items of each bucket.
    gain : ndarray of float64, shape (Q, B)
        Sum of 2^r - 1 over the items of each bucket.
    levels : ndarray of int64, shape (Q, L)
        Number of database items with r = 0..L - 1, at any distance.
    """

    shared: NDArray[np.int64]
    gain: NDArray[np.float64]
    levels: NDArray[np.int64]

    def of(self, queries: NDArray[np.bool_]) -> Gains:
        """Select some of the queries."""
        return Gains(self.shared[queries], self.gain[queries], self.levels[queries])


def gains_of(counts: NDArray[np.int64]) -> Gains:
    """Compute gains from counts by bucket and number of shared labels, shape (Q, B, L)."""
    shared = np.arange(counts.shape[2])
    return Gains(counts @ shared, counts @ gain_of(shared), counts.sum(axis=1))


def check_levels(levels: int) -> int:
    """Return the number of relevance levels, or raise a ValueError if there are too many."""
    if levels > _MOST_SHARED + 1:
        raise ValueError(
            f"graded=True supports images that share at most {_MOST_SHARED} labels, these share "
            f"up to {levels - 1}; pass graded=False"
        )
    return levels


def average_gain(
    items: NDArray[np.int64], gains: Gains, ranks: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the ACG (mean r) of the first n items for every n of `ranks`, shape (Q, P)."""
    weights = np.arange(_largest(ranks) + 1, dtype=np.float64)
    return _cumulated(items, gains.shared, weights, ranks) / np.maximum(ranks, 1)


def normalized_gain(
    items: NDArray[np.int64], gains: Gains, ranks: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the NDCG of the first n items for every n of `ranks`, shape (Q, P).

    NDCG is the sum of (2^r - 1) / log2(1 + rank), divided by its largest value over all rankings of
    the database; 0 without a relevant item.
    """
    weights = np.zeros(_largest(ranks) + 1)
    np.cumsum(1 / np.log2(np.arange(2, len(weights) + 1)), out=weights[1:])
    found = _cumulated(items, gains.gain, weights, ranks)
    sizes = gains.levels[:, ::-1]
    ideal = _cumulated(sizes, sizes * gain_of(np.arange(sizes.shape[1]))[::-1], weights, ranks)
    normalized: NDArray[np.float64] = np.divide(
        found, ideal, out=np.zeros_like(found), where=ideal > 0
    )
    return normalized


def _cumulated(
    items: NDArray[np.int64],
    amounts: NDArray,
    weights: NDArray[np.float64],
    ranks: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return the expected weighted sum over the first n items for every n of `ranks`, (Q, P).

    Parameters
    ----------
    items, amounts : ndarray, shape (Q, B)
        Number of items in each bucket, and the sum of their amounts.
    weights : ndarray, shape (R + 1,)
        Sum of the weights of the first 0..R ranks.
    ranks : ndarray of int64, shape (P,)
    """
    mean = amounts / np.maximum(items, 1)
    ends = np.cumsum(items, axis=1)
    starts = ends - items
    sums = np.empty((len(items), len(ranks)))
    for column, n in enumerate(ranks):
        seen = weights[np.minimum(ends, n)] - weights[np.minimum(starts, n)]
        sums[:, column] = (mean * seen).sum(axis=1)
    return sums


def gain_of(shared: NDArray) -> NDArray[np.float64]:
    """Return 2^r - 1."""
    gain: NDArray[np.float64] = np.exp2(shared) - 1
    return gain


def _largest(ranks: NDArray[np.int64]) -> int:
    return int(ranks.max()) if len(ranks) else 0
