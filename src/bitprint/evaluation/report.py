"""Report: the metrics of an evaluation, with a printable table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation.curves import Curve

_NAME = "{:<22}"
_MOST_MAPS = 3  # rows and columns of the printed table; the report contains all cutoffs
_MOST_COLUMNS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Metrics and options of `evaluate`.

    `print(report)` prints a short table.

    Attributes
    ----------
    map : float
        Mean average precision: MAP@top if `top` is an integer, otherwise over the whole ranking.
    map_at : dict of int to float
        MAP at each cutoff in `top`.
    average_precision : ndarray of float64, shape (Q,)
        Average precision of each query; NaN for skipped queries without a relevant item.
    empty_queries : int
        Number of queries without a relevant item. With `empty="skip"` they are excluded from all
        metrics below, but included in `queries`. With `empty="zero"` their precision is 0, and
        they are excluded from recall.
    precision_radius : float
        Precision within distance `radius`, averaged over queries; 0 for an empty ball.
    empty_balls : int
        Number of queries without items within distance `radius`.
    precision_at, recall_at : dict of int to float
        Precision and recall of the first n items, expected over the order of tied items.
    ndcg_at, acg_at : dict of int to float
        Graded relevance of the first n items, also expected over ties; empty unless `graded`.
        ACG is the mean number of labels that an item shares with the query. NDCG discounts a gain
        of 2^r - 1 for r shared labels by log2(1 + rank), relative to the best possible ranking.
    pr_curve : Curve
        Precision and recall along the ranked list, averaged over queries.
    pr_lookup : Curve
        Precision and recall within radius 0..K, averaged over queries.
    pr_lookup_pooled : Curve
        Precision and recall within radius 0..K over the pooled hits of all queries.
    bits, queries, database : int
        Number of bits K, of queries Q and of database items N.
    top : int or None
        Cutoff of `map`.
    ties, denominator, empty, radius
        Options of `evaluate`.

    Notes
    -----
    A ranking by real-valued distances has no Hamming balls: `radius` is None, `precision_radius`
    and `precision_radius2` are NaN (None in `as_dict`), `empty_balls` is 0, and the two lookup
    curves have no points.

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
        """Precision within Hamming distance 2, for any `radius`."""
        if self.radius is None:
            return float("nan")
        return float(self.pr_lookup.precision[min(2, self.bits)])

    def as_dict(self) -> dict[str, Any]:
        """Return all metrics except those per query, in types that `json.dumps` supports."""
        curves = ("pr_curve", "pr_lookup", "pr_lookup_pooled")
        left_out = ("average_precision", *curves)
        metrics = {name: value for name, value in vars(self).items() if name not in left_out}
        metrics["precision_radius2"] = self.precision_radius2
        if self.radius is None:
            metrics |= {"precision_radius": None, "precision_radius2": None}
        for name in curves:
            points = getattr(self, name)._asdict()
            metrics[name] = {axis: values.tolist() for axis, values in points.items()}
        return metrics

    def summary(self) -> str:
        """Return the table of `print(report)`."""
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
        """Return the rows of MAP and of MAP at some other cutoffs."""
        cut = f"divided by: {self.denominator}"
        note = f"ties: {self.ties}" + ("" if self.top is None else f", {cut}")
        others = [n for n in self.map_at if n != self.top]
        return [
            _row(self._depth(), [self.map], note),
            *(_row(f"MAP@{n}", [self.map_at[n]], cut) for n in _spread(others, _MOST_MAPS)),
        ]

    def _cutoff_lines(self) -> list[str]:
        """Return the rows of metrics of the first n items, for some cutoffs n."""
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
    """Select at most `most` cutoffs, evenly spread from the first to the last."""
    if len(cutoffs) <= most:
        return cutoffs
    return [cutoffs[round(place)] for place in np.linspace(0, len(cutoffs) - 1, most)]
