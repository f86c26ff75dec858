"""The CSV file that a table of cells is kept in: a row for each cell that is done."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bitprint.data import ImageSet
from bitprint.experiments.cells import KEY, Cell, short_fingerprint


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


def check_same_images(cells: Sequence[Cell], table: Path, images: ImageSet) -> None:
    """Raise a ValueError if a table has these cells, but of other images or labels.

    The key of a cell has no more of its images than their name.
    """
    keys, these = {cell.key for cell in cells}, short_fingerprint(images)
    for row in read_table(table):
        # Rows of earlier versions do not say it.
        if _key(row) in keys and row.get("images") not in ("", None, these):
            raise ValueError(
                f"{table} holds cells of other images or labels that are called {images.name}, "
                "too; name another file as --out"
            )


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)
