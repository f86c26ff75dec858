"""Curves of cells, kept in a CSV file beside their table: what the plots are drawn from."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation.metrics import CUTOFFS
from bitprint.evaluation.report import Report
from bitprint.files import write_atomically

if TYPE_CHECKING:
    from bitprint.experiments.cells import Cell

RECALLS = np.linspace(0, 1, 51)
"""Where precision-recall curves are kept, whatever the size of the database."""

_KEY = ("dataset", "protocol", "backbone", "variant", "bits", "seed", "measured_on")
_COLUMNS = (
    *_KEY,
    *(f"precision_at_{rank}" for rank in CUTOFFS),
    *(f"precision_at_recall_{recall:.2f}" for recall in RECALLS),
)


class Curves(NamedTuple):
    """What is kept of a report; NaN where there is nothing, such as ranks beyond the database.

    Attributes
    ----------
    precision_at : ndarray of float64, shape (10,)
        Precision of the first `CUTOFFS` items.
    precision_at_recall : ndarray of float64, shape (51,)
        Precision along the ranked list where recall is `RECALLS`.
    """

    precision_at: NDArray[np.float64]
    precision_at_recall: NDArray[np.float64]


def curves_of(report: Report) -> Curves:
    """Cut a report down to curves of a fixed size, linear between its points."""
    nothing = float("nan")
    return Curves(
        np.array([report.precision_at.get(rank, nothing) for rank in CUTOFFS]),
        np.interp(RECALLS, report.pr_curve.recall, report.pr_curve.precision),
    )


def keep_curves(cell: Cell, report: Report, table: Path) -> None:
    """Write the curves of a cell beside its table, in place of any that it had there.

    Parameters
    ----------
    cell : Cell
    report : Report
        What was measured.
    table : path
        The CSV file of the cells; the curves go to `curves_file` of it.
    """
    file = curves_file(table)
    rows = [row for row in _rows(file) if tuple(row[: len(_KEY)]) != cell.key]
    figures = np.concatenate(curves_of(report))
    rows.append([*cell.key, *(f"{figure:.5f}" for figure in figures)])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_COLUMNS, *rows])
    write_atomically(file, text.getvalue().encode())


def read_curves(table: Path) -> dict[tuple[str, ...], Curves]:
    """Return the curves that were kept beside a table, by the key of their cell."""
    kept = {}
    for row in _rows(curves_file(table)):
        figures = np.array(row[len(_KEY) :], np.float64)
        kept[tuple(row[: len(_KEY)])] = Curves(*np.split(figures, [len(CUTOFFS)]))
    return kept


def curves_file(table: Path) -> Path:
    """Return where the curves of a table are.

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
        raise ValueError(f"{file}: these are not the columns of a file of curves; move it away")
    return rows
