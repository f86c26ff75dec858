"""Argument validation shared by all index back-ends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes, as_codes, check_bits
from bitprint.search.details import Item, as_items
from bitprint.search.ids import Ids, as_ids, first_repeated, ids_after, kind_of, largest_number
from bitprint.search.promises import grouped

MOST_BITS = 1024


def check_length(bits: int) -> int:
    """Return the code length of a new index, or raise ValueError if it is invalid."""
    if check_bits(bits) > MOST_BITS:
        raise ValueError(f"an index supports codes of at most {MOST_BITS} bits, got {bits}")
    return int(bits)


def check_codes(place: object, bits: int, codes: Any) -> Codes:
    """Return `codes` as Codes of `bits` bits, or raise ValueError if they do not fit the index.

    Arrays, torch tensors and lists of -1 and +1 are converted.
    """
    if isinstance(codes, Codes) and codes.bits == bits:
        return codes
    if isinstance(codes, str | os.PathLike):
        raise ValueError(
            f"{place}: expected codes, got a path; encode the image first, for example with "
            f"hasher.encode({str(codes)!r})"
        )
    if not isinstance(codes, Codes | list | tuple) and not hasattr(codes, "__array__"):
        raise ValueError(
            f"{place}: expected Codes, got {type(codes).__name__}; an index compares binary codes "
            "by Hamming distance"
        )
    checked = as_codes(codes)
    if checked.bits != bits:
        raise ValueError(f"{place}: this index stores codes of {bits} bits, got {checked.bits}")
    return checked


def check_batch(
    place: object,
    bits: int,
    ids: Any,
    codes: Any,
    paths: Iterable[str | os.PathLike[str] | None] | None,
    labels: Iterable[Iterable[str]] | None,
) -> tuple[Ids, Codes, list[Item] | None]:
    """Return the ids, codes and items of a batch for `add`, or raise ValueError."""
    if isinstance(ids, Codes):
        raise ValueError("ids must come before codes: index.add(ids, codes)")
    new = as_ids(ids)
    codes = check_codes(place, bits, codes)
    if len(new) != len(codes):
        raise ValueError(f"got {len(new)} ids for {len(codes)} codes; give one id per code")
    items = as_items(len(new), paths, labels)
    repeated = first_repeated(new)
    if repeated is not None:
        raise ValueError(f"duplicate id {repeated!r} in one batch")
    return new, codes, items


def add_numbered(
    index: Any,
    codes: Any,
    paths: Iterable[str | os.PathLike[str] | None] | None,
    labels: Iterable[Iterable[str]] | None,
    new_ids: Callable[[int], Ids] | None = None,
) -> None:
    """Add codes without ids; number them after the largest number in the index.

    `new_ids` returns a number of new ids, if the index can do so without reading all ids.
    """
    if isinstance(codes, list | tuple) and codes and isinstance(codes[0], str | int):
        raise ValueError("got ids without codes; call index.add(ids, codes)")
    codes = check_codes(index.path, index.bits, codes)
    with grouped(index):
        if new_ids is None:
            ids = index.ids()
            kind = kind_of(ids) if len(ids) else None
            new = ids_after(largest_number(ids), len(codes), kind)
        else:
            new = new_ids(len(codes))
        index.add(new, codes, paths, labels)


def check_kind(place: object, kind: str | None, ids: Ids) -> None:
    """Raise ValueError if `ids` are integers in an index of strings, or the reverse."""
    if kind not in (None, kind_of(ids)):
        raise ValueError(f"{place}: this index has {kind} ids, got {kind_of(ids)} ids")


def check_records(place: object, width: int, count: int, records: NDArray[Any] | None) -> None:
    """Raise ValueError unless there is one record of `width` bytes per code, or none if it is 0."""
    if records is None:
        if width:
            raise ValueError(
                f"{place}: this index stores {width} bytes with each code, and got codes alone; "
                "for vectors use bp.VectorIndex or `bitprint vectors add`"
            )
    elif records.dtype != np.uint8 or records.shape != (count, width):
        raise ValueError(
            f"{place}: records of this index must be uint8 of shape ({count}, {width}), "
            f"got {records.dtype} of shape {records.shape}"
        )
