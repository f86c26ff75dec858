"""The label CSV: files with their labels and parts of a split, as a person writes them."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple, TextIO

from bitprint.data.images import PARTS
from bitprint.data.names import printable

_LABELS = ("label", "labels")
_USED = ("file", *_LABELS, "split")
_OTHER_SEPARATORS = {";": ";", "\t": "tabs"}


class FileLabels(NamedTuple):
    """What a label CSV gives one file."""

    labels: tuple[str, ...]
    """Each once, in the order of the rows."""
    split: str | None
    """Query, train or database; None without a column `split`."""
    line: int
    """Number of the file's first line in the CSV."""


class LabelTable(NamedTuple):
    """A label CSV that was read."""

    files: dict[str, FileLabels]
    """By path: relative to the folder, with forward slashes, or absolute if written so."""
    has_labels: bool
    """Whether there is a column of labels."""


def read_label_csv(path: Path, folder: Path) -> LabelTable:
    r"""Read a label CSV: the columns `file`, `label` or `labels`, and `split`; others are ignored.

    Several labels of a file are joined by `|`, or have a row each: rows of one file are merged.
    Each row names a part of the split, if there is that column: the same one in all rows of a file.

    Capitals and spaces in the names of columns do not matter. Neither do spaces around the name of
    a file, or backslashes in it, unless a file of exactly that name is in the folder. Labels are in
    UTF-8; names of files may be any bytes.

    Parameters
    ----------
    path : Path
        The CSV.
    folder : Path
        Where the files are.

    Raises
    ------
    ValueError
        With the line, if a row would be read otherwise than it was meant.

    Examples
    --------
    >>> import tempfile
    >>> rows = ["File,Label,Split", "a.jpg,cat,train", "b.jpg,dog|pet,query", "a.jpg,pet,train"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder) / "list.csv"
    ...     _ = table.write_bytes("\n".join(rows).encode())
    ...     for name, (labels, split, _) in read_label_csv(table, Path(folder)).files.items():
    ...         print(name, labels, split)
    a.jpg ('cat', 'pet') train
    b.jpg ('dog', 'pet') query
    """
    files: dict[str, FileLabels] = {}
    with _open(path) as file:
        reader = csv.DictReader(file)
        try:
            columns = _name_columns(path, reader)
            for written, row in _read_rows(path, reader, columns):
                name = _name_on_disk(folder, written)
                files[name] = _merged(path, name, files.get(name, row), row)
        except csv.Error as error:
            line = reader.reader.line_num  # `DictReader.line_num` is one behind here
            raise ValueError(f"{path}, line {line}: not CSV ({error})") from error
    return LabelTable(files, has_labels=not set(_LABELS).isdisjoint(columns))


def has_label_column(path: Path) -> bool:
    """Whether the first line of a CSV names a column of labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder) / "list.csv"
    ...     _ = table.write_text("file, tags")
    ...     has_label_column(table)
    False
    """
    with _open(path) as file:
        return not set(_LABELS).isdisjoint(_name_columns(path, csv.DictReader(file)))


def _open(path: Path) -> TextIO:
    try:
        return path.open(newline="", encoding="utf-8-sig", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        raise FileNotFoundError(f"{path}: no such CSV file") from None


def _name_columns(path: Path, reader: csv.DictReader) -> list[str]:
    """Read the first line; return the names of the columns in small letters."""
    columns = [name.strip().casefold() for name in reader.fieldnames or []]
    for name in _USED:
        if columns.count(name) > 1:
            raise ValueError(f"{path}: the first line names the column {name} more than once")
    for separator, shown in _OTHER_SEPARATORS.items():
        parts = [part.strip(' "') for part in ",".join(columns).split(separator)]
        if "file" not in columns and "file" in parts:
            raise ValueError(f"{path}: columns are separated by {shown}, save it with commas")
    if "file" not in columns:
        raise ValueError(
            f"{path}: the first line must name a column file, "
            f"found {printable(', '.join(columns)) or 'nothing'}"
        )
    reader.fieldnames = columns
    return columns


def _read_rows(
    path: Path, reader: csv.DictReader, columns: list[str]
) -> Iterator[tuple[str, FileLabels]]:
    """Yield the name of a file as written, and what its row gives it."""
    label = next((name for name in _LABELS if name in columns), None)
    for row in reader:
        line = reader.line_num
        if not (row["file"] or "").strip():
            raise ValueError(f"{path}, line {line}: the name of a file is missing")
        if any(cell.strip() for cell in row.get(reader.restkey) or ()):
            raise ValueError(
                f"{path}, line {line}: more cells than columns; join labels by |, "
                "quote names with commas"
            )
        if label is not None and row[label] is None:
            raise ValueError(f"{path}, line {line}: columns are missing")
        labels = _split_labels(path, line, row[label]) if label is not None else ()
        part = None
        if "split" in columns:
            part = (row["split"] or "").strip()
            if part not in PARTS:
                raise ValueError(
                    f"{path}, line {line}: the split of an image is one of {', '.join(PARTS)}, "
                    f"got {part!r}"
                )
        yield row["file"], FileLabels(labels, part, line)


def _split_labels(path: Path, line: int, joined: str) -> tuple[str, ...]:
    if any("\ud800" <= letter <= "\udfff" for letter in joined):
        raise ValueError(
            f"{path}, line {line}: the label {printable(joined)} is not in UTF-8; "
            "save the list in that encoding"
        )
    return tuple(dict.fromkeys(name.strip() for name in joined.split("|") if name.strip()))


def _merged(path: Path, name: str, before: FileLabels, row: FileLabels) -> FileLabels:
    if before.split != row.split:
        raise ValueError(
            f"{path}, line {row.line}: the split of {printable(name)} is {row.split} here and "
            f"{before.split} in line {before.line}; give all rows of a file the same"
        )
    return before._replace(labels=tuple(dict.fromkeys(before.labels + row.labels)))


def _name_on_disk(folder: Path, written: str) -> str:
    """Return the name of a file; spaces around it and backslashes may be the CSV's alone."""
    plain = written.strip().replace("\\", "/")
    for name in (written, written.strip()):
        if name != plain and os.path.lexists(folder / name):
            return PurePath(name).as_posix()
    return PurePath(plain).as_posix()
