"""Precision and recall at a radius, at a cutoff and as curves, from histograms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation import kernels
from bitprint.evaluation.histograms import Histograms

_POINTS = 64


class Curve(NamedTuple):
    """Points of a precision-recall curve; `recall, precision, at = curve`.

    Attributes
    ----------
    recall, precision : ndarray of float64, shape (P,)
    at : ndarray of int64, shape (P,)
        Position of each point: the first `at` items, or the items within distance `at`.

    Examples
    --------
    >>> import bitprint as bp
    >>> query = bp.Codes.from_signs([[1, 1]])
    >>> database = bp.Codes.from_signs([[1, 1], [1, -1], [-1, -1], [-1, -1]])
    >>> recall, precision, at = bp.evaluate(query, [0], database, [0, 1, 0, 1]).pr_lookup
    >>> at.tolist(), recall.tolist(), precision.tolist()
    ([0, 1, 2], [0.5, 0.5, 1.0], [1.0, 0.5, 0.5])
    """

    recall: NDArray[np.float64]
    precision: NDArray[np.float64]
    at: NDArray[np.int64]


NO_CURVE = Curve(np.empty(0), np.empty(0), np.empty(0, np.int64))
"""The lookup curve of a ranking without Hamming balls."""


def precision_within(histograms: Histograms, radius: int) -> NDArray[np.float64]:
    """Return the precision within `radius` of each query, shape (Q,); 0 for an empty ball."""
    inside = histograms.items[:, : radius + 1].sum(axis=1)
    relevant = histograms.relevant[:, : radius + 1].sum(axis=1)
    precision: NDArray[np.float64] = relevant / np.maximum(inside, 1)
    return precision


def at_ranks(histograms: Histograms, ranks: Iterable[int]) -> Curve:
    """Return mean precision and recall of the first n items for every n of `ranks`, sorted.

    Hits are expectations over the order of tied items. Recall is averaged over queries with a
    relevant item; for other queries it is undefined, and their precision is 0.
    """
    at = np.array(sorted(ranks), np.int64)
    return averaged(kernels.expected_hits(*histograms, at), histograms.relevant.sum(axis=1), at)


def averaged(hits: NDArray, total: NDArray, at: NDArray[np.int64]) -> Curve:
    """Return mean precision and recall for `hits` (Q, P) of `total` (Q,) relevant items."""
    return Curve(_mean_recall(hits, total), hits.mean(axis=0) / at, at)


def by_ranking(histograms: Histograms) -> Curve:
    """Return the precision-recall curve of the ranked list, at `curve_ranks`."""
    return at_ranks(histograms, curve_ranks(int(histograms.items[0].sum())))


def curve_ranks(size: int) -> NDArray[np.int64]:
    """Return up to 128 ranks from 1 to `size`, half spaced geometrically and half evenly."""
    head, body = np.geomspace(1, size, _POINTS), np.linspace(1, size, _POINTS)
    return np.unique(np.rint(np.append(head, body)).astype(np.int64))


def by_lookup(histograms: Histograms) -> Curve:
    """Return the precision-recall curve of hash lookup, one point per radius, mean over queries.

    A query without items within a radius has precision 0 there.
    """
    items, relevant = (np.cumsum(counts, axis=1) for counts in histograms)
    precision = (relevant / np.maximum(items, 1)).mean(axis=0)
    recall = _mean_recall(relevant, histograms.relevant.sum(axis=1))
    return Curve(recall, precision, np.arange(items.shape[1]))


def by_pooled_lookup(histograms: Histograms) -> Curve:
    """Return the precision-recall curve of hash lookup over the pooled hits of all queries.

    Compared with `by_lookup`, queries with many hits have more weight and empty balls have none.
    """
    items, relevant = (np.cumsum(counts.sum(axis=0)) for counts in histograms)
    return Curve(relevant / relevant[-1], relevant / np.maximum(items, 1), np.arange(len(items)))


def _mean_recall(hits: NDArray, total: NDArray) -> NDArray[np.float64]:
    """Return the mean recall for hits (Q, P) of total (Q,) over queries with relevant items."""
    answerable = total > 0
    recall: NDArray[np.float64] = (hits[answerable] / total[answerable, None]).mean(axis=0)
    return recall
