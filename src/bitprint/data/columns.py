"""Columns of a CSV that a person wrote: nothing in it is passed over without a word."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_USED = ("file", "label", "labels", "split")
_OTHER_MARKS = {";": ";", "\t": "tabs"}


def name_columns(path: Path, reader: csv.DictReader) -> list[str]:
    """Read the first line; names of columns lose capitals and the spaces around them.

    Examples
    --------
    >>> reader = csv.DictReader(["File, Label", "tom.jpg,cat"])
    >>> name_columns(Path("list.csv"), reader), next(reader)
    (['file', 'label'], {'file': 'tom.jpg', 'label': 'cat'})
    """
    columns = [name.strip().casefold() for name in reader.fieldnames or []]
    for name in _USED:
        if columns.count(name) > 1:
            raise ValueError(f"{path}: the first line names the column {name} more than once")
    for mark, shown in _OTHER_MARKS.items():
        parts = [part.strip(' "') for part in ",".join(columns).split(mark)]
        if "file" not in columns and "file" in parts:
            raise ValueError(f"{path}: columns are separated by {shown}, save it with commas")
    reader.fieldnames = columns
    return columns


def check_cells(path: Path, reader: csv.DictReader, row: Mapping[Any, Any]) -> None:
    """Raise a ValueError if a row has something in more cells than there are columns.

    Examples
    --------
    >>> reader = csv.DictReader(["file,label", "tom.jpg,cat,pet"])
    >>> check_cells(Path("a.csv"), reader, next(reader))
    Traceback (most recent call last):
    ValueError: a.csv, line 2: more cells than columns; join labels by |, quote names with commas
    """
    if any(cell.strip() for cell in row.get(reader.restkey) or ()):
        raise ValueError(
            f"{path}, line {reader.line_num}: more cells than columns; join labels by |, "
            "quote names with commas"
        )
