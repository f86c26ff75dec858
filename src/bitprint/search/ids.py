"""Ids of an index: validation, serialization and lookup of positions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# An int64 array, or an object array of Python strings.
Ids = NDArray[Any]
Positions = NDArray[np.int64]

IdList = Iterable[int] | Iterable[str]
"""Ids as a caller passes them."""


def as_ids(ids: IdList) -> Ids:
    """Return ids as an int64 array or an object array of strings.

    Examples
    --------
    >>> as_ids(range(3)).dtype, as_ids(["a", "b"]).dtype
    (dtype('int64'), dtype('O'))
    """
    if isinstance(ids, np.ndarray) and ids.ndim == 1 and ids.dtype.kind == "i":
        return ids.astype(np.int64)
    if isinstance(ids, str | bytes):
        raise ValueError(f"ids must be a list of integers or strings, got the single {ids!r}")
    values: list[Any] = list(ids)
    if all(isinstance(value, str) for value in values):
        for value in values:
            if "\0" in value:
                raise ValueError(f"the id {value!r} contains a null character, which is invalid")
        array = np.empty(len(values), object)
        array[:] = [str(value) for value in values]
        return array
    if all(isinstance(v, int | np.integer) and not isinstance(v, bool) for v in values):
        try:
            return np.array([int(value) for value in values], np.int64)
        except OverflowError:
            raise ValueError("integer ids must be between -2**63 and 2**63 - 1") from None
    raise ValueError("ids must be all integers or all strings")


def next_ids(ids: Ids, count: int) -> Ids:
    """Return `count` consecutive numbers after the largest number in `ids`, of the same kind.

    For empty `ids`, the numbers are strings that start at "0".

    Examples
    --------
    >>> next_ids(as_ids(["0", "cat", "7"]), 2).tolist(), next_ids(as_ids([]), 2).tolist()
    (['8', '9'], ['0', '1'])
    >>> next_ids(as_ids([3, -5]), 2).tolist()
    [4, 5]
    """
    if len(ids) and kind_of(ids) == "integer":
        first = max(int(ids.max()), -1) + 1
        return as_ids(range(first, first + count))
    # int() refuses strings of more than 4,300 digits.
    numbers = (int(i) for i in ids if i.isdecimal() and i.isascii() and len(i) < 1000)
    first = max(numbers, default=-1) + 1
    return as_ids([str(number) for number in range(first, first + count)])


def kind_of(ids: Ids) -> str:
    """Return the kind of ids, "integer" or "string"."""
    return "string" if ids.dtype == object else "integer"


def to_bytes(ids: Ids) -> bytes:
    """Serialize ids as little-endian 64-bit integers or as null-separated UTF-8."""
    if ids.dtype == object:
        # File names may contain bytes that are not UTF-8; Python decodes those to surrogates.
        return "\0".join(ids).encode("utf-8", "surrogatepass")
    return ids.astype("<i8").tobytes()


def from_bytes(data: bytes, kind: str) -> Ids:
    """Deserialize ids written by `to_bytes`; there must be at least one."""
    if kind == "integer":
        return np.frombuffer(data, "<i8").astype(np.int64, copy=False)
    return np.array(data.decode("utf-8", "surrogatepass").split("\0"), object)


def first_repeated(ids: Ids) -> object:
    """Return an id that occurs more than once, or None.

    Examples
    --------
    >>> first_repeated(as_ids([3, 1, 3])), first_repeated(as_ids(["a", "b"]))
    (3, None)
    """
    if ids.dtype == object:
        seen: set[str] = set()
        for value in ids:
            if value in seen:
                return value
            seen.add(value)
        return None
    ordered = np.sort(ids)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return int(repeated[0]) if len(repeated) else None


class IntegerLookup:
    """Positions of integer ids in sorted runs, 16 bytes per id.

    Each run is at least twice as long as the next. The number of runs is therefore logarithmic,
    and each id is merged only a logarithmic number of times, even for small batches.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Ids, Positions]] = []

    def extend(self, ids: Ids, first: int) -> None:
        """Add ids at the positions `first`, `first + 1`, and so on."""
        if not len(ids):
            return
        positions = np.arange(first, first + len(ids))
        while self._runs and len(self._runs[-1][0]) < 2 * len(ids):
            older = self._runs.pop()
            ids = np.concatenate([older[0], ids])
            positions = np.concatenate([older[1], positions])
        order = np.argsort(ids, kind="stable")
        self._runs.append((ids[order], positions[order]))

    def find(self, ids: Ids) -> Positions:
        """Return the last position of each id, or -1."""
        found = np.full(len(ids), -1, np.int64)
        for known, positions in self._runs:
            places = np.searchsorted(known, ids, side="right") - 1
            hits = (places >= 0) & (known[places] == ids)
            found[hits] = positions[places[hits]]
        return found


class StringLookup:
    """Positions of string ids, in a dictionary."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def extend(self, ids: Ids, first: int) -> None:
        """Add ids at the positions `first`, `first + 1`, and so on."""
        self._positions.update(zip(ids, range(first, first + len(ids)), strict=True))

    def find(self, ids: Ids) -> Positions:
        """Return the last position of each id, or -1."""
        return np.fromiter((self._positions.get(i, -1) for i in ids), np.int64, len(ids))
