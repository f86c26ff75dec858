"""Report: the result of an evaluation, with a printed table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation.curves import Curve

_NAME = "{:<22}"
_MOST_MAPS = 3  # rows and columns of the printed table; the report itself has all cutoffs
_MOST_COLUMNS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """The metrics that `evaluate` measured, and its options.

    `print(report)` prints a short table.

    Attributes
    ----------
    map : float
        Mean average precision: MAP@top if `top` is an integer, otherwise over the whole ranking.
    map_at : dict of int to float
        MAP at each cutoff that `evaluate` was given as `top`.
    average_precision : ndarray of float64, shape (Q,)
        The terms of `map`; NaN for a query without a relevant item when those are skipped.
    empty_queries : int
        Queries without a relevant item in the database. With `empty` "skip" nothing below but
        `queries` counts them; with "zero" their precision is 0, and no recall counts them.
    precision_radius : float
        Precision within distance `radius`, averaged over queries; an empty ball counts 0.
    empty_balls : int
        Queries with nothing within distance `radius`, whose precision there is such a 0.
    precision_at, recall_at : dict of int to float
        Precision and recall of the first n items, expected over the order of tied items.
    ndcg_at, acg_at : dict of int to float
        Graded relevance of the first n items, expected in the same way; empty unless `graded`.
        ACG is the mean number of labels that an item shares with the query. NDCG discounts a gain
        of 2^r - 1 for r shared labels by log2(1 + rank), relative to the best possible ranking.
    pr_curve : Curve
        Precision and recall along the ranked list, averaged over queries.
    pr_lookup : Curve
        Precision and recall within radius 0..K, averaged over queries.
    pr_lookup_pooled : Curve
        The same with the hits of all queries in one pool.
    bits, queries, database : int
        Size of the task: K, Q and N.
    top : int or None
        The cutoff of `map`.
    ties, denominator, empty, radius
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
    >>> print(report)
    3 queries, 3 database items, 4 bits
    MAP                     0.9444  ties: expected
    precision, radius 2     0.6667  0 queries with no item there
                                @1      @2
    precision               1.0000  0.6667
    recall                  0.6667  0.8333
    >>> report.summary() == str(report)
    True
    >>> report
    Report(MAP 0.9444, 3 queries, 3 database items, 4 bits)
    >>> report.average_precision.round(4).tolist(), round(report.precision_radius2, 4)
    ([1.0, 0.8333, 1.0], 0.6667)
    >>> json.loads(json.dumps(report.as_dict()))["recall_at"]
    {'1': 0.6666666666666666, '2': 0.8333333333333334}
    """

    map: float
    map_at: dict[int, float]
    average_precision: NDArray[np.float64]
    empty_queries: int
    precision_radius: float
    empty_balls: int
    precision_at: dict[int, float]
    recall_at: dict[int, float]
    ndcg_at: dict[int, float]
    acg_at: dict[int, float]
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
        """All but the per-query metrics, in types that `json.dumps` takes."""
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
        """Return the table that `print(report)` prints."""
        lines = [self._size(), *self._map_lines()]
        if self.radius is not None:
            note = f"{self.empty_balls} queries with no item there"
            lines.append(_row(f"precision, radius {self.radius}", [self.precision_radius], note))
        lines += self._cutoff_lines()
        if self.empty_queries:
            treatment = "skipped" if self.empty == "skip" else "counted as 0"
            lines.append(f"{self.empty_queries} queries without a relevant item, {treatment}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"Report({self._depth()} {self.map:.4f}, {self._size()})"

    def _size(self) -> str:
        return f"{self.queries} queries, {self.database} database items, {self.bits} bits"

    def _depth(self) -> str:
        return "MAP" if self.top is None else f"MAP@{self.top}"

    def _map_lines(self) -> list[str]:
        """MAP, then MAP at some of the other cutoffs."""
        cut = f"divided by: {self.denominator}"
        note = f"ties: {self.ties}" + ("" if self.top is None else f", {cut}")
        others = [n for n in self.map_at if n != self.top]
        return [
            _row(self._depth(), [self.map], note),
            *(_row(f"MAP@{n}", [self.map_at[n]], cut) for n in _spread(others, _MOST_MAPS)),
        ]

    def _cutoff_lines(self) -> list[str]:
        """Metrics of the first n items, for some of the cutoffs n."""
        shown = _spread(list(self.precision_at), _MOST_COLUMNS)
        if not shown:
            return []
        metrics = {
            "precision": self.precision_at,
            "recall": self.recall_at,
            "NDCG": self.ndcg_at,
            "ACG": self.acg_at,
        }
        return [
            (_NAME.format("") + "".join(f"{f'@{n}':>8}" for n in shown)),
            *(_row(name, [each[n] for n in shown]) for name, each in metrics.items() if each),
        ]


def _row(name: str, values: list[float], note: str = "") -> str:
    row = _NAME.format(name) + "".join(f"{value:8.4f}" for value in values)
    return f"{row}  {note}" if note else row


def _spread(cutoffs: list[int], most: int) -> list[int]:
    """At most `most` of the cutoffs, evenly spread from the first to the last."""
    if len(cutoffs) <= most:
        return cutoffs
    return [cutoffs[round(place)] for place in np.linspace(0, len(cutoffs) - 1, most)]
