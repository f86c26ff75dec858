"""Curves of cells, stored in a CSV file next to their table; the plots are drawn from it."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation.metrics import CUTOFFS
from bitprint.evaluation.report import Report
from bitprint.utils.files import write_atomically

if TYPE_CHECKING:
    from bitprint.experiments.cells import Cell

RECALLS = np.linspace(0, 1, 51)
"""Recall values at which precision-recall curves are stored."""

_KEY = ("dataset", "protocol", "backbone", "variant", "bits", "seed", "measured_on")
_COLUMNS = (
    *_KEY,
    *(f"precision_at_{rank}" for rank in CUTOFFS),
    *(f"precision_at_recall_{recall:.2f}" for recall in RECALLS),
)


class Curves(NamedTuple):
    """Stored curves of a report; NaN for missing values, such as ranks beyond the database.

    Attributes
    ----------
    precision_at : ndarray of float64, shape (10,)
        Precision of the first `CUTOFFS` items.
    precision_at_recall : ndarray of float64, shape (51,)
        Precision of the ranked list at the recall values `RECALLS`.
    """

    precision_at: NDArray[np.float64]
    precision_at_recall: NDArray[np.float64]


def curves_of(report: Report) -> Curves:
    """Return the curves of a report at fixed points, by linear interpolation."""
    missing = float("nan")
    return Curves(
        np.array([report.precision_at.get(rank, missing) for rank in CUTOFFS]),
        np.interp(RECALLS, report.pr_curve.recall, report.pr_curve.precision),
    )


def save_curves(cell: Cell, report: Report, table: Path) -> None:
    """Save the curves of a cell next to its table; replace earlier curves of the cell.

    Parameters
    ----------
    cell : Cell
    report : Report
    table : path
        The CSV file of the cells. The curves are written to `curves_file(table)`.
    """
    file = curves_file(table)
    rows = [row for row in _rows(file) if tuple(row[: len(_KEY)]) != cell.key]
    values = np.concatenate(curves_of(report))
    rows.append([*cell.key, *(f"{value:.5f}" for value in values)])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *rows])
    write_atomically(file, text.getvalue().encode())


def read_curves(table: Path) -> dict[tuple[str, ...], Curves]:
    """Return the stored curves of a table by the key of their cell."""
    curves = {}
    for row in _rows(curves_file(table)):
        values = np.array(row[len(_KEY) :], np.float64)
        curves[tuple(row[: len(_KEY)])] = Curves(*np.split(values, [len(CUTOFFS)]))
    return curves


def curves_file(table: Path) -> Path:
    """Return the path of the curves of a table.

    Examples
    --------
    >>> curves_file(Path("results/table1_cifar10.csv")).name
    'table1_cifar10_curves.csv'
    """
    return table.with_name(f"{table.stem}_curves.csv")


def _rows(file: Path) -> list[list[str]]:
    if not file.exists():
        return []
    with file.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    if tuple(header) != _COLUMNS:
        raise ValueError(f"{file}: unexpected columns, not a file of curves; move or delete it")
    return rows
