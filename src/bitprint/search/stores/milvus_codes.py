"""The codes of an index on Milvus: appended, looked up by their ids, read in order, taken away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bitprint.codes import Codes
from bitprint.search.details import NOTHING, Item
from bitprint.search.errors import no_such_id
from bitprint.search.ids import Ids, kind_of
from bitprint.search.stores.milvus_rows import PAGE, Rows
from bitprint.search.stores.milvus_values import among, to_details, to_names
from bitprint.search.stores.milvus_views import View

Row = dict[str, Any]


class CodeRows:
    """The rows of the codes of one index; changes return the draft that follows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def add(self, draft: View, ids: Ids, codes: Codes, items: Sequence[Item] | None) -> View:
        """Append codes, and take away those whose ids they take over."""
        header = draft.header
        replaced = [row["ordinal"] for row in self.find(draft, ids).values()]
        described = items if items is not None else [NOTHING] * len(ids)
        self._rows.insert(
            (header.total + number, name, code.tobytes(), to_details(item))
            for number, (name, code, item) in enumerate(
                zip(to_names(ids), codes.packed, described, strict=True)
            )
        )
        header = replace(
            header,
            kind=kind_of(ids),
            total=header.total + len(ids),
            live=header.live + len(ids) - len(replaced),
        )
        return draft.without(replaced, header)

    def remove(self, draft: View, ids: Ids) -> View:
        """Take codes away; an unknown id is a ValueError."""
        rows = in_order(self._rows.place, ids, self.find(draft, ids))
        old = {row["ordinal"] for row in rows}
        return draft.without(old, replace(draft.header, live=draft.header.live - len(old)))

    def find(self, view: View, ids: Ids, *columns: str) -> dict[str, Row]:
        """Return the ordinal and further columns of ids, as far as there are any, by name."""
        if not view.header.live or view.header.kind != kind_of(ids):
            return {}
        codes = view.codes(0, view.header.total)
        return {
            row["name"]: row
            for chosen in among(to_names(ids))
            for row in self._rows.query(f"{chosen} and {codes}", ["name", *columns])
        }

    def read(self, view: View, column: str) -> Iterator[Any]:
        """Read a column of all codes in insertion order."""
        total = view.header.total if view.header.live else 0
        for start in range(0, total, PAGE):
            rows = self._rows.query(view.codes(start, min(start + PAGE, total)), [column])
            for row in sorted(rows, key=lambda row: int(row["ordinal"])):
                yield row[column]


def in_order(place: str, ids: Ids, found: Mapping[str, Row]) -> list[Row]:
    """Return the row of each id, of those that `find` has found; an unknown id is a ValueError.

    Not a part of `find`, which may be asked about a state of the index that is over.
    """
    names = to_names(ids)
    for identifier, name in zip(ids.tolist(), names, strict=True):
        if name not in found:
            raise no_such_id(place, identifier)
    return [found[name] for name in names]
