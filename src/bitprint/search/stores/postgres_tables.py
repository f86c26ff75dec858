"""What an index on PostgreSQL has besides codes: its description and attachments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from psycopg import errors, sql

from bitprint.search.attachments import MOST_BYTES
from bitprint.search.checks import MOST_BITS
from bitprint.search.errors import other_version
from bitprint.search.stores.postgres_connection import Connection, Connections
from bitprint.search.stores.text import from_text, to_text

_FORMAT = "bitprint.index"
_VERSION = 1
_OLDEST_VECTOR = (0, 7)  # the first with Hamming distances of bits
_CANNOT_INSTALL = (
    errors.FeatureNotSupported,  # the server lacks its files
    errors.InsufficientPrivilege,
    errors.UniqueViolation,  # another process installs it at this moment
)

Vector = tuple[str, tuple[int, ...]]
"""The schema that pgvector is in, and its version."""

_CREATE = """
CREATE SCHEMA {schema};
CREATE TABLE {meta} (
    format text NOT NULL, version int NOT NULL, bits int NOT NULL, model text, kind text,
    held bigint NOT NULL, sole boolean PRIMARY KEY DEFAULT true CHECK (sole)
);
CREATE TABLE {attachments} (
    name bytea NOT NULL, content bytea NOT NULL, EXCLUDE USING hash (name WITH =)
)
"""


@dataclass(frozen=True)
class Meta:
    """What describes an index."""

    bits: int
    model: str | None
    kind: str | None
    """That of its ids: "integer", "string", or None before the first."""
    held: int
    """How many codes there are."""


class Tables:
    """Fills the names of one index into statements; every name is quoted.

    Parameters
    ----------
    index : str
        The name of the index, which is that of the schema.
    vector : str
        The schema that pgvector is in.
    bits : int
    """

    def __init__(self, index: str, vector: str, bits: int) -> None:
        self._names: dict[str, sql.Composable] = {
            "schema": sql.Identifier(index),
            "distance": sql.Identifier(vector, "hamming_distance"),
            "operator": sql.SQL("OPERATOR({}.<~>)").format(sql.Identifier(vector)),
            "ops": sql.Identifier(vector, "bit_hamming_ops"),
            "hnsw": sql.Identifier(index, "codes_hnsw"),
            "width": sql.Literal(bits),
        }
        for table in ("meta", "codes", "attachments"):
            self._names[table] = sql.Identifier(index, table)

    def fill(
        self,
        statement: str,
        *,
        kind: str | None = None,
        columns: Sequence[str] = (),
        **numbers: int,
    ) -> sql.Composed:
        """Fill in names, the type of ids of a kind, columns besides the ordinal, and numbers."""
        names = dict(self._names)
        names["columns"] = sql.SQL(", ").join(map(sql.Identifier, ["ordinal", *columns]))
        if kind is not None:
            names["id"] = sql.SQL("bigint" if kind == "integer" else "text")
            names["unique"] = sql.SQL(
                "UNIQUE (id)" if kind == "integer" else "EXCLUDE USING hash (id WITH =)"
            )
        names |= {name: sql.Literal(number) for name, number in numbers.items()}
        return sql.SQL(statement).format(**names)


def create(
    connections: Connections, bits: int, model: str | None, attachments: Mapping[str, bytes]
) -> None:
    """Make an index without codes, and the extension vector in the database if it lacks it."""
    place, index = connections.address.shown, connections.address.index
    with connections.use() as connection:
        _check_encoding(connection, place)
        vector, _ = _ensure_vector(connection, place)
    tables = Tables(index, vector, bits)
    with connections.transaction() as connection:
        try:
            connection.execute(tables.fill(_CREATE))
        except (errors.DuplicateSchema, errors.UniqueViolation):
            raise FileExistsError(
                f"{place}: a schema {index} exists already; open it, or create the index under "
                "another name"
            ) from None
        connection.execute(
            tables.fill("INSERT INTO {meta} VALUES (%s, %s, %s, %s, NULL, 0)"),
            (_FORMAT, _VERSION, bits, None if model is None else to_text(model)),
        )
        attach(connection, tables, place, attachments)


def read_meta(connection: Connection, place: str, index: str, *, lock: bool = False) -> Meta:
    """Read what describes an index; with `lock`, other writers wait until the transaction ends."""
    statement = "SELECT to_jsonb(meta) FROM {} AS meta" + (" FOR UPDATE" if lock else "")
    rows = connection.execute(sql.SQL(statement).format(sql.Identifier(index, "meta"))).fetchall()
    found: dict[str, Any] = rows[0][0] if len(rows) == 1 else {"format": _FORMAT}
    if found.get("format") != _FORMAT:
        raise ValueError(f"{place}: the schema {index} is not a bitprint index")
    if found.get("version", _VERSION) != _VERSION:
        raise other_version(place, found["version"], _VERSION)
    bits, model, kind, held = (found.get(name) for name in ("bits", "model", "kind", "held"))
    if (
        not isinstance(bits, int)
        or not 1 <= bits <= MOST_BITS
        or kind not in (None, "integer", "string")
        or not isinstance(held, int)
    ):
        raise ValueError(
            f"{place}: the index is damaged (its table meta does not check out); restore it from "
            "a copy"
        )
    return Meta(bits, None if model is None else from_text(model), kind, held)


def update_meta(connection: Connection, tables: Tables, kind: str | None, held: int) -> None:
    """Write what a change of the codes has changed."""
    connection.execute(tables.fill("UPDATE {meta} SET kind = %s, held = %s"), (kind, held))


def find_vector(connection: Connection, place: str) -> Vector:
    """Return where pgvector is; raises a ValueError if the database lacks it."""
    row = connection.execute(
        "SELECT nspname, extversion FROM pg_extension JOIN pg_namespace "
        "ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
    ).fetchone()
    if row is None:
        raise ValueError(
            f"{place}: the database lacks the extension vector; "
            "install pgvector on the server and run CREATE EXTENSION vector"
        )
    version = tuple(int(part) for part in row[1].split(".")[:2])
    if version < _OLDEST_VECTOR:
        raise ValueError(
            f"{place}: its extension vector is {row[1]}, and Hamming distances came with 0.7; "
            "install a newer pgvector on the server and run ALTER EXTENSION vector UPDATE"
        )
    return row[0], version


def _ensure_vector(connection: Connection, place: str) -> Vector:
    """Install pgvector in the database, unless it is there."""
    with suppress(*_CANNOT_INSTALL):  # it may have been installed by somebody who can
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return find_vector(connection, place)


def _check_encoding(connection: Connection, place: str) -> None:
    """Raise a ValueError unless the database takes every character."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ValueError(
            f"{place}: the database is in {encoding}, which lacks most characters; use one in UTF8"
        )


def attach(
    connection: Connection, tables: Tables, place: str, contents: Mapping[str, bytes | None]
) -> None:
    """Write attachments, or delete those that are None."""
    for name, content in contents.items():
        if content is not None and len(content) > MOST_BYTES:
            raise ValueError(
                f"{place}: the attachment {name} has {len(content)} bytes; an index takes "
                f"{MOST_BYTES} each"
            )
    keys = [_key(name) for name in contents]
    connection.execute(
        tables.fill("DELETE FROM {attachments} USING unnest(%s::bytea[]) AS old WHERE name = old"),
        (keys,),
    )
    rows = [(_key(name), content) for name, content in contents.items() if content is not None]
    with connection.cursor() as cursor:
        cursor.executemany(tables.fill("INSERT INTO {attachments} VALUES (%b, %b)"), rows)


def read_attachments(connection: Connection, tables: Tables, prefix: str) -> dict[str, bytes]:
    """Read the attachments whose names begin with `prefix`, ordered by name."""
    key = _key(prefix)
    statement = tables.fill(
        "SELECT name, content FROM {attachments} WHERE substring(name FROM 1 FOR %s) = %s "
        "ORDER BY name"
    )
    with connection.cursor(binary=True) as cursor:
        rows = cursor.execute(statement, (len(key), key)).fetchall()
    return {name.decode("utf-8", "surrogatepass"): content for name, content in rows}


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
