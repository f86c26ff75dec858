"""What an index asks of its arguments, wherever it keeps its codes."""

from __future__ import annotations

import os
from collections.abc import Iterable

from bitprint.codes import Codes, check_bits
from bitprint.search.details import Item, as_items
from bitprint.search.ids import IdList, Ids, as_ids, first_repeated, kind_of

MOST_BITS = 1024


def check_length(bits: int) -> int:
    """Return the length of the codes of a new index, or raise a ValueError."""
    if check_bits(bits) > MOST_BITS:
        raise ValueError(f"an index holds codes of at most {MOST_BITS} bits, got {bits}")
    return int(bits)


def check_codes(place: object, bits: int, codes: Codes) -> None:
    """Raise a ValueError unless these are codes that the index at `place` compares with."""
    if not isinstance(codes, Codes):
        raise ValueError(
            f"{place}: an index searches Codes by Hamming distance, which means nothing "
            f"for {type(codes).__name__}; rank those by a distance of their own"
        )
    if codes.bits != bits:
        raise ValueError(f"{place}: this index holds codes of {bits} bits, got {codes.bits}")


def check_batch(
    place: object,
    bits: int,
    ids: IdList,
    codes: Codes,
    paths: Iterable[str | os.PathLike[str] | None] | None,
    labels: Iterable[Iterable[str]] | None,
) -> tuple[Ids, list[Item] | None]:
    """Return the ids and items of a batch for `add`, or raise a ValueError."""
    new = as_ids(ids)
    check_codes(place, bits, codes)
    if len(new) != len(codes):
        raise ValueError(f"{len(new)} ids for {len(codes)} codes; give one per code")
    items = as_items(len(new), paths, labels)
    repeated = first_repeated(new)
    if repeated is not None:
        raise ValueError(f"the id {repeated!r} is given twice in one batch")
    return new, items


def check_kind(place: object, kind: str | None, ids: Ids) -> None:
    """Raise a ValueError if an index that has ids of one kind is given the other."""
    if kind not in (None, kind_of(ids)):
        raise ValueError(f"{place}: this index has {kind} ids, got {kind_of(ids)} ids")
