"""Named bytes in an index on Milvus, as pieces that fit in its rows: attachments, and lists."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bitprint.search.stores.milvus_rows import PAGE, Rows
from bitprint.search.stores.milvus_values import among, from_name, to_name
from bitprint.search.stores.milvus_views import FIRST_PIECE, Header, View

_PIECE = 45_000  # bytes, 60,000 as text: JSON of Milvus holds 65,536
_PIECES_PAGE = 512  # of at most 60 kB each
_LIST = "~"  # the name of a list of rows, which `to_name` makes of nothing


class Pieces:
    """The pieces of one index, each numbered by how many were written before it."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def attach(self, draft: View, contents: Mapping[str, bytes | None]) -> View:
        """Write attachments, or take away those that are None; return the draft that follows."""
        names = [to_name(name) for name in contents]
        old = [ordinal for chosen in among(names) for ordinal, _ in self._select(draft, chosen)]
        new = {to_name(name): content for name, content in contents.items() if content is not None}
        pieces = draft.header.pieces + self._write(draft.header, new)
        return draft.without(old, replace(draft.header, pieces=pieces))

    def attachments(self, view: View, prefix: str) -> dict[str, bytes]:
        """Read the attachments whose names begin with `prefix`, ordered by name."""
        selected = self._select(view, f'name like "{to_name(prefix)}%"' if prefix else "")
        # In a pattern, an underscore stands for any character.
        ordinals = [ordinal for ordinal, name in selected if from_name(name).startswith(prefix)]
        found: dict[str, list[bytes]] = {}
        for name, content in self._read(ordinals):
            found.setdefault(from_name(name), []).append(content)
        return {name: b"".join(found[name]) for name in sorted(found)}

    def write_list(self, header: Header, ordinals: NDArray[np.int64]) -> int:
        """Write a list of rows, if it has any; return how many pieces it became."""
        content = ordinals.astype("<i8").tobytes()
        return self._write(header, {_LIST: content} if content else {})

    def read_list(self, header: Header) -> NDArray[np.int64]:
        """Read the list that the last `erasing` pieces are."""
        content = b"".join(content for _, content in self._read(_list_ordinals(header)))
        return np.frombuffer(content, "<i8").astype(np.int64)

    def delete_list(self, header: Header) -> None:
        """Delete the list that the last `erasing` pieces are."""
        self._rows.erase(_list_ordinals(header))

    def _write(self, header: Header, contents: Mapping[str, bytes]) -> int:
        """Write named bytes behind the pieces there are; return how many pieces they became."""
        pieces = [
            (name, content[start : start + _PIECE])
            for name, content in contents.items()
            for start in range(0, max(1, len(content)), _PIECE)
        ]
        first = FIRST_PIECE - header.pieces
        empty = bytes(header.width)
        self._rows.insert(
            (first - number, name, empty, {"content": base64.b64encode(piece).decode()})
            for number, (name, piece) in enumerate(pieces)
        )
        return len(pieces)

    def _select(self, view: View, condition: str) -> Iterator[tuple[int, str]]:
        """Give the ordinal and the name of the pieces of attachments that a filter selects."""
        condition = f'name != "{_LIST}"' + (f" and {condition}" if condition else "")
        for start in range(0, view.header.pieces, PAGE):
            end = min(start + PAGE, view.header.pieces)
            for row in self._rows.query(view.pieces(start, end, condition), ["name"]):
                yield row["ordinal"], row["name"]

    def _read(self, ordinals: list[int]) -> Iterator[tuple[str, bytes]]:
        """Give the name and the content of pieces, in the order in which they were written."""
        ordered = sorted(ordinals, reverse=True)
        for start in range(0, len(ordered), _PIECES_PAGE):
            condition = f"ordinal in {ordered[start : start + _PIECES_PAGE]}"
            rows = self._rows.query(condition, ["name", "details"])
            for row in sorted(rows, key=lambda row: -int(row["ordinal"])):
                yield row["name"], base64.b64decode(row["details"]["content"])


def _list_ordinals(header: Header) -> list[int]:
    numbers = range(header.pieces - header.erasing, header.pieces)
    return [FIRST_PIECE - number for number in numbers]
