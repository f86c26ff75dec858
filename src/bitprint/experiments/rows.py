"""The CSV file of a table: one row for each complete cell."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from bitprint.data import ImageSet
from bitprint.experiments.cells import (
    KEY,
    Cell,
    format_settings,
    items_in,
    settings_of,
    short_fingerprint,
    split_of,
    training_rows,
)


def read_table(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table; an empty list if the file does not exist."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, start=1):
        missing = [name for name in KEY if row.get(name) is None]
        if missing or None in row.values():
            problem = f"has no {', '.join(missing)}" if missing else "is incomplete"
            raise ValueError(f"{table}: row {number} {problem}; use another file for --out")
    return rows


def save_rows(table: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows, replacing rows of the same cells; new columns are added to all rows."""
    keys = {_key(row) for row in rows}
    rows = [*(row for row in read_table(table) if _key(row) not in keys), *rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table.parent.mkdir(parents=True, exist_ok=True)
    partial = table.with_name(table.name + ".partial")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(table)


def missing_cells(cells: Iterable[Cell], table: Path) -> list[Cell]:
    """Return the cells without a row in a table, in order."""
    complete = {_key(row) for row in read_table(table)}
    return [cell for cell in cells if cell.key not in complete]


def check_same_cells(cells: Iterable[Cell], table: Path, images: ImageSet) -> None:
    """Raise a ValueError if rows of these cells have other images, splits or settings.

    This is necessary because the key of a cell contains only the names of the images and of the
    network. Fields that are missing in a row, as in rows of earlier versions, are not compared.

    Parameters
    ----------
    cells : iterable of Cell
        Cells of one data set.
    table : path
        The CSV file of the cells.
    images : ImageSet
        The data set.
    """
    expected, fingerprint = {cell.key: cell for cell in cells}, short_fingerprint(images)
    drawn: dict[tuple[int, int, bool, bool], tuple[str, int]] = {}
    for row in read_table(table):
        cell = expected.get(_key(row))
        if cell is None:
            continue
        if row.get("images") not in ("", None, fingerprint):
            raise ValueError(
                f"{table} contains cells of other images or labels with the name {images.name}; "
                "use another file for --out"
            )
        draw = (cell.protocol, cell.seed, cell.unseen, cell.validation)
        if draw not in drawn:
            drawn[draw] = split_of(cell, images).fingerprint[:12], len(training_rows(cell, images))
        split, count = drawn[draw]
        if row.get("split") not in ("", None, split):
            raise ValueError(
                f"{table} contains cells of another split of {images.name}; use another file for "
                "--out"
            )
        if row.get("version"):  # rows without a version contain only a part of the settings
            settings = settings_of(cell, items_in(images, count), images.labels)
            _check_settings(cell, settings, row, table)


def _check_settings(cell: Cell, settings: dict[str, Any], row: dict[str, str], table: Path) -> None:
    """Raise a ValueError if the settings in a row differ from the settings of its cell."""
    # Split before names only, because values such as paths can contain spaces.
    recorded = dict(part.split("=", 1) for part in re.split(r" (?=\w+=)", row["options"]) if part)
    # Settings that are missing on one side are new or unused; objects have no stable text.
    current = {
        name: str(value)
        for name, value in settings.items()
        if name in recorded and isinstance(value, str | Real)
    }
    changed = [name for name, value in current.items() if value != recorded[name]]
    if changed:
        before, now = (
            format_settings({name: each[name] for name in changed}) for each in (recorded, current)
        )
        raise ValueError(
            f"{table} contains {cell.title} on {cell.backbone} with {before}, but the settings "
            f"are now {now}; use another file for --out, or delete these rows"
        )


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)
