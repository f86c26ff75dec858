"""Ids of an index: validation and serialization."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    if isinstance(ids, range) and ids:
        return _as_integers(ids)
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
        return _as_integers(values)
    raise ValueError("ids must be all integers or all strings")


def _as_integers(values: Sequence[Any]) -> Ids:
    try:
        return np.fromiter(map(int, values), np.int64, len(values))
    except OverflowError:
        raise ValueError("integer ids must be between -2**63 and 2**63 - 1") from None


def largest_number(ids: Ids) -> int:
    """Return the largest number among ids, at least -1; strings can be decimal numbers.

    Examples
    --------
    >>> largest_number(as_ids(["0", "cat", "7"])), largest_number(as_ids([-3]))
    (7, -1)
    """
    if kind_of(ids) == "integer":
        return max(int(ids.max(initial=-1)), -1)
    # int() refuses strings of more than 4,300 digits.
    numbers = (int(i) for i in ids if i.isdecimal() and i.isascii() and len(i) < 1000)
    return max(numbers, default=-1)


def ids_after(largest: int, count: int, kind: str | None) -> Ids:
    """Return `count` consecutive numbers after `largest`, as strings unless the kind is "integer".

    Examples
    --------
    >>> ids_after(7, 2, "string").tolist(), ids_after(-1, 2, "integer").tolist()
    (['8', '9'], [0, 1])
    """
    numbers = range(largest + 1, largest + 1 + count)
    return as_ids(numbers if kind == "integer" else [str(number) for number in numbers])


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
    if np.all(ids[1:] > ids[:-1]):
        return None
    ordered = np.sort(ids)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return int(repeated[0]) if len(repeated) else None
