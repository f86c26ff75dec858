"""Storage of paths and labels: write-once rows of 512 codes each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.search.file import IndexFile, checksum

# Small enough to read the path of one hit quickly, large enough to read labels in bulk.
_PAGE = 512


class Item(NamedTuple):
    """Path and labels of one code.

    Examples
    --------
    >>> item = Item(path="/photos/tom.jpg", labels=("cat", "sofa"))
    >>> path, labels = item
    >>> "cat" in labels
    True
    """

    path: str | None
    labels: tuple[str, ...]


NOTHING = Item(None, ())


def as_items(
    count: int,
    paths: Iterable[str | os.PathLike[str] | None] | None,
    labels: Iterable[Iterable[str]] | None,
) -> list[Item] | None:
    """Check paths and labels, one entry per code; return None if neither is given.

    Examples
    --------
    >>> as_items(2, ["a.png", None], [["cat", "sofa"], []])
    [Item(path='a.png', labels=('cat', 'sofa')), Item(path=None, labels=())]
    """
    if paths is None and labels is None:
        return None
    path_list = [_as_path(path) for path in paths] if paths is not None else [None] * count
    label_list = [_as_names(names) for names in labels] if labels is not None else [()] * count
    for what, given in (("paths", len(path_list)), ("lists of labels", len(label_list))):
        if given != count:
            raise ValueError(f"got {given} {what} for {count} codes; give one per code")
    return [Item(path, names) for path, names in zip(path_list, label_list, strict=True)]


def _as_path(path: str | os.PathLike[str] | None) -> str | None:
    name = None if path is None else os.fspath(path)
    if name is not None and not isinstance(name, str):
        raise ValueError(f"a path must be a string or None, got {name!r}")
    return name


def _as_names(names: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else None
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise ValueError(
            f"the labels of a code must be a list of strings, got {names!r}; give one list per "
            'code, such as labels=[["cat"], ["dog", "sofa"]]'
        )
    return tuple(str(name) for name in listed)


def write(file: IndexFile, first: int, items: Sequence[Item]) -> None:
    """Write the items of a chunk whose first code is at position `first`."""
    for start in range(0, len(items), _PAGE):
        _write_page(file, first + start, items[start : start + _PAGE])


def _write_page(file: IndexFile, first: int, items: Sequence[Item]) -> None:
    numbering: dict[str, int] = {}
    numbers = [numbering.setdefault(n, len(numbering)) for item in items for n in item.labels]
    labels = (
        json.dumps(list(numbering)),
        np.array([len(item.labels) for item in items], "<u4").tobytes(),
        np.array(numbers, "<u4").tobytes(),
    )
    paths = json.dumps([item.path for item in items])
    page = (first, len(items))
    checksums = (checksum(*page, *labels), checksum(*page, paths))
    file.db.execute(
        "INSERT INTO details VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*page, *checksums, *labels, paths)
    )


def read(file: IndexFile, first: int, count: int) -> list[Item]:
    """Read the items of a chunk of `count` codes."""
    return [item for start in _page_starts(first, count) for item in _read_page(file, start)]


def read_at(file: IndexFile, places: Iterable[tuple[int, int]]) -> list[Item]:
    """Read single items, given as pairs (first position of the chunk, position of the code)."""
    pages: dict[int, list[Item]] = {}
    items = []
    for first, position in places:
        offset = (position - first) % _PAGE
        start = position - offset
        if start not in pages:
            pages[start] = _read_page(file, start)
        if offset >= len(pages[start]):
            raise file.damaged("the size of a row of paths and labels")
        items.append(pages[start][offset])
    return items


def _read_page(file: IndexFile, first: int) -> list[Item]:
    row = file.db.execute(
        "SELECT count, labels_checksum, paths_checksum, names, counts, numbers, paths "
        "FROM details WHERE first = ?",
        (first,),
    ).fetchone()
    if row is None:
        raise file.damaged("a row of paths and labels")
    count, labels_checksum, paths_checksum, names, counts, numbers, paths = row
    checksums = (checksum(first, count, names, counts, numbers), checksum(first, count, paths))
    if (labels_checksum, paths_checksum) != checksums:
        raise file.damaged("a row of paths and labels")
    known, per_code, numbered = _parse_labels(file, count, names, counts, numbers)
    remaining = iter(numbered.tolist())
    return [
        Item(path, tuple(known[next(remaining)] for _ in range(labels)))
        for path, labels in zip(_parse_paths(file, count, paths), per_code, strict=True)
    ]


# A valid checksum rules out accidental damage, not a crafted row. The parsers therefore compare
# declared counts with the data before they use them.


def _parse_labels(
    file: IndexFile, count: int, names: str, counts: bytes, numbers: bytes
) -> tuple[list[str], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the label names of a page, the number of labels per code, and all label numbers."""
    try:
        known = _strings(json.loads(names))
        per_code, numbered = np.frombuffer(counts, "<u4"), np.frombuffer(numbers, "<u4")
    except (TypeError, ValueError, RecursionError):
        raise file.damaged("a row of labels") from None
    if len(per_code) != count or per_code.sum(dtype=np.uint64) != len(numbered):
        raise file.damaged("the number of labels")
    if np.any(numbered >= len(known)):
        raise file.damaged("a label")
    return known, per_code, numbered


def _parse_paths(file: IndexFile, count: int, paths: str) -> list[str | None]:
    try:
        parsed: list[str | None] = json.loads(paths)
        _strings([path for path in parsed if path is not None])
    except (TypeError, ValueError, RecursionError):
        raise file.damaged("a row of paths") from None
    if len(parsed) != count:
        raise file.damaged("the number of paths")
    return parsed


def _strings(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of strings was expected")
    return values


def labeled(file: IndexFile, chunks: Iterable[tuple[int, int]], label: str) -> NDArray[np.int64]:
    """Return the positions of the codes with a label, including removed codes.

    `chunks` gives the first position and the size of each chunk that has paths or labels.
    """
    positions = [np.empty(0, np.int64)]
    for known, owners, numbers in _read_labels(file, chunks):
        if label in known:
            positions.append(owners[numbers == known.index(label)])
    return np.concatenate(positions)


def names_in_use(
    file: IndexFile, chunks: Iterable[tuple[int, int]], alive: NDArray[np.uint8] | None
) -> set[str]:
    """Return the labels of the live codes; `alive` has one flag per position, None means all 1."""
    names: set[str] = set()
    for known, owners, numbers in _read_labels(file, chunks):
        used = numbers if alive is None else numbers[alive[owners] == 1]
        names.update(known[number] for number in np.unique(used))
    return names


def _read_labels(
    file: IndexFile, chunks: Iterable[tuple[int, int]]
) -> Iterator[tuple[list[str], NDArray[np.int64], NDArray[np.uint32]]]:
    """Yield per page its label names and, for each label, the code's position and name number."""
    expected = iter([start for chunk in chunks for start in _page_starts(*chunk)])
    rows = file.db.execute(
        "SELECT first, count, labels_checksum, names, counts, numbers FROM details ORDER BY first"
    )
    for first, count, found, names, counts, numbers in rows:
        if first != next(expected, None) or found != checksum(first, count, names, counts, numbers):
            raise file.damaged("a row of labels")
        known, per_code, numbered = _parse_labels(file, count, names, counts, numbers)
        yield known, np.repeat(np.arange(first, first + count), per_code), numbered
    if next(expected, None) is not None:
        raise file.damaged("the number of rows of labels")


def _page_starts(first: int, count: int) -> range:
    return range(first, first + count, _PAGE)
