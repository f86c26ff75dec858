"""Rankings by real-valued distances, which are sorted instead of counted.

Items at the same distance of a query are tied, so a sorted list becomes a histogram with one
bucket per distinct distance, and the metrics follow as from Hamming histograms. There can be N
buckets, so queries are processed in small chunks, without a (Q, N) matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation import kernels
from bitprint.evaluation.average_precision import average_precision, cut_ranks
from bitprint.evaluation.gains import (
    Gains,
    average_gain,
    check_levels,
    gain_of,
    normalized_gain,
)
from bitprint.evaluation.histograms import Histograms, check_task
from bitprint.supervision import shared_labels
from bitprint.utils.parallel import on_every_core

_PAIRS = 2**19  # query-item pairs ranked at once on each core, about 70 bytes each


class Queries(Protocol):
    """Queries of a `Ranker`: vectors or codes that can be sliced."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class Ranker(Protocol):
    """A database with real-valued distances, such as quantized or weighted codes."""

    @property
    def bits(self) -> int:
        """Number of bits per item, K."""

    def __len__(self) -> int: ...

    def distances(self, queries: Any) -> NDArray[np.floating]:
        """Return distances of shape (Q, N)."""


class Ranked(NamedTuple):
    """Metrics of the ranked lists of all queries.

    Attributes
    ----------
    average_precision : ndarray of float64, shape (Q, T)
        At every cutoff; NaN for queries without a relevant item.
    total : ndarray of int64, shape (Q,)
        Number of relevant items of each query.
    hits : ndarray of float64, shape (Q, P)
        Expected number of relevant items among the first n.
    average_gain, normalized_gain : ndarray of float64, shape (Q, G)
        Expected ACG and NDCG of the first n.
    """

    average_precision: NDArray[np.float64]
    total: NDArray[np.int64]
    hits: NDArray[np.float64]
    average_gain: NDArray[np.float64]
    normalized_gain: NDArray[np.float64]


class RankedTask:
    """Queries and a database with real-valued distances, with their labels.

    Parameters
    ----------
    queries : Queries
        Q queries.
    database : Ranker
        N items.
    query_labels, labels : array_like
        As in `evaluate`.
    """

    def __init__(self, queries: Queries, query_labels: Any, database: Ranker, labels: Any) -> None:
        self.queries, self.database = queries, database
        self.query_labels, self.labels = check_task(queries, query_labels, database, labels)

    def measure(
        self,
        ranks: NDArray[np.int64],
        graded_ranks: NDArray[np.int64],
        chunk: int | None = None,
        **options: Any,
    ) -> Ranked:
        """Rank all queries, `chunk` at a time.

        Parameters
        ----------
        ranks : ndarray of int64, shape (P,)
            Ranks at which to count hits, in increasing order.
        graded_ranks : ndarray of int64, shape (G,)
            Ranks for graded relevance, which is not computed if this is empty.
        chunk : int, optional
            Number of queries whose distances are in memory at once, on each core.
        **options
            Options of `average_precision`.
        """
        depths = np.unique(cut_ranks(options["tops"], len(self.database)))

        def measured(rows: slice) -> Ranked:
            ranking = self.rank(rows)
            histograms = ranking.histograms
            stable = ranking.stable_sums(depths) if options["ties"] == "stable" else None
            no_gain = np.empty((len(histograms.items), 0))
            graded = no_gain, no_gain
            if len(graded_ranks):
                buckets = histograms.items, ranking.gains(), graded_ranks
                graded = average_gain(*buckets), normalized_gain(*buckets)
            return Ranked(
                average_precision(histograms, **options, stable=stable),
                histograms.relevant.sum(axis=1),
                kernels.expected_hits(*histograms, ranks),
                *graded,
            )

        most = chunk or max(1, _PAIRS // len(self.database))
        parts = on_every_core(measured, len(self.queries), most)
        return Ranked(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def rank(self, rows: slice) -> Ranking:
        """Rank the database for some of the queries."""
        return Ranking(*self.compare(rows))

    def compare(self, rows: slice) -> tuple[NDArray[np.floating], NDArray]:
        """Return distances and numbers of shared labels for some of the queries, both (q, N)."""
        distances = np.asarray(self.database.distances(self.queries[rows]))
        shared = shared_labels(self.query_labels[rows], self.labels)
        if distances.shape != shared.shape:
            raise ValueError(f"distances of shape {distances.shape}, expected {shared.shape}")
        if np.isnan(distances).any():
            raise ValueError("distances contain NaN")
        return distances, shared


class Ranking:
    """Ranked lists of q queries, with ties in database order.

    Parameters
    ----------
    distances : ndarray, shape (q, N)
    shared : ndarray, shape (q, N)
        Number of labels that an item shares with a query.

    Examples
    --------
    >>> ranking = Ranking(np.array([[0.5, 0.1, 0.5]]), np.array([[1, 2, 0]]))
    >>> ranking.histograms.items.tolist(), ranking.histograms.relevant.tolist()
    ([[1, 2]], [[1, 1]])
    """

    def __init__(self, distances: NDArray[np.floating], shared: NDArray) -> None:
        order = np.argsort(distances, axis=1, kind="stable")
        ranked = np.take_along_axis(distances, order, axis=1)
        self._shared = np.take_along_axis(shared, order, axis=1).astype(np.int32)
        self._relevant = self._shared > 0
        buckets = np.zeros(ranked.shape, np.int64)
        np.cumsum(ranked[:, 1:] != ranked[:, :-1], axis=1, out=buckets[:, 1:])
        self._buckets, self._width = buckets, int(buckets.max()) + 1
        self.histograms = Histograms(self._totals(None), self._totals(self._relevant))

    def gains(self) -> Gains:
        """Return the totals of graded relevance in each bucket."""
        most = int(self._shared.max())
        check_levels(most + 1)
        levels = [np.bincount(row, minlength=most + 1) for row in self._shared]
        gain = self._totals(gain_of(self._shared), float)
        return Gains(self._totals(self._shared), gain, np.array(levels))

    def stable_sums(self, tops: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of precisions and the number of hits up to each of `tops`, (q, T, 2).

        `tops` must increase; ties are in database order.
        """
        ranks = np.arange(1, self._relevant.shape[1] + 1)
        precision = self._relevant.cumsum(axis=1) / ranks * self._relevant
        both = np.stack([precision, self._relevant], axis=2)
        sums: NDArray[np.float64] = both.cumsum(axis=1)[:, tops - 1]
        return sums

    def _totals(self, amounts: NDArray | None, dtype: type = np.int64) -> NDArray:
        """Return the sum of the amounts (ones by default) in each bucket, shape (q, B)."""
        count = len(self._buckets)
        places = self._buckets + self._width * np.arange(count)[:, None]
        weights = None if amounts is None else amounts.ravel()
        totals = np.bincount(places.ravel(), weights, count * self._width)
        return totals.reshape(count, self._width).astype(dtype)
