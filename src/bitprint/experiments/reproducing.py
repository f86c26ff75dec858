"""Reproduce a table: cells from options, and the CSV file, plots and report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bitprint.data import ImageSet, data_home
from bitprint.data.nuswide_check import check_nuswide
from bitprint.experiments.cells import KEY, Cell, check_cells, split_of
from bitprint.experiments.figures import draw_figures
from bitprint.experiments.html import html_report, report_notes
from bitprint.experiments.quick import quick_cells
from bitprint.experiments.rows import missing_cells, read_table
from bitprint.experiments.standings import standings
from bitprint.experiments.tables import EXPERIMENTS, experiment_cells, summarize
from bitprint.methods import DeepHasher, method
from bitprint.utils.files import no_part_left

_PRINTED = {"cifar10": "CIFAR-10", "nuswide": "NUS-WIDE"}
_WITH_QUICK = ("methods", "bits", "splits")


class TableReport(NamedTuple):
    """The complete rows of a table, and the files that were written."""

    title: str
    rows: list[dict[str, str]]
    cells: int
    standings: list[str]
    notes: list[str]
    table: Path
    page: Path
    plots: list[Path]

    @property
    def missing(self) -> int:
        """Number of cells that are not complete."""
        return self.cells - len(self.rows)

    def as_dict(self) -> dict[str, Any]:
        """Return the report in types for `json.dumps`."""
        return {
            "title": self.title,
            "missing": self.missing,
            "notes": self.notes,
            "standings": self.standings,
            "files": [str(path) for path in (self.table, self.page, *self.plots)],
            "entries": [
                entry.as_dict() for line in summarize(self.rows).values() for entry in line.values()
            ],
        }


def cells_of(table: str, chosen: Mapping[str, Any], images: ImageSet | None = None) -> list[Cell]:
    """Return the validated cells of a table.

    Parameters
    ----------
    table : str
        One of `bitprint.experiments.tables.EXPERIMENTS`.
    chosen : dict
        Arguments of `experiment_cells`, with "set" for `changes`, and "quick". Empty values are
        ignored.
    images : ImageSet, optional
        The data set, after it is read. It can suggest a backbone, and is used to validate cells.

    Returns
    -------
    list of Cell
    """
    if table not in EXPERIMENTS:
        raise ValueError(f"unknown table {table!r}; choose {', '.join(EXPERIMENTS)}")
    given = {name: value for name, value in chosen.items() if value}
    quick = given.pop("quick", False)
    refused = [f"--{name}" for name in given if name not in _WITH_QUICK]
    if quick and refused:
        raise ValueError(f"--quick uses its own images and network; leave out {', '.join(refused)}")
    if images is not None and images.backbone is not None and not quick:
        given.setdefault("backbone", images.backbone)
    if "set" in given:
        given["changes"] = given.pop("set")
    cells = quick_cells(table, **given) if quick else experiment_cells(table, **given)
    if images is None and cells[0].dataset == "nuswide":
        _check_nuswide()
    check_cells(cells, images)
    return cells


def table_file(table: str, cell: Cell, out: Path | None) -> Path:
    """Return the CSV file of a table, by default in the folder `results`."""
    if out is None:
        return Path("results") / f"{table}_{_name(cell)}{_kind(cell)}.csv"
    if out.suffix.lower() != ".csv":
        raise ValueError(f"--out must be a CSV file, such as {table}.csv; got {str(out)!r}")
    return out


def missing_features(cells: Sequence[Cell], table: Path) -> list[str]:
    """Return the names of the features that are needed by missing cells."""
    missing = missing_cells(cells, table)
    sources = (cell.backbone for cell in missing if not issubclass(method(cell.method), DeepHasher))
    return list(dict.fromkeys(sources))


def rows_of(cells: Sequence[Cell], table: Path) -> list[dict[str, str]]:
    """Return the rows of these cells in a table, in the order of the cells."""
    rows = {tuple(row[name] for name in KEY): row for row in read_table(table)}
    return [rows[cell.key] for cell in cells if cell.key in rows]


def write_report(
    table: str,
    cells: Sequence[Cell],
    images: ImageSet,
    out: Path,
    command: str,
    *,
    quick: bool = False,
) -> TableReport:
    """Write plots and an HTML report of the complete rows next to their CSV file."""
    rows = rows_of(cells, out)
    title, about = _titles(table, cells[0], images)
    several = images.labels is not None and images.labels.ndim == 2
    stem = _stem(table, cells[0], out)
    plots = draw_figures(rows, out, out.with_name(f"{stem}_plots"), about)
    page = out.with_name(f"{stem}.html")
    page.parent.mkdir(parents=True, exist_ok=True)
    text = html_report(
        title,
        rows,
        command=command,
        plots=plots,
        missing=len(cells) - len(rows),
        quick=quick,
        several_labels=several,
    )
    with no_part_left(page):
        page.write_text(text, "utf-8")
    return TableReport(
        title,
        rows,
        len(cells),
        [] if quick else standings(rows),
        report_notes(rows, quick=quick, several_labels=several),
        out,
        page,
        list(plots),
    )


def command_line(table: str, chosen: Mapping[str, Any]) -> str:
    """Return the shell command with these options.

    Examples
    --------
    >>> command_line("table1", {"bits": "12", "quick": True, "set": ["lr=1", "eta=2"]})
    'bitprint reproduce table1 --bits 12 --quick --set lr=1 --set eta=2'
    """
    words = ["bitprint", "reproduce", table]
    for name, value in chosen.items():
        for each in value if isinstance(value, list) else [value] if value else []:
            words += [f"--{name}"] if each is True else [f"--{name}", str(each)]
    return shlex.join(words)


def _titles(table: str, cell: Cell, images: ImageSet) -> tuple[str, str]:
    """Return the title of the report, and the part of it that is used in plots."""
    map_at = split_of(cell, images).map_at
    measure = f"MAP@{map_at}" if map_at else "MAP"
    # Unseen classes are drawn at random even if the set has its own split.
    own = images.split is not None and not cell.unseen
    protocol = "its own split" if own else f"protocol {cell.protocol}"
    kinds = {", unseen classes": cell.unseen, ", held-out training images": cell.validation}
    name = _PRINTED.get(images.name, images.name)
    about = f"{name}, {protocol}" + "".join(kind for kind, applies in kinds.items() if applies)
    return f"{EXPERIMENTS[table].title}: {measure} on {about}", about


def _name(cell: Cell) -> str:
    """Return the name of the data set; the last part of the path for a folder."""
    return Path(cell.dataset).resolve().name


def _kind(cell: Cell) -> str:
    """Return the suffix of file names for validation, unseen classes and test runs."""
    kinds = {"_validation": cell.validation, "_unseen": cell.unseen, "_quick": cell.quick}
    return "".join(kind for kind, applies in kinds.items() if applies)


def _stem(table: str, cell: Cell, out: Path) -> str:
    """Return the name of report and plots, which is different for tables in one CSV file.

    Parts of the name of the CSV file are not repeated, and the default data set CIFAR-10 is left
    out.
    """
    stem = out.stem if table in out.stem else f"{out.stem}_{table}"
    name, kind = _name(cell), _kind(cell)
    if name != "cifar10" and f"_{name}_" not in f"_{stem}_":
        stem += f"_{name}"
    return stem if stem.endswith(kind) else stem + kind


def _check_nuswide() -> None:
    folder = data_home() / "nuswide"
    problems = check_nuswide(folder).problems
    if problems:
        raise ValueError(
            f"{folder}: {problems[0]}; list all with `bitprint data nuswide --check {folder}`"
        )
