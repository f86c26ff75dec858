"""What an index asks of its arguments, wherever it keeps its codes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from bitprint.codes import Codes, as_codes, check_bits
from bitprint.search.details import Item, as_items
from bitprint.search.ids import Ids, as_ids, first_repeated, kind_of, next_ids

MOST_BITS = 1024


def check_length(bits: int) -> int:
    """Return the length of the codes of a new index, or raise a ValueError."""
    if check_bits(bits) > MOST_BITS:
        raise ValueError(f"an index holds codes of at most {MOST_BITS} bits, got {bits}")
    return int(bits)


def check_codes(place: object, bits: int, codes: Any) -> Codes:
    """Return codes that the index at `place` compares with, or raise a ValueError.

    An array, a torch tensor or a list of -1 and +1 means codes.
    """
    if isinstance(codes, str | os.PathLike):
        raise ValueError(f"{place}: search takes codes, such as hasher.encode({str(codes)!r})")
    if not isinstance(codes, Codes | list | tuple) and not hasattr(codes, "__array__"):
        raise ValueError(
            f"{place}: an index searches Codes by Hamming distance, which means nothing "
            f"for {type(codes).__name__}; rank those by a distance of their own"
        )
    checked = as_codes(codes)
    if checked.bits != bits:
        raise ValueError(f"{place}: this index holds codes of {bits} bits, got {checked.bits}")
    return checked


def check_batch(
    place: object,
    bits: int,
    ids: Any,
    codes: Any,
    paths: Iterable[str | os.PathLike[str] | None] | None,
    labels: Iterable[Iterable[str]] | None,
) -> tuple[Ids, Codes, list[Item] | None]:
    """Return the ids, codes and items of a batch for `add`, or raise a ValueError."""
    if isinstance(ids, Codes):
        raise ValueError("ids come before the codes: index.add(ids, codes)")
    new = as_ids(ids)
    codes = check_codes(place, bits, codes)
    if len(new) != len(codes):
        raise ValueError(f"{len(new)} ids for {len(codes)} codes; give one per code")
    items = as_items(len(new), paths, labels)
    repeated = first_repeated(new)
    if repeated is not None:
        raise ValueError(f"the id {repeated!r} is given twice in one batch")
    return new, codes, items


def add_numbered(
    index: Any,
    codes: Any,
    paths: Iterable[str | os.PathLike[str] | None] | None,
    labels: Iterable[Iterable[str]] | None,
) -> None:
    """Add codes that come without ids, under numbers that the index does not hold."""
    if isinstance(codes, list | tuple) and codes and isinstance(codes[0], str | int):
        raise ValueError("ids were given without codes: index.add(ids, codes)")
    codes = check_codes(index.path, index.bits, codes)
    with index.transaction():
        index.add(next_ids(index.ids(), len(codes)), codes, paths, labels)


def check_kind(place: object, kind: str | None, ids: Ids) -> None:
    """Raise a ValueError if an index that has ids of one kind is given the other."""
    if kind not in (None, kind_of(ids)):
        raise ValueError(f"{place}: this index has {kind} ids, got {kind_of(ids)} ids")
