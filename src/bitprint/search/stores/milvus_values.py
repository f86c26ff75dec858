"""Values in the rows of an index on Milvus: ids and labels as names, items as JSON, filters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bitprint.search.details import NOTHING, Item
from bitprint.search.ids import Ids
from bitprint.search.stores.text import from_text, to_text

_UNSAFE = re.compile("[\x00-\x1f\"%'\\\\~\x7f\ud800-\udfff]")
_ESCAPED = re.compile("~([0-9a-f]{4})")
_NAMES_AT_ONCE = 4_096


def to_name(text: str) -> str:
    r"""Write a string so that it can stand between quotes in a filter, and in a pattern.

    Filters of Milvus have no way to write a line break, and its versions differ in others.

    Examples
    --------
    >>> to_name("café"), to_name('say "hi"')
    ('café', 'say ~0022hi~0022')
    """
    return _UNSAFE.sub(lambda found: f"~{ord(found[0]):04x}", text)


def from_name(name: str) -> str:
    """Undo `to_name`."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name)


def among(names: Sequence[str]) -> Iterator[str]:
    """The filters for rows that have one of some names, a few thousand names in each.

    Examples
    --------
    >>> list(among(["a", "b"]))
    ['name in ["a", "b"]']
    """
    for start in range(0, len(names), _NAMES_AT_ONCE):
        some = names[start : start + _NAMES_AT_ONCE]
        yield "name in [" + ", ".join(f'"{name}"' for name in some) + "]"


def to_names(ids: Ids) -> list[str]:
    """Write ids as names."""
    return (
        [to_name(value) for value in ids] if ids.dtype == object else list(map(str, ids.tolist()))
    )


def from_names(names: Sequence[str], kind: str | None) -> Ids:
    """Read ids of a kind from names."""
    if kind == "string":
        ids = np.empty(len(names), object)
        ids[:] = [from_name(name) for name in names]
        return ids
    return np.array([int(name) for name in names], np.int64)


def to_details(item: Item) -> dict[str, Any]:
    """Write a path and labels as JSON."""
    if item == NOTHING:
        return {}
    path = None if item.path is None else to_text(item.path)
    return {"path": path, "labels": [to_name(label) for label in item.labels]}


def from_details(details: dict[str, Any]) -> Item:
    """Undo `to_details`."""
    path = details.get("path")
    labels = tuple(from_name(label) for label in details.get("labels", ()))
    return Item(None if path is None else from_text(path), labels)
