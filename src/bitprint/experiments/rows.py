"""The CSV file that a table of cells is kept in: a row for each cell that is done."""

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
    items_in,
    settings_of,
    short_fingerprint,
    spell,
    split_of,
    training_rows,
)
from bitprint.supervision import class_count


def read_table(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table, none when there is no such file."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, start=1):
        missing = [name for name in KEY if row.get(name) is None]
        if missing or None in row.values():
            lack = f"lacks {', '.join(missing)}" if missing else "is cut short"
            raise ValueError(f"{table}: row {number} {lack}; name another file as --out")
    return rows


def keep_rows(table: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows in place of any of the same cells; a new column is added to earlier rows as well."""
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
    """Return the cells that a table lacks, in their order."""
    done = {_key(row) for row in read_table(table)}
    return [cell for cell in cells if cell.key not in done]


def check_same_cells(cells: Iterable[Cell], table: Path, images: ImageSet) -> None:
    """Raise a ValueError if a table has these cells, but of other images, splits or settings.

    The key of a cell has no more of its images and its network than their names. What a row does
    not say, as those of earlier versions, is not compared.

    Parameters
    ----------
    cells : iterable of Cell
        Of one data set.
    table : path
        The CSV file that they are kept in.
    images : ImageSet
        That set.
    """
    wanted, these = {cell.key: cell for cell in cells}, short_fingerprint(images)
    drawn: dict[tuple[int, int, bool, bool], tuple[str, int]] = {}
    for row in read_table(table):
        cell = wanted.get(_key(row))
        if cell is None:
            continue
        if row.get("images") not in ("", None, these):
            raise ValueError(
                f"{table} holds cells of other images or labels that are called {images.name}, "
                "too; name another file as --out"
            )
        draw = (cell.protocol, cell.seed, cell.unseen, cell.validation)
        if draw not in drawn:
            drawn[draw] = split_of(cell, images).fingerprint[:12], len(training_rows(cell, images))
        split, count = drawn[draw]
        if row.get("split") not in ("", None, split):
            raise ValueError(
                f"{table} holds cells of another split of {images.name} into queries, training "
                "and database; name another file as --out"
            )
        if row.get("version"):  # before there was one, rows had a part of the settings
            assert images.labels is not None
            now = settings_of(cell, items_in(images, count), class_count(images.labels))
            _check_settings(cell, now, row, table)


def _check_settings(cell: Cell, settings: dict[str, Any], row: dict[str, str], table: Path) -> None:
    """Raise a ValueError if a row was made with other settings than its cell has now."""
    # A path may hold spaces.
    then = dict(part.split("=", 1) for part in re.split(r" (?=\w+=)", row["options"]) if part)
    # What one of them lacks is new, or not in use; objects are written with their address.
    now = {
        name: str(value)
        for name, value in settings.items()
        if name in then and isinstance(value, str | Real)
    }
    other = [name for name, value in now.items() if value != then[name]]
    if other:
        made, here = (spell({name: some[name] for name in other}) for some in (then, now))
        raise ValueError(
            f"{table} holds {cell.title} on {cell.backbone} with {made}, and here it has {here}; "
            "name another file as --out, or delete such rows"
        )


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)
