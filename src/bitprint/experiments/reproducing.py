"""Reproducing: from the name of a table and its options to rows, plots and a report."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bitprint.data import ImageSet, data_home
from bitprint.data.nuswide_check import check_nuswide
from bitprint.experiments.cells import KEY, Cell, check_cells, split_of
from bitprint.experiments.figures import draw_figures
from bitprint.experiments.html import html_report, remarks
from bitprint.experiments.quick import quick_cells
from bitprint.experiments.rows import missing_cells, read_table
from bitprint.experiments.standings import standings
from bitprint.experiments.tables import EXPERIMENTS, experiment_cells, summarise
from bitprint.files import no_part_left
from bitprint.methods import DeepHasher, method

_PRINTED = {"cifar10": "CIFAR-10", "nuswide": "NUS-WIDE"}
_WITH_QUICK = ("methods", "bits", "splits")


class Written(NamedTuple):
    """A table as far as it is done, and the files that were written."""

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
        """How many cells are not done."""
        return self.cells - len(self.rows)

    def as_dict(self) -> dict[str, Any]:
        """All of it, in types that `json.dumps` takes."""
        return {
            "title": self.title,
            "missing": self.missing,
            "notes": self.notes,
            "standings": self.standings,
            "files": [str(path) for path in (self.table, self.page, *self.plots)],
            "entries": [
                entry.as_dict() for line in summarise(self.rows).values() for entry in line.values()
            ],
        }


def cells_of(table: str, chosen: Mapping[str, Any], images: ImageSet | None = None) -> list[Cell]:
    """Return the checked cells of a table.

    Parameters
    ----------
    table : str
        One of `bitprint.experiments.tables.EXPERIMENTS`.
    chosen : dict
        Arguments of `experiment_cells`, of which those that are None or empty are not given;
        "set" for its `changes`; and "quick".
    images : ImageSet, optional
        The set, once it is read: it may suggest a backbone, and cells are checked with it.
    """
    if table not in EXPERIMENTS:
        raise ValueError(f"there is no {table!r}: choose {', '.join(EXPERIMENTS)}")
    given = {name: value for name, value in chosen.items() if value}
    quick = given.pop("quick", False)
    refused = [f"--{name}" for name in given if name not in _WITH_QUICK]
    if quick and refused:
        raise ValueError(
            f"--quick brings its own images and network; leave out {', '.join(refused)}"
        )
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
    """Return the CSV file of a table, by default one in the folder `results`."""
    if out is None:
        return Path("results") / f"{table}_{_name(cell)}{_kind(cell)}.csv"
    if out.suffix.lower() != ".csv":
        raise ValueError(
            f"--out names a CSV file, beside which page and plots are written, such as "
            f"{table}.csv; got {str(out)!r}"
        )
    return out


def missing_features(cells: Sequence[Cell], table: Path) -> list[str]:
    """Return the features that cells which are not done learn from."""
    missing = missing_cells(cells, table)
    sources = (cell.backbone for cell in missing if not issubclass(method(cell.method), DeepHasher))
    return list(dict.fromkeys(sources))


def rows_of(cells: Sequence[Cell], table: Path) -> list[dict[str, str]]:
    """Return the rows of a table that are of these cells, in the order of the cells."""
    done = {tuple(row[name] for name in KEY): row for row in read_table(table)}
    return [done[cell.key] for cell in cells if cell.key in done]


def write_report(
    table: str,
    cells: Sequence[Cell],
    images: ImageSet,
    out: Path,
    command: str,
    *,
    quick: bool = False,
) -> Written:
    """Write plots and an HTML page of the rows that are done, beside their CSV file."""
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
    return Written(
        title,
        rows,
        len(cells),
        [] if quick else standings(rows),
        remarks(rows, quick=quick, several_labels=several),
        out,
        page,
        list(plots),
    )


def command_line(table: str, chosen: Mapping[str, Any]) -> str:
    """Return the command with these options.

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
    """Return the title of the report, and its part that is the title of the plots."""
    map_at = split_of(cell, images).map_at
    measure = f"MAP@{map_at}" if map_at else "MAP"
    # Classes that are kept from training are drawn, whatever split the set has.
    own = images.split is not None and not cell.unseen
    setting = "its own split" if own else f"setting {cell.protocol}"
    kinds = {", unseen classes": cell.unseen, ", held-out training images": cell.validation}
    name = _PRINTED.get(images.name, images.name)
    about = f"{name}, {setting}" + "".join(kind for kind, holds in kinds.items() if holds)
    return f"{EXPERIMENTS[table].title}: {measure} on {about}", about


def _name(cell: Cell) -> str:
    """Return the name of the images: of a folder its own name."""
    return Path(cell.dataset).resolve().name


def _kind(cell: Cell) -> str:
    """Return the part of file names that tells how a table is measured."""
    kinds = {"_validation": cell.validation, "_unseen": cell.unseen, "_quick": cell.quick}
    return "".join(kind for kind, holds in kinds.items() if holds)


def _stem(table: str, cell: Cell, out: Path) -> str:
    """Return the name of page and plots; tables that share a CSV file have different ones.

    Parts that the name of the CSV file has are not repeated, and CIFAR-10, the default, is left
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
            f"{folder}: {problems[0]}; `bitprint data nuswide --check {folder}` lists all problems"
        )
