"""Report: what an evaluation measured, for programs and for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation.curves import Curve


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
        Queries without a relevant item in the database. With `empty` "skip" nothing below but
        `queries` counts them; with "zero" their precision is 0, and no recall counts them.
    precision_radius : float
        Precision within distance `radius`, averaged over queries; an empty ball counts 0.
    empty_balls : int
        Queries with nothing within distance `radius`, whose precision there is such a 0.
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

    Notes
    -----
    A ranking by real-valued distances has no Hamming balls: `radius` is None, `precision_radius`
    and `precision_radius2` are NaN (None in `as_dict`), `empty_balls` is 0, and the two curves of
    lookup have no points.

    Examples
    --------
    >>> import json
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> report = bp.evaluate(codes, [0, 1, 1], codes, [0, 1, 1], cutoffs=[1, 2])
    >>> print(report.summary())
    3 queries, 3 database items, 4 bits
    MAP 0.9444 (ties expected)
    precision within radius 2 0.6667 (0 queries find nothing there)
    precision@1 1.0000
    precision@2 0.6667
    >>> report.average_precision.round(4).tolist(), round(report.precision_radius2, 4)
    ([1.0, 0.8333, 1.0], 0.6667)
    >>> json.loads(json.dumps(report.as_dict()))["recall_at"]
    {'1': 0.6666666666666666, '2': 0.8333333333333334}
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
    radius: int | None

    @property
    def precision_radius2(self) -> float:
        """Precision within Hamming distance 2, whatever `radius` was asked for."""
        if self.radius is None:
            return float("nan")
        return float(self.pr_lookup.precision[min(2, self.bits)])

    def as_dict(self) -> dict[str, Any]:
        """All but the per-query figures, in types that `json.dumps` takes."""
        curves = ("pr_curve", "pr_lookup", "pr_lookup_pooled")
        left_out = ("average_precision", *curves)
        figures = {name: value for name, value in vars(self).items() if name not in left_out}
        figures["precision_radius2"] = self.precision_radius2
        if self.radius is None:
            figures |= {"precision_radius": None, "precision_radius2": None}
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
        ]
        if self.radius is not None:
            lines.append(
                f"precision within radius {self.radius} {self.precision_radius:.4f} "
                f"({self.empty_balls} queries find nothing there)"
            )
        lines += [f"precision@{n} {value:.4f}" for n, value in self.precision_at.items()]
        if self.empty_queries:
            treatment = "skipped" if self.empty == "skip" else "counted as 0"
            lines.append(f"{self.empty_queries} queries without a relevant item, {treatment}")
        return "\n".join(lines)
