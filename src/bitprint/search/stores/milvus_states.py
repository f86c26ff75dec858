"""The states of an index on Milvus, and how all of its rows change at once.

Milvus has no transactions, and needs none here. A writer puts its rows where the header does not
count them yet, so that no reader asks for them, and lists the rows that they replace. One write of
the header then changes everything at once. Only now are the replaced rows deleted. Whoever was cut
short before that write left rows that do not count; the next writer, who finds a claim that did not
end in a header, deletes them. Whoever was cut short after it left rows to delete, which readers
skip, and which the next writer deletes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any
from uuid import uuid4

from bitprint.search.errors import no_such_index, other_version
from bitprint.search.stores.milvus_pieces import Pieces
from bitprint.search.stores.milvus_rows import Rows
from bitprint.search.stores.milvus_views import CLAIM, FIRST_PIECE, HEADERS, Header, View
from bitprint.search.stores.text import from_text, to_text

_VERSION = 1


class States:
    """The committed state of an index, and the steps to the next."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._pieces = Pieces(rows)

    def first(self, header: Header, attachments: Mapping[str, bytes]) -> None:
        """Make an index without codes of a collection that has no rows."""
        self._write_header(self._pieces.attach(View(header), attachments).header)

    def view(self) -> View:
        """Read the state that is committed."""
        return self._read("Session")[0]

    def begin(self) -> View:
        """Clear up after a writer who was cut short, claim the index, and return a draft."""
        view, claim = self._read("Strong")
        header = view.header
        if claim != header.claim:
            last = FIRST_PIECE - header.pieces
            self._rows.delete(f"ordinal >= {header.total} or ordinal <= {last}")
        view = self.erase(view)
        claim = uuid4().hex
        self._rows.replace(CLAIM, header.width, {"claim": claim})
        return replace(view, header=replace(view.header, claim=claim))

    def commit(self, draft: View) -> View:
        """Make a draft the state of the index; what it took away is still to be erased."""
        committed, claim = self._read("Strong")
        header = draft.header
        if (claim, committed.header.generation) != (header.claim, header.generation):
            raise ValueError(
                f"{self._rows.place}: somebody else writes to this index, so nothing was stored; "
                "let one at a time write, and try again"
            )
        lists = self._pieces.write_list(header, draft.gone)
        generation = header.generation + 1
        header = replace(
            header,
            generation=generation,
            erased=generation if lists else header.erased,
            pieces=header.pieces + lists,
            erasing=lists,
        )
        self._write_header(header)
        return View(header, draft.gone)

    def erase(self, view: View) -> View:
        """Delete the rows that do not count any more, if there are any, and say so."""
        header = view.header
        if not header.erasing:
            return view
        self._rows.erase(view.gone.tolist())
        done = replace(header, generation=header.generation + 1, erasing=0)
        self._write_header(done)
        self._pieces.delete_list(header)
        return View(done)

    def _read(self, consistency: str) -> tuple[View, str]:
        """Read the state that is committed, and the last claim."""
        found = self._rows.query(
            f"ordinal in {[*HEADERS, CLAIM]}", ["details"], consistency_level=consistency
        )
        details = {row["ordinal"]: row["details"] for row in found}
        headers = [self._as_header(details[slot]) for slot in HEADERS if slot in details]
        if not headers:  # whoever made the collection was cut short
            raise no_such_index(self._rows.place)
        header = max(headers, key=lambda each: each.generation)
        view = View(header, self._pieces.read_list(header)) if header.erasing else View(header)
        return view, details.get(CLAIM, {}).get("claim", "")

    def _as_header(self, details: dict[str, Any]) -> Header:
        version = details.get("version")
        if version != _VERSION:
            raise other_version(self._rows.place, version, _VERSION)
        header = Header(**{each.name: details[each.name] for each in fields(Header)})
        return header if header.model is None else replace(header, model=from_text(header.model))

    def _write_header(self, header: Header) -> None:
        details = {"version": _VERSION, **asdict(header)}
        if header.model is not None:
            details["model"] = to_text(header.model)
        self._rows.replace(HEADERS[header.generation % 2], header.width, details)
