"""The states of an index on Milvus: what its rows mean, and how all change at once.

One collection holds everything. What a row is follows from its primary key, `ordinal`:

0, 1, 2, ...
    Codes in insertion order: the id in `name`, the path and the labels in `details`.
-1 and -2
    The header, written to one and the other in turn: the later generation counts, and a write that
    is cut short leaves the earlier one.
-3
    The claim of the writer who began last.
-4, -5, ...
    Pieces of attachments, and of lists of rows that are to be deleted.

Milvus has no transactions, and needs none here. A writer puts its rows where the header does not
count them yet, so that no reader asks for them, and lists the rows that they replace. One write of
the header then changes everything at once. Only now are the replaced rows deleted. Whoever was cut
short before that write left rows that do not count; the next writer, who finds a claim that did not
end in a header, deletes them. Whoever was cut short after it left rows to delete, which readers
skip, and which the next writer deletes too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from bitprint.search.stores.milvus_rows import Rows
from bitprint.search.stores.milvus_values import to_name

_PAGE = 8_192  # rows asked for at once; Milvus returns at most 16,384
_PIECES_PAGE = 512  # of at most 60 kB each
_VERSION = 1
_HEADERS = (-1, -2)
_CLAIM = -3
_FIRST_PIECE = -4
_PIECE = 45_000  # bytes, 60,000 as text: JSON of Milvus holds 65,536
_LIST = "~"  # the name of a list of rows, which `to_name` makes of nothing


@dataclass(frozen=True)
class Header:
    """What the index says about itself; see `bitprint.search.file.Header`.

    `erased` is the last generation that took rows away, `pieces` counts the ordinals that pieces
    have used, and the last `erasing` of those list rows that are still to be deleted.
    """

    bits: int
    model: str | None
    kind: str | None = None
    generation: int = 0
    erased: int = 0
    total: int = 0
    live: int = 0
    pieces: int = 0
    erasing: int = 0
    claim: str = ""


@dataclass(frozen=True)
class View:
    """One state of the index: the header, and rows that do not count although it counts them."""

    header: Header
    gone: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def codes(self, first: int, end: int, label: str | None = None) -> str:
        """The filter for the codes at `first` to `end`, with a label."""
        carries = (
            f'json_contains(details["labels"], "{to_name(label)}")' if label is not None else ""
        )
        return self._between(first, end, carries)

    def pieces(self, first: int, end: int, condition: str = "") -> str:
        """The filter for the pieces numbered `first` to `end`."""
        return self._between(_FIRST_PIECE - end + 1, _FIRST_PIECE - first + 1, condition)

    def _between(self, first: int, end: int, condition: str) -> str:
        gone = self.gone[(self.gone >= first) & (self.gone < end)].tolist()
        parts = [f"ordinal >= {first} and ordinal < {end}"]
        parts += [f"ordinal not in {gone}"] if gone else []
        parts += [condition] if condition else []
        return " and ".join(parts)


class Piece(NamedTuple):
    """A part of an attachment, or of a list of rows."""

    ordinal: int
    name: str
    content: bytes


class States:
    """The committed state of an index, and the steps to the next."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def first(self, header: Header, attachments: dict[str, bytes]) -> None:
        """Make an empty index of a collection that has no rows."""
        pieces = self.write_pieces(View(header), attachments)
        self._write_header(replace(header, pieces=pieces))

    def view(self) -> View:
        """Read the state that is committed."""
        return self._read("Session")[0]

    def begin(self) -> View:
        """Clear up after a writer who was cut short, claim the index, and return a draft."""
        view, claim = self._read("Strong")
        header = view.header
        if claim != header.claim:
            last = _FIRST_PIECE - header.pieces
            self.rows.delete(f"ordinal >= {header.total} or ordinal <= {last}")
        if header.erasing:
            view = self._erase(view)
        claim = uuid4().hex
        self.rows.replace(_CLAIM, _width(header), {"claim": claim})
        return replace(view, header=replace(view.header, claim=claim))

    def commit(self, draft: View) -> View:
        """Make a draft the state of the index."""
        committed, claim = self._read("Strong")
        header = draft.header
        if (claim, committed.header.generation) != (header.claim, header.generation):
            raise ValueError(
                f"{self.rows.place}: somebody else writes to this index, so nothing was stored; "
                "let one at a time write, and try again"
            )
        gone = draft.gone.astype("<i8").tobytes()
        lists = self.write_pieces(draft, {_LIST: gone} if gone else {})
        generation = header.generation + 1
        header = replace(
            header,
            generation=generation,
            erased=generation if lists else header.erased,
            pieces=header.pieces + lists,
            erasing=lists,
        )
        self._write_header(header)
        return self._erase(View(header, draft.gone)) if lists else View(header)

    def write_pieces(self, draft: View, contents: Mapping[str, bytes]) -> int:
        """Write named bytes behind the pieces of a draft; return how many pieces they became."""
        pieces = [
            (name, content[start : start + _PIECE])
            for name, content in contents.items()
            for start in range(0, max(1, len(content)), _PIECE)
        ]
        first = _FIRST_PIECE - draft.header.pieces
        empty = bytes(_width(draft.header))
        self.rows.insert(
            (first - number, name, empty, {"content": base64.b64encode(piece).decode()})
            for number, (name, piece) in enumerate(pieces)
        )
        return len(pieces)

    def attachments(self, view: View, condition: str, *, contents: bool = True) -> Iterator[Piece]:
        """Read the pieces of the attachments that a filter selects, each in order."""
        page = _PIECES_PAGE if contents else _PAGE
        for start in range(0, view.header.pieces, page):
            end = min(start + page, view.header.pieces)
            not_a_list = f'name != "{_LIST}"' + (f" and {condition}" if condition else "")
            yield from self._pieces(view.pieces(start, end, not_a_list), contents=contents)

    def codes(self, view: View, columns: list[str]) -> Iterator[dict[str, Any]]:
        """Read columns of all codes in insertion order."""
        total = view.header.total if view.header.live else 0
        for start in range(0, total, _PAGE):
            rows = self.rows.query(view.codes(start, min(start + _PAGE, total)), columns)
            yield from sorted(rows, key=lambda row: int(row["ordinal"]))

    def _read(self, consistency: str) -> tuple[View, str]:
        """Read the state that is committed, and the last claim."""
        found = self.rows.query(
            f"ordinal in {[*_HEADERS, _CLAIM]}", ["details"], consistency_level=consistency
        )
        details = {row["ordinal"]: row["details"] for row in found}
        headers = [self._as_header(details[slot]) for slot in _HEADERS if slot in details]
        if not headers:  # whoever made the collection was cut short
            raise FileNotFoundError(f"{self.rows.place}: no such index; create it first")
        header = max(headers, key=lambda each: each.generation)
        view = View(header)
        if header.erasing:
            lists = self._pieces(view.pieces(header.pieces - header.erasing, header.pieces))
            gone = b"".join(piece.content for piece in lists)
            view = View(header, np.frombuffer(gone, "<i8").astype(np.int64))
        return view, details.get(_CLAIM, {}).get("claim", "")

    def _pieces(self, condition: str, *, contents: bool = True) -> list[Piece]:
        rows = self.rows.query(condition, ["name", "details"] if contents else ["name"])
        return [
            Piece(
                row["ordinal"],
                row["name"],
                base64.b64decode(row["details"]["content"]) if contents else b"",
            )
            for row in sorted(rows, key=lambda row: -int(row["ordinal"]))
        ]

    def _as_header(self, details: dict[str, Any]) -> Header:
        version = details.get("version")
        if version != _VERSION:
            raise ValueError(
                f"{self.rows.place}: an index of version {version}, this is version {_VERSION}; "
                "update bitprint"
            )
        return Header(**{each.name: details[each.name] for each in fields(Header)})

    def _write_header(self, header: Header) -> None:
        slot = _HEADERS[header.generation % 2]
        self.rows.replace(slot, _width(header), {"version": _VERSION, **asdict(header)})

    def _erase(self, view: View) -> View:
        """Delete the rows that do not count any more, and say so."""
        header = view.header
        for start in range(0, len(view.gone), _PAGE):
            self.rows.delete(f"ordinal in {view.gone[start : start + _PAGE].tolist()}")
        done = replace(header, generation=header.generation + 1, erasing=0)
        self._write_header(done)
        lists = range(header.pieces - header.erasing, header.pieces)
        self.rows.delete(f"ordinal in {[_FIRST_PIECE - number for number in lists]}")
        return View(done)


def _width(header: Header) -> int:
    return -(-header.bits // 8)
