"""Leave-one-out MAP: every item is a query and is excluded from its ranked list."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.evaluation.average_precision import average_precision
from bitprint.evaluation.histograms import Histograms, Task
from bitprint.evaluation.rankings import Queries, RankedTask, Ranker, Ranking
from bitprint.supervision import check_labels
from bitprint.utils.parallel import on_every_core

_QUERIES = 2**14  # queries whose histograms are in memory at once
_PAIRS = 2**19  # query-item pairs in memory at once, on each core


def leave_one_out_map(
    codes: Codes | Ranker, labels: Any, queries: Codes | Queries | None = None
) -> float:
    """Return the MAP of N items as queries, each against the other N - 1 items.

    MAP is the expectation over all orders of tied items, as by default in `bitprint.evaluate`.
    Items that share no label with another item are excluded from the mean.

    Parameters
    ----------
    codes : Codes, or a database with real-valued distances
        N items.
    labels : array_like, or a list of lists of str
        As in `bitprint.evaluate`.
    queries : Codes, or queries for `codes.distances`, optional
        The same N items as queries; `codes` by default.

    Examples
    --------
    >>> codes = Codes.from_signs([[1, 1], [1, 1], [1, -1], [-1, -1]])
    >>> leave_one_out_map(codes, ["cat", "cat", "dog", "dog"])
    0.9027777777777778
    """
    labels = check_labels(labels, len(codes))
    asked: Any = codes if queries is None else queries
    if isinstance(codes, Codes):
        precisions = _by_hamming(Task(asked, labels, codes, labels))
    else:
        precisions = _by_distance(RankedTask(asked, labels, codes, labels))
    if np.isnan(precisions).all():
        raise ValueError("no item shares a label with another item, so MAP is undefined")
    return float(np.nanmean(precisions))


def _by_hamming(task: Task) -> NDArray[np.float64]:
    """Return the average precision of every query, shape (N,)."""
    parts = []
    for start in range(0, len(task.codes), _QUERIES):
        rows = slice(start, start + _QUERIES)
        some = Task(task.query_codes[rows], task.query_labels[rows], task.codes, task.labels)
        histograms = _without_own(some, some.count(), task.codes[rows])
        parts.append(average_precision(histograms)[:, 0])
    return np.concatenate(parts)


def _without_own(task: Task, histograms: Histograms, own: Codes) -> Histograms:
    """Remove item `own[i]`, which is query i, from row i of the histograms."""
    differing = np.bitwise_xor(task.query_codes.packed, own.packed)
    distance = np.bitwise_count(differing).sum(axis=1, dtype=np.int64)
    row = np.arange(len(own))
    items, relevant = histograms.items.copy(), histograms.relevant.copy()
    items[row, distance] -= 1
    # An item without labels is not relevant to itself.
    labelled = task.query_labels.any(axis=1) if task.query_labels.ndim == 2 else 1
    relevant[row, distance] -= labelled
    return Histograms(items, relevant)


def _by_distance(task: RankedTask) -> NDArray[np.float64]:
    """Return the average precision of every query, shape (N,)."""
    count = len(task.database)

    def measured(rows: slice) -> NDArray[np.float64]:
        others = np.arange(count) != np.arange(count)[rows, None]
        distances, shared = (
            values[others].reshape(len(others), count - 1) for values in task.compare(rows)
        )
        ranking = Ranking(distances, shared)
        return average_precision(ranking.histograms)[:, 0]

    if count == 1:
        return np.array([np.nan])
    return np.concatenate(on_every_core(measured, count, max(1, _PAIRS // count)))
