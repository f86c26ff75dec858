"""Codes, ids and labels as PostgreSQL takes and gives them: many rows at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.search.details import NOTHING, Item
from bitprint.search.ids import Ids
from bitprint.search.matches import Matches, MatchesWithin, split_matches
from bitprint.search.stores.text import from_text, to_text

_ROWS = 65_536
_TEXT_OID = 25

Row = tuple[Any, ...]


def to_parameter(ids: Ids) -> list[int] | list[str]:
    """Return ids as the value of a parameter."""
    return [to_text(name) for name in ids] if ids.dtype == object else ids.tolist()


def from_values(values: Sequence[Any], kind: str | None) -> Ids:
    """Return ids of a kind, as PostgreSQL gives them, as an array."""
    if kind != "string":
        return np.array(values, np.int64)
    ids = np.empty(len(values), object)
    ids[:] = [from_text(value) for value in values]
    return ids


def to_items(rows: Sequence[Row]) -> list[Item]:
    """Read rows of an ordinal, a path and labels."""
    return [
        Item(None if path is None else from_text(path), tuple(map(from_text, labels)))
        for _, path, labels in rows
    ]


def to_matches(rows: Sequence[Row], kind: str | None, queries: int, k: int) -> Matches:
    """Arrange rows of the number of a query, from 1 on, an id and its distance, in order."""
    numbers = np.array([row[0] for row in rows], np.int64) - 1
    ranks = np.arange(len(rows)) - np.searchsorted(numbers, numbers)
    ids = np.full((queries, k), None if kind == "string" else -1)
    distances = np.full((queries, k), -1, np.int32)
    ids[numbers, ranks] = from_values([row[1] for row in rows], kind)
    distances[numbers, ranks] = [row[2] for row in rows]
    return Matches(ids, distances)


def to_matches_within(rows: Sequence[Row], kind: str | None, queries: int) -> MatchesWithin:
    """Arrange rows like those of `to_matches`, any number for each query."""
    ends = np.searchsorted([row[0] for row in rows], np.arange(queries + 1), side="right")
    ids = from_values([row[1] for row in rows], kind)
    distances = np.array([row[2] for row in rows], np.int32)
    return split_matches(ends, ids, distances)


def to_bit_strings(packed: NDArray[np.uint8], bits: int) -> list[str]:
    """Write packed codes (N, bytes) as strings of zeros and ones.

    Examples
    --------
    >>> to_bit_strings(np.array([[0b10100000]], np.uint8), 3)
    ['101']
    """
    digits = np.unpackbits(packed, axis=1, count=bits) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def from_bit_fields(fields: Sequence[bytes], bits: int) -> NDArray[np.uint8]:
    """Read packed codes (N, bytes) from what PostgreSQL sends: their length, then their bits."""
    width = 4 + -(-bits // 8)
    return np.frombuffer(b"".join(fields), np.uint8).reshape(-1, width)[:, 4:].copy()


def copy_data(
    first: int, packed: NDArray[np.uint8], bits: int, ids: Ids, items: Sequence[Item] | None
) -> Iterator[bytes]:
    """Yield what COPY takes in its binary format, many rows at a time."""
    yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
    for start in range(0, len(packed), _ROWS):
        rows = slice(start, start + _ROWS)
        described = items[rows] if items is not None else [NOTHING] * len(packed[rows])
        arrays = {item.labels: _text_array(item.labels) for item in set(described)}
        columns = (
            _code_fields(first + start, packed[rows], bits),
            _id_fields(ids[rows]),
            [_text_field(item.path) for item in described],
            [arrays[item.labels] for item in described],
        )
        yield b"".join(chain.from_iterable(zip(*columns, strict=True)))
    yield struct.pack(">h", -1)


def _code_fields(first: int, packed: NDArray[np.uint8], bits: int) -> list[bytes]:
    """How many columns follow, the ordinal, and the code."""
    width = packed.shape[1]
    layout = [("columns", ">i2"), ("ordinal_size", ">i4"), ("ordinal", ">i8"), ("size", ">i4")]
    rows = np.empty(len(packed), [*layout, ("bits", ">i4"), ("code", np.uint8, (width,))])
    rows["columns"], rows["ordinal_size"], rows["size"], rows["bits"] = 5, 8, 4 + width, bits
    rows["ordinal"] = np.arange(first, first + len(packed))
    rows["code"] = packed
    return _as_bytes(rows)


def _id_fields(ids: Ids) -> list[bytes]:
    if ids.dtype == object:
        return [_text_field(name) for name in ids]
    rows = np.empty(len(ids), [("size", ">i4"), ("id", ">i8")])
    rows["size"], rows["id"] = 8, ids
    return _as_bytes(rows)


def _as_bytes(rows: NDArray[Any]) -> list[bytes]:
    fields: list[bytes] = rows.view(f"V{rows.itemsize}").tolist()
    return fields


def _text_field(name: str | None) -> bytes:
    if name is None:
        return struct.pack(">i", -1)
    data = to_text(name).encode()
    return struct.pack(">i", len(data)) + data


def _text_array(names: tuple[str, ...]) -> bytes:
    header = struct.pack(">iii", 1 if names else 0, 0, _TEXT_OID)
    dimension = struct.pack(">ii", len(names), 1) if names else b""
    data = b"".join([header, dimension, *map(_text_field, names)])
    return struct.pack(">i", len(data)) + data
