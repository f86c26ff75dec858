"""Evaluate codes by the labels of what they retrieve: one call, one report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.codes import Codes
from bitprint.evaluation import curves
from bitprint.evaluation.average_precision import DENOMINATORS, TIES, average_precision
from bitprint.evaluation.curves import Curve
from bitprint.evaluation.histograms import Task

CUTOFFS = tuple(range(100, 1001, 100))
EMPTY = ("skip", "zero")


@dataclass(frozen=True, eq=False)
class Report:
    """What `evaluate` measured, with the conventions it used.

    Attributes
    ----------
    map : float
        Mean average precision.
    average_precision : ndarray of float64, shape (Q,)
        Per query; NaN for a query without a relevant item when those are skipped.
    empty_queries : int
        Queries without a relevant item in the database.
    precision_radius : float
        Precision within distance `radius`, averaged over queries; an empty ball counts 0.
    empty_balls : int
        Queries with nothing within distance `radius`.
    precision_at, recall_at : dict of int to float
        Precision and recall of the first n items, expected over the order of tied items.
    pr_curve : Curve
        Precision and recall along the ranked list, averaged over queries.
    pr_lookup : Curve
        Precision and recall within radius 0..K, averaged over queries.
    pr_lookup_pooled : Curve
        The same with the hits of all queries in one pool.
    bits, queries, database : int
        Size of the task: K, Q and N.
    top, ties, denominator, empty, radius
        The options of `evaluate`.
    """

    map: float
    average_precision: NDArray[np.float64]
    empty_queries: int
    precision_radius: float
    empty_balls: int
    precision_at: dict[int, float]
    recall_at: dict[int, float]
    pr_curve: Curve
    pr_lookup: Curve
    pr_lookup_pooled: Curve
    bits: int
    queries: int
    database: int
    top: int | None
    ties: str
    denominator: str
    empty: str
    radius: int

    @property
    def precision_radius2(self) -> float:
        """Precision within Hamming distance 2, whatever `radius` was asked for."""
        return float(self.pr_lookup.precision[min(2, self.bits)])

    def as_dict(self) -> dict[str, Any]:
        """All but the per-query figures, in types that `json.dumps` takes."""
        curves = ("pr_curve", "pr_lookup", "pr_lookup_pooled")
        left_out = ("average_precision", *curves)
        figures = {name: value for name, value in vars(self).items() if name not in left_out}
        figures["precision_radius2"] = self.precision_radius2
        for name in curves:
            points = getattr(self, name)._asdict()
            figures[name] = {axis: values.tolist() for axis, values in points.items()}
        return figures

    def summary(self) -> str:
        """A few lines for people."""
        depth = "" if self.top is None else f"@{self.top}"
        convention = f"ties {self.ties}"
        if self.top is not None:
            convention += f", divided by {self.denominator}"
        lines = [
            f"{self.queries} queries, {self.database} database items, {self.bits} bits",
            f"MAP{depth} {self.map:.4f} ({convention})",
            f"precision within radius {self.radius} {self.precision_radius:.4f} "
            f"({self.empty_balls} queries find nothing there)",
        ]
        lines += [f"precision@{n} {value:.4f}" for n, value in self.precision_at.items()]
        if self.empty_queries:
            treatment = "skipped" if self.empty == "skip" else "counted as 0"
            lines.append(f"{self.empty_queries} queries without a relevant item, {treatment}")
        return "\n".join(lines)


def evaluate(
    query_codes: Codes,
    query_labels: ArrayLike,
    database_codes: Codes,
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
    """Measure how well Hamming distance ranks the database items that share a label.

    Codes of K bits know only K + 1 distances, so most items are tied and a ranking is not unique.
    By default every figure is the exact expectation over all orders of the tied items.

    Parameters
    ----------
    query_codes, database_codes : Codes
        Q and N codes of the same number of bits.
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
        Queries without any relevant item are left out of the mean, or count 0.
    radius : int
        Distance for `Report.precision_radius` and `Report.empty_balls`.
    cutoffs : iterable of int
        Ranks for `Report.precision_at` and `Report.recall_at`; those beyond N are left out.
    device : {"auto", "cpu", "cuda"}
        Where to count; "auto" takes a GPU when there is one and the task is large.
    chunk : int, optional
        Queries compared with the database at once. It bounds memory on a GPU (`chunk` x N pairs)
        and never changes the result.

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
    _check_choice("ties", ties, TIES)
    _check_choice("denominator", denominator, DENOMINATORS)
    _check_choice("empty", empty, EMPTY)
    cutoffs = sorted(set(cutoffs))
    _check_at_least("top", top, 1)
    _check_at_least("chunk", chunk, 1)
    _check_at_least("radius", radius, 0)
    _check_at_least("every cutoff", min(cutoffs, default=None), 1)
    task = Task(query_codes, query_labels, database_codes, database_labels)
    histograms = task.count(device, chunk)
    if not histograms.relevant.any():
        raise ValueError(
            "no query shares a label with any database item; check that both use the same classes"
        )
    precisions = average_precision(task, histograms, top=top, ties=ties, denominator=denominator)
    empty_queries = int(np.isnan(precisions).sum())
    if empty == "zero":
        precisions = np.nan_to_num(precisions, nan=0.0)
    cut = curves.at_ranks(histograms, [n for n in cutoffs if n <= len(database_codes)])
    inside = histograms.items[:, : radius + 1].sum(axis=1)
    return Report(
        map=float(np.nanmean(precisions)),
        average_precision=precisions,
        empty_queries=empty_queries,
        precision_radius=float(curves.precision_within(histograms, radius).mean()),
        empty_balls=int(np.count_nonzero(inside == 0)),
        precision_at=dict(zip(cut.at.tolist(), cut.precision.tolist(), strict=True)),
        recall_at=dict(zip(cut.at.tolist(), cut.recall.tolist(), strict=True)),
        pr_curve=curves.by_ranking(histograms),
        pr_lookup=curves.by_lookup(histograms),
        pr_lookup_pooled=curves.by_pooled_lookup(histograms),
        bits=task.bits,
        queries=len(query_codes),
        database=len(database_codes),
        top=top,
        ties=ties,
        denominator=denominator,
        empty=empty,
        radius=radius,
    )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}; got {value!r}")


def _check_at_least(name: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
