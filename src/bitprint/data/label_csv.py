"""Reader of label CSV files: files, their labels and their parts of a split."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import NamedTuple, TextIO

from bitprint.data.images import PARTS
from bitprint.utils.text import printable

_LABELS = ("label", "labels")
_USED = ("file", *_LABELS, "split")
_OTHER_SEPARATORS = {";": ";", "\t": "tabs"}


class FileLabels(NamedTuple):
    """Labels and split of one file in a label CSV."""

    labels: tuple[str, ...]
    """Labels without duplicates, in the order of the rows."""
    split: str | None
    """Query, train or database; None without a column `split`."""
    line: int
    """Number of the first line of the file in the CSV."""


class LabelTable(NamedTuple):
    """Content of a label CSV."""

    files: dict[str, FileLabels]
    """By path relative to the folder, with forward slashes."""
    has_labels: bool
    """Whether there is a column of labels."""


def read_label_csv(path: Path, folder: Path) -> LabelTable:
    r"""Read a label CSV with the columns `file`, `label` or `labels`, and optionally `split`.

    Other columns are ignored. Several labels of a file are joined by `|` or in separate rows; rows
    of one file are merged. If there is a column `split`, it must have the same value in all rows
    of a file.

    Column names ignore case and surrounding spaces. Spaces around a file name are removed and
    backslashes become slashes, unless a file with exactly that name is in the folder. Labels must
    be UTF-8; file names can contain any bytes.

    All files must be in the folder or its subfolders. Their names are relative to the folder, or
    absolute. A name with `..` and a name below a link to another folder are refused, but a file may
    be a link.

    Parameters
    ----------
    path : Path
        The CSV.
    folder : Path
        Folder of the files.

    Raises
    ------
    ValueError
        If a row is invalid or ambiguous, or its file is not in the folder; the message contains its
        line number.

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
    names = _Names(folder)
    with _open(path) as file:
        reader = csv.DictReader(file)
        try:
            columns = _name_columns(path, reader)
            for written, row in _read_rows(path, reader, columns):
                name = names.find(written)
                if name is None:
                    raise ValueError(
                        f"{path}, line {row.line}: {printable(written.strip())} is not in the "
                        f"folder {folder}, which must contain all files of the CSV"
                    )
                files[name] = _merged(path, name, files.get(name, row), row)
        except csv.Error as error:
            line = reader.reader.line_num  # `DictReader.line_num` lags by one here
            raise ValueError(f"{path}, line {line}: not CSV ({error})") from error
    return LabelTable(files, has_labels=not set(_LABELS).isdisjoint(columns))


def has_label_column(path: Path) -> bool:
    """Return whether the header of a CSV has a column of labels.

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
    """Read the header; return the names of the columns in lower case."""
    columns = [name.strip().casefold() for name in reader.fieldnames or []]
    for name in _USED:
        if columns.count(name) > 1:
            raise ValueError(f"{path}: the header has the column {name} more than once")
    for separator, shown in _OTHER_SEPARATORS.items():
        parts = [part.strip(' "') for part in ",".join(columns).split(separator)]
        if "file" not in columns and "file" in parts:
            raise ValueError(f"{path}: columns are separated by {shown}; use commas")
    if "file" not in columns:
        raise ValueError(
            f"{path}: the header needs a column file, "
            f"found {printable(', '.join(columns)) or 'nothing'}"
        )
    reader.fieldnames = columns
    return columns


def _read_rows(
    path: Path, reader: csv.DictReader, columns: list[str]
) -> Iterator[tuple[str, FileLabels]]:
    """Yield the file name as written and the content of its row."""
    label = next((name for name in _LABELS if name in columns), None)
    for row in reader:
        line = reader.line_num
        if not (row["file"] or "").strip():
            raise ValueError(f"{path}, line {line}: the file name is missing")
        if any(cell.strip() for cell in row.get(reader.restkey) or ()):
            raise ValueError(
                f"{path}, line {line}: more cells than columns; join labels by | and "
                "quote names that contain commas"
            )
        if label is not None and row[label] is None:
            raise ValueError(f"{path}, line {line}: cells are missing")
        labels = _split_labels(path, line, row[label]) if label is not None else ()
        part = None
        if "split" in columns:
            part = (row["split"] or "").strip()
            if part not in PARTS:
                raise ValueError(
                    f"{path}, line {line}: the split of an image must be one of "
                    f"{', '.join(PARTS)}, got {part!r}"
                )
        yield row["file"], FileLabels(labels, part, line)


def _split_labels(path: Path, line: int, joined: str) -> tuple[str, ...]:
    if any("\ud800" <= letter <= "\udfff" for letter in joined):
        raise ValueError(
            f"{path}, line {line}: the label {printable(joined)} is not UTF-8; "
            "save the CSV as UTF-8"
        )
    return tuple(dict.fromkeys(name.strip() for name in joined.split("|") if name.strip()))


def _merged(path: Path, name: str, before: FileLabels, row: FileLabels) -> FileLabels:
    if before.split != row.split:
        raise ValueError(
            f"{path}, line {row.line}: the split of {printable(name)} is {row.split} here but "
            f"{before.split} in line {before.line}; use the same split in all rows of a file"
        )
    return before._replace(labels=tuple(dict.fromkeys(before.labels + row.labels)))


class _Names:
    """Names of the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._real = os.path.realpath(folder)
        self._inside: dict[PurePath, PurePath | None] = {}

    def find(self, written: str) -> str | None:
        """Return the name relative to the folder of a file, None if it is not in the folder."""
        name = self._on_disk(written)
        if ".." in name.parts or not name.name:
            return None
        place = name.parent
        if place not in self._inside:
            self._inside[place] = self._relative(place)
        inside = self._inside[place]
        return None if inside is None else (inside / name.name).as_posix()

    def _on_disk(self, written: str) -> PurePath:
        """Return the name as written if the file exists, and normalized otherwise."""
        plain = written.strip().replace("\\", "/")
        for name in (written, written.strip()):
            if name != plain and os.path.lexists(self._folder / name):
                return PurePath(name)
        return PurePath(plain)

    def _relative(self, place: PurePath) -> PurePath | None:
        """Return a folder relative to the folder of the files, None if it is not inside."""
        try:
            real = PurePath(os.path.realpath(self._folder / place))
        except ValueError:  # a null character
            return place
        if not real.is_relative_to(self._real):
            return None
        return real.relative_to(self._real) if place.is_absolute() else place
