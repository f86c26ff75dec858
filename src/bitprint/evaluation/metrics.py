"""Evaluate codes by the labels of the retrieved items."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes, CodesLike, as_codes
from bitprint.evaluation import curves
from bitprint.evaluation.average_precision import (
    DENOMINATORS,
    TIES,
    average_precision,
    cut_ranks,
)
from bitprint.evaluation.curves import NO_CURVE, Curve
from bitprint.evaluation.gains import average_gain, normalized_gain
from bitprint.evaluation.histograms import Histograms, Task
from bitprint.evaluation.rankings import Queries, RankedTask, Ranker
from bitprint.evaluation.report import Report
from bitprint.utils.arguments import check_whole, plain

CUTOFFS = tuple(range(100, 1001, 100))
EMPTY = ("skip", "zero")


def evaluate(
    query_codes: CodesLike | Queries,
    query_labels: Any,
    database_codes: CodesLike | Ranker,
    database_labels: Any,
    *,
    top: int | Iterable[int] | None = None,
    graded: bool = False,
    ties: str = "expected",
    denominator: str = "retrieved",
    empty: str = "skip",
    radius: int = 2,
    cutoffs: Iterable[int] = CUTOFFS,
    device: str = "auto",
    chunk: int | None = None,
) -> Report:
    """Evaluate retrieval: how well distances rank the database items that share a label.

    Codes are ranked by Hamming distance. A database with a method `distances`, such as
    `QuantisedCodes` and `WeightedCodes`, is ranked by those distances.

    Codes of K bits have only K + 1 distances, so most items are tied and the ranking is not
    unique. By default every metric is the exact expectation over all orders of tied items.

    Parameters
    ----------
    query_codes, database_codes : Codes, or array_like of shapes (Q, K) and (N, K)
        Codes of the same number of bits. Arrays and torch tensors contain -1 and +1. Alternatively
        a database whose `distances(queries)` returns an array (Q, N), and queries for it, see
        `Hasher.encode_queries`.
    query_labels, database_labels : array_like, or list of lists of str
        One label per image: (Q,) and (N,) class numbers or class names. Several labels per image:
        matrices of 0 and 1, (Q, c) and (N, c), or a list of names for each image. An item is
        relevant to a query if they share at least one label.
    top : int or iterable of int, optional
        Cutoffs of MAP. With an integer, `Report.map` is MAP@top. With several, `Report.map` is
        over the whole ranking, and `Report.map_at` contains MAP at each cutoff. Default: the whole
        ranking only.
    graded : bool
        Compute NDCG and ACG too (`Report.ndcg_at`, `Report.acg_at`). The relevance of an item is
        the number of labels that it shares with the query. This is slower for multi-label images.
    ties : {"expected", "stable", "optimistic", "pessimistic"}
        Order of items at the same distance: the expectation over all orders, the order of the
        database, relevant items first, or relevant items last. Affects average precision only.
    denominator : {"retrieved", "total", "min"}
        Divisor of the sum of precisions if `top` cuts the list: the relevant items in the top (the
        usual choice in published MAP@5000), all R relevant items, or min(R, top). A query with
        relevant items but none in the top has AP 0. With "retrieved", fewer hits can have a higher
        AP, so "optimistic" and "pessimistic" are orders, not bounds.
    empty : {"skip", "zero"}
        Queries without a relevant item: "skip" excludes them from all metrics and curves. "zero"
        includes them with average precision and precision 0; their recall, 0 of 0 items, is
        undefined and excluded.
    radius : int
        Hamming distance for `Report.precision_radius` and `Report.empty_balls`.
    cutoffs : iterable of int
        Ranks for `Report.precision_at`, `recall_at`, `ndcg_at` and `acg_at`. Ranks beyond N are
        ignored.
    device : {"auto", "cpu", "cuda"}
        Device for counting Hamming distances; "auto" uses a GPU if available and the task is large.
    chunk : int, optional
        Number of queries compared with the database at once. It limits memory on a GPU, and on all
        devices for real-valued distances (`chunk` x N pairs), and does not change the result.

    Returns
    -------
    Report

    Examples
    --------
    >>> from bitprint import Codes
    >>> query = Codes.from_signs([[1, 1, 1, 1]])
    >>> database = Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, 1, 1, 1], [-1, -1, -1, -1]])
    >>> report = evaluate(query, [0], database, [0, 0, 1, 1])
    >>> round(report.map, 4), report.precision_radius2  # ranks 2 and 3 are tied
    (0.9167, 0.6666666666666666)
    >>> evaluate(query, [0], database, [0, 0, 1, 1], ties="optimistic").map
    1.0

    Arrays of -1 and +1, class names, and MAP at two cutoffs:

    >>> report = evaluate(
    ...     query.signs(), ["cat"], database.signs(), ["cat", "cat", "dog", "dog"], top=[1, 2]
    ... )
    >>> report.map_at
    {1: 1.0, 2: 1.0}
    """
    cutoffs, tops, radius = list(cutoffs), _as_tops(top), plain(radius)
    convention: dict[str, Any] = {"ties": ties, "denominator": denominator}
    check_conventions(**convention, empty=empty, radius=radius, cutoffs=cutoffs)
    if chunk is not None:
        check_whole("chunk", chunk, 1)
    queries, database = _as_pair(query_codes, database_codes)
    ranks = np.array([n for n in sorted(set(cutoffs)) if n <= len(database)], np.int64)
    asked = _Asked(ranks, ranks if graded else ranks[:0], radius, empty == "skip")
    convention["tops"] = tops
    by_hamming = isinstance(database, Codes)
    if by_hamming:
        task = Task(queries, query_labels, database, database_labels)
        found = _by_hamming(task, asked, device, chunk, convention)
    else:
        ranked = RankedTask(queries, query_labels, database, database_labels)
        found = _by_distance(ranked, asked, chunk, convention)
    precisions = found.average_precision
    empty_queries = int(np.isnan(precisions[:, 0]).sum())
    if empty == "zero":
        precisions = np.nan_to_num(precisions, nan=0.0)
    maps = [float(np.nanmean(column)) for column in precisions.T]
    cut, graded_at = found.cut, asked.graded_ranks.tolist()
    return Report(
        map=maps[0],
        map_at={n: value for n, value in zip(tops, maps, strict=True) if n is not None},
        average_precision=precisions[:, 0],
        empty_queries=empty_queries,
        precision_radius=found.precision_radius,
        empty_balls=found.empty_balls,
        precision_at=dict(zip(cut.at.tolist(), cut.precision.tolist(), strict=True)),
        recall_at=dict(zip(cut.at.tolist(), cut.recall.tolist(), strict=True)),
        ndcg_at=dict(zip(graded_at, found.normalized_gain.tolist(), strict=True)),
        acg_at=dict(zip(graded_at, found.average_gain.tolist(), strict=True)),
        pr_curve=found.ranking,
        pr_lookup=found.lookup,
        pr_lookup_pooled=found.pooled_lookup,
        bits=database.bits,
        queries=len(queries),
        database=len(database),
        top=tops[0],
        ties=ties,
        denominator=denominator,
        empty=empty,
        radius=radius if by_hamming else None,
    )


def check_conventions(
    *,
    top: int | Iterable[int] | None = None,
    ties: str = "expected",
    denominator: str = "retrieved",
    empty: str = "skip",
    radius: int = 2,
    cutoffs: Sequence[int] = CUTOFFS,
) -> None:
    """Raise a ValueError if `evaluate` would reject these options; for use before long work.

    Examples
    --------
    >>> check_conventions(top=5000, ties="stable")
    >>> check_conventions(empty="ignore")
    Traceback (most recent call last):
    ValueError: empty must be one of skip, zero, got 'ignore'
    """
    _check_choice("ties", ties, TIES)
    _check_choice("denominator", denominator, DENOMINATORS)
    _check_choice("empty", empty, EMPTY)
    _as_tops(top)
    check_whole("radius", radius, 0)
    for cutoff in cutoffs:
        check_whole("every cutoff", cutoff, 1)


class _Asked(NamedTuple):
    """Options of the metrics other than average precision."""

    ranks: NDArray[np.int64]
    graded_ranks: NDArray[np.int64]
    radius: int
    skip: bool


class _Found(NamedTuple):
    """The metrics of a report that depend on the ranking."""

    average_precision: NDArray[np.float64]
    cut: Curve
    ranking: Curve
    average_gain: NDArray[np.float64]
    normalized_gain: NDArray[np.float64]
    lookup: Curve = NO_CURVE
    pooled_lookup: Curve = NO_CURVE
    precision_radius: float = float("nan")
    empty_balls: int = 0


def _by_hamming(
    task: Task, asked: _Asked, device: str, chunk: int | None, convention: dict[str, Any]
) -> _Found:
    gains = stable = None
    if convention["ties"] == "stable":
        depths = np.unique(cut_ranks(convention["tops"], len(task.codes)))
        histograms, stable = task.count_in_order(depths, device)
    if len(asked.graded_ranks):
        histograms, gains = task.count_gains(device, chunk)
    elif stable is None:
        histograms = task.count(device, chunk)
    _check_any_relevant(histograms.relevant)
    precisions = average_precision(histograms, **convention, stable=stable)
    if asked.skip:
        answerable = np.asarray(histograms.relevant.any(axis=1))
        histograms = Histograms(*(each[answerable] for each in histograms))
        gains = gains and gains.of(answerable)
    graded = np.empty(0), np.empty(0)
    if gains:
        buckets = histograms.items, gains, asked.graded_ranks
        graded = average_gain(*buckets).mean(axis=0), normalized_gain(*buckets).mean(axis=0)
    return _Found(
        precisions,
        curves.at_ranks(histograms, asked.ranks),
        curves.by_ranking(histograms),
        *graded,
        curves.by_lookup(histograms),
        curves.by_pooled_lookup(histograms),
        float(curves.precision_within(histograms, asked.radius).mean()),
        _empty_balls(histograms, asked.radius),
    )


def _by_distance(
    task: RankedTask, asked: _Asked, chunk: int | None, convention: dict[str, Any]
) -> _Found:
    along = curves.curve_ranks(len(task.database))
    every = np.union1d(asked.ranks, along)
    ranked = task.measure(every, asked.graded_ranks, chunk, **convention)
    _check_any_relevant(ranked.total)
    counted = ranked.total > 0 if asked.skip else np.ones(len(ranked.total), np.bool_)
    hits, total = ranked.hits[counted], ranked.total[counted]

    def curve(at: NDArray[np.int64]) -> Curve:
        return curves.averaged(hits.compress(np.isin(every, at), axis=1), total, at)

    return _Found(
        ranked.average_precision,
        curve(asked.ranks),
        curve(along),
        ranked.average_gain[counted].mean(axis=0),
        ranked.normalized_gain[counted].mean(axis=0),
    )


def _as_tops(top: int | Iterable[int] | None) -> list[int | None]:
    """Return the cutoffs of average precision; the first is the cutoff of `Report.map`."""
    if top is None:
        return [None]
    if isinstance(top, str) or not isinstance(top, Iterable):
        return [check_whole("top", top, 1)]
    several = sorted({check_whole("every cutoff of top", each, 1) for each in top})
    if not several:
        raise ValueError("top is empty; pass one or more integers, or None for the whole ranking")
    return [None, *several]


def _as_pair(queries: Any, database: Any) -> tuple[Any, Any]:
    """Convert queries and database to `Codes`, unless the database has a method `distances`."""
    if hasattr(database, "distances"):
        return queries, database
    return _as_codes("query", queries), _as_codes("database", database)


def _as_codes(role: str, codes: Any) -> Codes:
    """Convert an array of -1 and +1 to `Codes`."""
    if not isinstance(codes, Codes | list | tuple) and not hasattr(codes, "__array__"):
        raise ValueError(
            f"{role} codes must be Codes or an array of -1 and +1, got {type(codes).__name__}; "
            "encode the images with a hasher, or pass a database with a method `distances`"
        )
    try:
        return as_codes(codes)
    except ValueError as error:
        raise ValueError(f"{role} codes: {error}") from error


def _empty_balls(histograms: Histograms, radius: int) -> int:
    """Return the number of queries without items within `radius`."""
    return int(np.count_nonzero(histograms.items[:, : radius + 1].sum(axis=1) == 0))


def _check_any_relevant(relevant: NDArray) -> None:
    if not relevant.any():
        raise ValueError(
            "no query shares a label with any database item; check that both use the same classes"
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
