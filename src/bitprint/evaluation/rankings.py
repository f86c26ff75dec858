"""Rankings by real-valued distances, which cannot be counted by value and are sorted instead.

A query's items at the same distance are a tie here too, so that a sorted list becomes a histogram
with one bucket per distinct distance, and all that follows from Hamming histograms follows from
these. They have up to N buckets: queries are taken a few at a time, and (Q, N) is never kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.evaluation import kernels
from bitprint.evaluation.average_precision import average_precision
from bitprint.evaluation.histograms import Histograms, check_task
from bitprint.parallel import on_every_core
from bitprint.supervision import similarity

_PAIRS = 2**19  # query-item pairs ranked at once on each core, about 60 bytes each


class Queries(Protocol):
    """Queries as a `Ranker` understands them: vectors or codes, of which slices can be taken."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class Ranker(Protocol):
    """A database that gives real-valued distances, such as quantised or weighted codes."""

    @property
    def bits(self) -> int:
        """K, the bits that an item takes."""

    def __len__(self) -> int: ...

    def distances(self, queries: Any) -> NDArray[np.floating]:
        """Distances of shape (Q, N)."""


class Ranked(NamedTuple):
    """What the ranked lists of all queries come to.

    Attributes
    ----------
    average_precision : ndarray of float64, shape (Q,)
        NaN for queries without a relevant item.
    total : ndarray of int64, shape (Q,)
        Relevant items of each query.
    hits : ndarray of float64, shape (Q, P)
        Expected relevant items among the first n.
    """

    average_precision: NDArray[np.float64]
    total: NDArray[np.int64]
    hits: NDArray[np.float64]


class RankedTask:
    """Queries and a database that measures its distances from them, with their labels.

    Parameters
    ----------
    queries : Queries
        Q queries.
    database : Ranker
        N items.
    query_labels, labels : array_like
        Class numbers, (Q,) and (N,), or matrices of zeros and ones, (Q, c) and (N, c).
    """

    def __init__(
        self, queries: Queries, query_labels: ArrayLike, database: Ranker, labels: ArrayLike
    ) -> None:
        self.queries, self.database = queries, database
        self.query_labels, self.labels = check_task(queries, query_labels, database, labels)

    def measure(self, ranks: NDArray[np.int64], chunk: int | None = None, **options: Any) -> Ranked:
        """Rank all queries, `chunk` at a time.

        Parameters
        ----------
        ranks : ndarray of int64, shape (P,)
            Where to count hits, in increasing order.
        chunk : int, optional
            Queries whose distances are in memory at once, on each core.
        **options
            Those of `average_precision`.
        """

        def measured(rows: slice) -> Ranked:
            ranking = self.rank(rows)
            histograms = ranking.histograms
            return Ranked(
                average_precision(ranking, histograms, **options),
                histograms.relevant.sum(axis=1),
                kernels.expected_hits(*histograms, ranks),
            )

        most = chunk or max(1, _PAIRS // len(self.database))
        parts = on_every_core(measured, len(self.queries), most)
        return Ranked(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def rank(self, rows: slice) -> Ranking:
        """Rank the database for some of the queries."""
        return Ranking(*self.compare(rows))

    def compare(self, rows: slice) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
        """Distances and relevance of all items for some of the queries, both (q, N)."""
        distances = np.asarray(self.database.distances(self.queries[rows]))
        relevant = similarity(self.query_labels[rows], self.labels)
        if distances.shape != relevant.shape:
            raise ValueError(f"distances of shape {distances.shape}, expected {relevant.shape}")
        if np.isnan(distances).any():
            raise ValueError("distances contain NaN, which has no rank")
        return distances, relevant


class Ranking:
    """Ranked lists of q queries: ties by distance, and in database order within them.

    Parameters
    ----------
    distances : ndarray, shape (q, N)
    relevant : ndarray of bool, shape (q, N)

    Examples
    --------
    >>> ranking = Ranking(np.array([[0.5, 0.1, 0.5]]), np.array([[True, True, False]]))
    >>> ranking.histograms.items.tolist(), ranking.histograms.relevant.tolist()
    ([[1, 2]], [[1, 1]])
    """

    def __init__(self, distances: NDArray[np.floating], relevant: NDArray[np.bool_]) -> None:
        order = np.argsort(distances, axis=1, kind="stable")
        ranked = np.take_along_axis(distances, order, axis=1)
        self._relevant = np.take_along_axis(relevant, order, axis=1)
        buckets = np.zeros(ranked.shape, np.int64)
        np.cumsum(ranked[:, 1:] != ranked[:, :-1], axis=1, out=buckets[:, 1:])
        width = int(buckets.max()) + 1
        buckets += width * np.arange(len(buckets))[:, None]
        shape = (len(buckets), width)
        items = np.bincount(buckets.ravel(), minlength=len(buckets) * width)
        hits = np.bincount(buckets[self._relevant], minlength=len(buckets) * width)
        self.histograms = Histograms(items.reshape(shape), hits.reshape(shape))

    def stable_sums(self, histograms: Histograms, top: int) -> NDArray[np.float64]:
        """Sum of precisions and number of hits up to `top`, ties in database order, (q, 2)."""
        relevant = self._relevant[:, :top]
        precision = relevant.cumsum(axis=1) / np.arange(1, relevant.shape[1] + 1)
        return np.stack([(precision * relevant).sum(axis=1), relevant.sum(axis=1)], axis=1)
