"""Evaluate codes by the labels of what they retrieve: one call, one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.arguments import check_whole, plain
from bitprint.codes import Codes
from bitprint.evaluation import curves
from bitprint.evaluation.average_precision import DENOMINATORS, TIES, average_precision
from bitprint.evaluation.curves import Curve
from bitprint.evaluation.histograms import Histograms, Task
from bitprint.evaluation.rankings import Queries, RankedTask, Ranker
from bitprint.evaluation.report import Report

CUTOFFS = tuple(range(100, 1001, 100))
EMPTY = ("skip", "zero")

_WRAP = "or wrap an array of -1 and +1 with `Codes.from_signs`"


def evaluate(
    query_codes: Codes | Queries,
    query_labels: ArrayLike,
    database_codes: Codes | Ranker,
    database_labels: ArrayLike,
    *,
    top: int | None = None,
    ties: str = "expected",
    denominator: str = "retrieved",
    empty: str = "skip",
    radius: int = 2,
    cutoffs: Iterable[int] = CUTOFFS,
    device: str = "auto",
    chunk: int | None = None,
) -> Report:
    """Measure how well distance ranks the database items that share a label.

    `Codes` are ranked by Hamming distance. Codes with a distance of their own, such as
    `QuantisedCodes` and `WeightedCodes`, are ranked by that: any database with `distances`.

    Codes of K bits know only K + 1 distances, so most items are tied and a ranking is not unique.
    By default every figure is the exact expectation over all orders of the tied items.

    Parameters
    ----------
    query_codes, database_codes : Codes, or whatever has real-valued distances
        Q and N codes of the same number of bits; or a database whose `distances(queries)` returns
        an array (Q, N), with queries that it understands. See `Hasher.encode_queries`.
    query_labels, database_labels : array_like
        Class numbers, (Q,) and (N,), or matrices of zeros and ones, (Q, c) and (N, c). An item is
        relevant to a query when they share at least one label.
    top : int, optional
        Look at the first `top` items only (MAP@top); by default at the whole database.
    ties : {"expected", "stable", "optimistic", "pessimistic"}
        Order of items at the same distance: the expectation over all orders, the order of the
        database, relevant items first, or relevant items last. Concerns average precision only.
    denominator : {"retrieved", "total", "min"}
        What divides the sum of precisions when `top` cuts the list: the relevant items in the top,
        which is what most published MAP@5000 figures do; all R relevant items; or min(R, top).
        A query with relevant items, none of them in the top, scores 0. With "retrieved" fewer hits
        can score higher, so "optimistic" and "pessimistic" are orders, not bounds.
    empty : {"skip", "zero"}
        Queries without any relevant item are left out of every figure and curve; or they count
        with an average precision and a precision of 0, while their recall, 0 of 0 items, is
        undefined and left out.
    radius : int
        Hamming distance for `Report.precision_radius` and `Report.empty_balls`.
    cutoffs : iterable of int
        Ranks for `Report.precision_at` and `Report.recall_at`; those beyond N are left out.
    device : {"auto", "cpu", "cuda"}
        Where to count Hamming distances; "auto" takes a GPU when there is one and the task is
        large.
    chunk : int, optional
        Queries compared with the database at once. It bounds memory on a GPU, and everywhere for
        real-valued distances (`chunk` x N pairs), and never changes the result.

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
    """
    cutoffs, top, radius = list(cutoffs), plain(top), plain(radius)
    convention: dict[str, Any] = {"top": top, "ties": ties, "denominator": denominator}
    check_conventions(**convention, empty=empty, radius=radius, cutoffs=cutoffs)
    if chunk is not None:
        check_whole("chunk", chunk, 1)
    ranks = np.array([n for n in sorted(set(cutoffs)) if n <= len(database_codes)], np.int64)
    if isinstance(database_codes, Codes) and isinstance(query_codes, Codes):
        task = Task(query_codes, query_labels, database_codes, database_labels)
        found = _by_hamming(task, ranks, radius, device, chunk, convention, skip=empty == "skip")
    else:
        ranker = _check_ranker(query_codes, database_codes)
        ranked = RankedTask(query_codes, query_labels, ranker, database_labels)
        found = _by_distance(ranked, ranks, chunk, convention, skip=empty == "skip")
    precisions = found.average_precision
    empty_queries = int(np.isnan(precisions).sum())
    if empty == "zero":
        precisions = np.nan_to_num(precisions, nan=0.0)
    cut = found.cut
    return Report(
        map=float(np.nanmean(precisions)),
        average_precision=precisions,
        empty_queries=empty_queries,
        precision_radius=found.precision_radius,
        empty_balls=found.empty_balls,
        precision_at=dict(zip(cut.at.tolist(), cut.precision.tolist(), strict=True)),
        recall_at=dict(zip(cut.at.tolist(), cut.recall.tolist(), strict=True)),
        pr_curve=found.ranking,
        pr_lookup=found.lookup,
        pr_lookup_pooled=found.pooled_lookup,
        bits=database_codes.bits,
        queries=len(query_codes),
        database=len(database_codes),
        top=top,
        ties=ties,
        denominator=denominator,
        empty=empty,
        radius=radius if isinstance(database_codes, Codes) else None,
    )


def check_conventions(
    *,
    top: int | None = None,
    ties: str = "expected",
    denominator: str = "retrieved",
    empty: str = "skip",
    radius: int = 2,
    cutoffs: Sequence[int] = CUTOFFS,
) -> None:
    """Raise a ValueError unless `evaluate` takes these options: before long work, say.

    Examples
    --------
    >>> check_conventions(top=5000, ties="stable")
    >>> check_conventions(empty="ignore")
    Traceback (most recent call last):
    ValueError: empty is one of skip, zero; got 'ignore'
    """
    _check_choice("ties", ties, TIES)
    _check_choice("denominator", denominator, DENOMINATORS)
    _check_choice("empty", empty, EMPTY)
    if top is not None:
        check_whole("top", top, 1)
    check_whole("radius", radius, 0)
    for cutoff in cutoffs:
        check_whole("every cutoff", cutoff, 1)


class _Found(NamedTuple):
    """The figures of a report that depend on how the database is ranked."""

    average_precision: NDArray[np.float64]
    cut: Curve
    ranking: Curve
    lookup: Curve
    pooled_lookup: Curve
    precision_radius: float
    empty_balls: int


def _by_hamming(
    task: Task,
    ranks: NDArray[np.int64],
    radius: int,
    device: str,
    chunk: int | None,
    convention: dict[str, Any],
    *,
    skip: bool,
) -> _Found:
    histograms = task.count(device, chunk)
    _check_any_relevant(histograms.relevant)
    precisions = average_precision(task, histograms, **convention)
    if skip:
        answerable = histograms.relevant.any(axis=1)
        histograms = Histograms(histograms.items[answerable], histograms.relevant[answerable])
    return _Found(
        precisions,
        curves.at_ranks(histograms, ranks),
        curves.by_ranking(histograms),
        curves.by_lookup(histograms),
        curves.by_pooled_lookup(histograms),
        float(curves.precision_within(histograms, radius).mean()),
        _empty_balls(histograms, radius),
    )


def _by_distance(
    task: RankedTask,
    ranks: NDArray[np.int64],
    chunk: int | None,
    convention: dict[str, Any],
    *,
    skip: bool,
) -> _Found:
    along = curves.curve_ranks(len(task.database))
    every = np.union1d(ranks, along)
    ranked = task.measure(every, chunk, **convention)
    _check_any_relevant(ranked.total)
    counted = ranked.total > 0 if skip else np.ones(len(ranked.total), np.bool_)
    hits, total = ranked.hits[counted], ranked.total[counted]

    def curve(at: NDArray[np.int64]) -> Curve:
        return curves.averaged(hits.compress(np.isin(every, at), axis=1), total, at)

    nothing = Curve(np.empty(0), np.empty(0), np.empty(0, np.int64))
    return _Found(
        ranked.average_precision,
        curve(ranks),
        curve(along),
        nothing,
        nothing,
        float("nan"),
        0,
    )


def _check_ranker(queries: Codes | Queries, database: Codes | Ranker) -> Ranker:
    """Return the database, or raise unless it has distances of its own."""
    if isinstance(database, Codes):
        raise ValueError(
            "a database of Codes is ranked by Hamming distance from queries that are Codes, got "
            f"{type(queries).__name__}; encode both with the same hasher, {_WRAP}"
        )
    if not hasattr(database, "distances"):
        raise ValueError(
            "a database is Codes, or has a method `distances` of its own, got "
            f"{type(database).__name__}; encode it with a hasher, {_WRAP}"
        )
    return database


def _empty_balls(histograms: Histograms, radius: int) -> int:
    """How many queries have nothing within `radius`."""
    return int(np.count_nonzero(histograms.items[:, : radius + 1].sum(axis=1) == 0))


def _check_any_relevant(relevant: NDArray) -> None:
    if not relevant.any():
        raise ValueError(
            "no query shares a label with any database item; check that both use the same classes"
        )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}; got {value!r}")
