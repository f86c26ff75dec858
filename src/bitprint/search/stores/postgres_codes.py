"""The table of codes of an index on PostgreSQL: filled, searched, looked up and emptied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitprint.codes import Codes
from bitprint.search.details import Item
from bitprint.search.errors import no_such_id
from bitprint.search.ids import Ids, kind_of
from bitprint.search.stores.postgres_connection import Connection
from bitprint.search.stores.postgres_rows import copy_data, to_bit_strings, to_parameter
from bitprint.search.stores.postgres_tables import Tables
from bitprint.search.stores.text import to_text

Rows = list[tuple[Any, ...]]

# Names of files may be longer than what a B-tree takes, hence the hash.
_CREATE = """
CREATE TABLE {codes} (
    ordinal bigint PRIMARY KEY, code bit({width}) NOT NULL, id {id} NOT NULL, path text,
    labels text[] NOT NULL, {unique}
);
CREATE INDEX codes_labels ON {codes} USING gin (labels)
"""

_COPY = "COPY {codes} (ordinal, code, id, path, labels) FROM STDIN (FORMAT binary)"

# The function gives what the operator gives, but no index stands in for it: this is exact.
NEAREST = """
SELECT n, id, distance
FROM unnest(%(queries)s::bit({width})[]) WITH ORDINALITY AS query (code, n)
CROSS JOIN LATERAL (
    SELECT id, ordinal, {distance}(stored.code, query.code)::int AS distance FROM {codes} AS stored
    WHERE %(label)s::text IS NULL OR labels @> ARRAY[%(label)s::text]
    ORDER BY distance, ordinal LIMIT %(k)s
) AS found
ORDER BY n, distance, ordinal
"""

WITHIN = """
SELECT n, id, {distance}(stored.code, query.code)::int AS distance
FROM unnest(%(queries)s::bit({width})[]) WITH ORDINALITY AS query (code, n)
JOIN {codes} AS stored ON {distance}(stored.code, query.code) <= %(radius)s
WHERE %(label)s::text IS NULL OR labels @> ARRAY[%(label)s::text]
ORDER BY n, distance, ordinal
"""

_LOOK_UP = """
SELECT {columns} FROM unnest(%s::{id}[]) WITH ORDINALITY AS wanted (id, n)
LEFT JOIN {codes} AS stored USING (id) ORDER BY n
"""

_DELETE = (
    "DELETE FROM {codes} AS stored USING unnest(%s::{id}[]) AS old (id) WHERE stored.id = old.id"
)


class CodesTable:
    """The table; there is none before the first codes, when the kind of ids is not known yet.

    Parameters
    ----------
    place : str
        What to call the index in errors.
    tables : Tables
    bits : int
    """

    def __init__(self, place: str, tables: Tables, bits: int) -> None:
        self._place = place
        self._tables = tables
        self._bits = bits

    def create(self, connection: Connection, kind: str) -> None:
        """Make the table, for ids of a kind."""
        connection.execute(self._tables.fill(_CREATE, kind=kind))

    def insert(
        self, connection: Connection, ids: Ids, codes: Codes, items: Sequence[Item] | None
    ) -> None:
        """Append rows."""
        last = self.read(connection, "SELECT coalesce(max(ordinal), -1) FROM {codes}")[0][0]
        with connection.cursor() as cursor, cursor.copy(self._tables.fill(_COPY)) as copy:
            for data in copy_data(last + 1, codes.packed, self._bits, ids, items):
                copy.write(data)

    def delete(self, connection: Connection, ids: Ids) -> int:
        """Delete the rows of these ids; return how many there were."""
        statement = self._tables.fill(_DELETE, kind=kind_of(ids))
        return connection.execute(statement, (to_parameter(ids),)).rowcount

    def search(
        self,
        connection: Connection,
        statement: str,
        codes: Codes,
        label: str | None,
        **limits: int,
    ) -> Rows:
        """Return rows of the number of a query, from 1 on, an id and its distance, in order."""
        asked = {
            **limits,
            "label": None if label is None else to_text(label),
            "queries": to_bit_strings(codes.packed, self._bits),
        }
        return self.read(connection, statement, asked)

    def look_up(self, connection: Connection, kind: str | None, ids: Ids, *columns: str) -> Rows:
        """Return the ordinal and further columns of each id; an unknown one is a ValueError.

        `kind` is that of the ids in the table, or None if there is no table.
        """
        if not len(ids):
            return []
        if kind != kind_of(ids):
            raise no_such_id(self._place, ids.tolist()[0])
        wanted = (to_parameter(ids),)
        rows = self.read(connection, _LOOK_UP, wanted, kind=kind, columns=columns)
        for identifier, row in zip(ids.tolist(), rows, strict=True):
            if row[0] is None:
                raise no_such_id(self._place, identifier)
        return rows

    def read(
        self, connection: Connection, statement: str, values: Any = None, **names: Any
    ) -> Rows:
        """Return the rows of a statement; codes as PostgreSQL sends them, see `postgres_rows`."""
        with connection.cursor(binary=True) as cursor:
            return cursor.execute(self._tables.fill(statement, **names), values).fetchall()
