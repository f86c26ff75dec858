"""The tables of an index on PostgreSQL: their definition, statements and conversions.

An index is a schema with the tables `meta` (one row), `codes` (made with the first codes, when the
type of the ids is known) and `attachments`. Comments in the database describe their columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from psycopg import errors, sql

from bitprint.codes import Codes
from bitprint.search.attachments import MOST_BYTES
from bitprint.search.checks import MOST_BITS
from bitprint.search.details import NOTHING, Item
from bitprint.search.errors import no_such_id, other_version
from bitprint.search.ids import Ids, kind_of
from bitprint.search.stores.postgres_connection import Connection
from bitprint.search.stores.text import from_text, to_text
from bitprint.utils.arguments import check_whole

_FORMAT = "bitprint.index"
_VERSION = 2
_ROWS = 65_536  # codes that are converted at once
_OLDEST_VECTOR = (0, 7)  # the first pgvector with Hamming distances of bits
_ITERATIVE_VECTOR = (0, 8)  # the first that searches until k codes pass a filter
_MOST_EF = 1000  # limits of pgvector
_MOST_M = 100
_CANNOT_INSTALL = (
    errors.FeatureNotSupported,  # the server lacks its files
    errors.InsufficientPrivilege,
    errors.UniqueViolation,  # another process is installing it
)

Row = tuple[Any, ...]
Items = Sequence[Item] | None

# Names are unique by hash because file names may exceed the limit of a B-tree.
_CREATE = """
CREATE SCHEMA {schema};
COMMENT ON SCHEMA {schema} IS
    'An index of bitprint: binary codes of images, searched by Hamming distance';
CREATE TABLE {meta} (
    format text NOT NULL, version int NOT NULL, bits int NOT NULL, model text, id_type text,
    code_count bigint NOT NULL, only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row)
);
COMMENT ON TABLE {meta} IS 'Properties of the index, in one row; writers lock it';
COMMENT ON COLUMN {meta}.format IS 'Always bitprint.index';
COMMENT ON COLUMN {meta}.version IS 'Version of the layout of these tables';
COMMENT ON COLUMN {meta}.bits IS 'Length of the codes';
COMMENT ON COLUMN {meta}.model IS 'Identity of the model that computes the codes';
COMMENT ON COLUMN {meta}.id_type IS 'integer or string; NULL before the first codes';
COMMENT ON COLUMN {meta}.code_count IS 'Number of rows of the table codes';
COMMENT ON COLUMN {meta}.only_row IS 'Prevents a second row';
CREATE TABLE {attachments} (
    name text NOT NULL, content bytea NOT NULL, EXCLUDE USING hash (name WITH =)
);
COMMENT ON TABLE {attachments} IS 'Named bytes, for example the model and the list of files';
COMMENT ON COLUMN {attachments}.name IS 'Name; bytes that are not text are escaped';
COMMENT ON COLUMN {attachments}.content IS 'Content'
"""

_CREATE_CODES = """
CREATE TABLE {codes} (
    ordinal bigint PRIMARY KEY, id {id} NOT NULL, code bit({width}) NOT NULL, path text,
    labels text[] NOT NULL, {unique}
);
CREATE INDEX codes_labels ON {codes} USING gin (labels);
COMMENT ON TABLE {codes} IS 'One row per code';
COMMENT ON COLUMN {codes}.ordinal IS 'Insertion order';
COMMENT ON COLUMN {codes}.id IS 'Id; bytes that are not text are escaped';
COMMENT ON COLUMN {codes}.code IS 'Binary code of the image';
COMMENT ON COLUMN {codes}.path IS 'Path of the image file, if known';
COMMENT ON COLUMN {codes}.labels IS 'Labels of the image'
"""

_COPY = "COPY {codes} (ordinal, id, code, path, labels) FROM STDIN"

# The function returns what the operator returns, but cannot use an index: the search is exact.
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

NEAREST_APPROXIMATELY = """
SELECT n, id, distance
FROM unnest(%(queries)s::bit({width})[]) WITH ORDINALITY AS query (code, n)
CROSS JOIN LATERAL (
    SELECT id, ordinal, (stored.code {operator} query.code)::int AS distance
    FROM {codes} AS stored
    WHERE %(label)s::text IS NULL OR labels @> ARRAY[%(label)s::text]
    ORDER BY stored.code {operator} query.code LIMIT %(k)s
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
SELECT ordinal, {columns} FROM unnest(%s::{id}[]) WITH ORDINALITY AS wanted (id, n)
LEFT JOIN {codes} AS stored USING (id) ORDER BY n
"""

_DELETE = (
    "DELETE FROM {codes} AS stored USING unnest(%s::{id}[]) AS old (id) WHERE stored.id = old.id"
)

_CREATE_HNSW = """
DROP INDEX IF EXISTS {hnsw};
CREATE INDEX codes_hnsw ON {codes} USING hnsw (code {ops}) WITH (m = {m}, ef_construction = {ef})
"""

_PREFER_HNSW = "SET LOCAL hnsw.ef_search = {ef}; SET LOCAL enable_seqscan = off"
_ITERATE = "SET LOCAL hnsw.iterative_scan = strict_order"


class Vector(NamedTuple):
    """The extension pgvector of a database."""

    schema: str
    version: tuple[int, ...]


@dataclass(frozen=True)
class Meta:
    """The properties of an index."""

    bits: int
    model: str | None
    kind: str | None
    """The kind of the ids, "integer" or "string"; None before the first codes."""
    count: int
    """The number of codes."""


class Tables:
    """The tables of one index.

    Parameters
    ----------
    place : str
        The address without the password, for errors.
    index : str
        The name of the index and of its schema.
    bits : int
    vector : Vector
    """

    def __init__(self, place: str, index: str, bits: int, vector: Vector) -> None:
        self._place = place
        self._bits = bits
        self._vector = vector
        schema = vector.schema
        self._names: dict[str, sql.Composable] = {
            "schema": sql.Identifier(index),
            "distance": sql.Identifier(schema, "hamming_distance"),
            "operator": sql.SQL("OPERATOR({}.<~>)").format(sql.Identifier(schema)),
            "ops": sql.Identifier(schema, "bit_hamming_ops"),
            "hnsw": sql.Identifier(index, "codes_hnsw"),
            "width": sql.Literal(bits),
        }
        for table in ("meta", "codes", "attachments"):
            self._names[table] = sql.Identifier(index, table)

    def fill(self, statement: str, kind: str | None = None, **numbers: int) -> sql.Composed:
        """Insert the names of the index, the type of ids of a kind, and numbers."""
        names = dict(self._names)
        if kind is not None:
            names["id"] = sql.SQL("bigint" if kind == "integer" else "text")
            # Names may be too long for a B-tree.
            unique = "UNIQUE (id)" if kind == "integer" else "EXCLUDE USING hash (id WITH =)"
            names["unique"] = sql.SQL(unique)
        names |= {name: sql.Literal(number) for name, number in numbers.items()}
        return sql.SQL(statement).format(**names)

    def create(
        self, connection: Connection, model: str | None, attachments: Mapping[str, bytes]
    ) -> None:
        """Create the tables of an empty index."""
        try:
            connection.execute(self.fill(_CREATE))
        except (errors.DuplicateSchema, errors.UniqueViolation):
            raise FileExistsError(
                f"{self._place}: a schema of this name exists already; open it, or create the "
                "index under another name"
            ) from None
        connection.execute(
            self.fill("INSERT INTO {meta} VALUES (%s, %s, {width}, %s, NULL, 0)"),
            (_FORMAT, _VERSION, None if model is None else to_text(model)),
        )
        self.attach(connection, attachments)

    def add(self, connection: Connection, meta: Meta, ids: Ids, codes: Codes, items: Items) -> None:
        """Append codes, after deleting those with the same ids."""
        kind = kind_of(ids)
        if meta.kind is None:
            connection.execute(self.fill(_CREATE_CODES, kind))
        replaced = self._delete(connection, ids) if meta.count else 0
        last = self.read(connection, "SELECT coalesce(max(ordinal), -1) FROM {codes}")[0][0]
        with connection.cursor() as cursor, cursor.copy(self.fill(_COPY)) as copy:
            for row in _copied_rows(last + 1, ids, codes, items):
                copy.write_row(row)
        self._update_meta(connection, kind, meta.count + len(ids) - replaced)

    def remove(self, connection: Connection, meta: Meta, ids: Ids) -> None:
        """Delete codes; raise ValueError for an unknown id."""
        self.look_up(connection, meta.kind, ids, "id")
        count = meta.count - self._delete(connection, ids)
        self._update_meta(connection, meta.kind, count)

    def _delete(self, connection: Connection, ids: Ids) -> int:
        """Delete the rows with these ids; return their number."""
        return connection.execute(self.fill(_DELETE, kind_of(ids)), (_to_values(ids),)).rowcount

    def _update_meta(self, connection: Connection, kind: str | None, count: int) -> None:
        statement = self.fill("UPDATE {meta} SET id_type = %s, code_count = %s")
        connection.execute(statement, (kind, count))

    def search(
        self, connection: Connection, statement: str, codes: Codes, label: str | None, **limit: int
    ) -> list[Row]:
        """Return rows of the number of a query, from 1, an id and its distance, in order."""
        asked = {
            **limit,
            "label": None if label is None else to_text(label),
            "queries": to_bit_strings(codes),
        }
        return self.read(connection, statement, asked)

    def look_up(
        self, connection: Connection, kind: str | None, ids: Ids, *columns: str
    ) -> list[Row]:
        """Return columns of each id, in order; raise ValueError for an unknown id.

        `kind` is the kind of the ids in the table, or None if the table does not exist.
        """
        if not len(ids):
            return []
        if kind != kind_of(ids):
            raise no_such_id(self._place, ids.tolist()[0])
        statement = _LOOK_UP.replace("{columns}", ", ".join(columns))
        rows = self.read(connection, statement, (_to_values(ids),), kind)
        for identifier, (ordinal, *_) in zip(ids.tolist(), rows, strict=True):
            if ordinal is None:
                raise no_such_id(self._place, identifier)
        return [row[1:] for row in rows]

    def read(
        self, connection: Connection, statement: str, values: Any = None, kind: str | None = None
    ) -> list[Row]:
        """Return the rows of a statement in binary form, see `from_bit_fields`."""
        with connection.cursor(binary=True) as cursor:
            return cursor.execute(self.fill(statement, kind), values).fetchall()

    def attach(self, connection: Connection, contents: Mapping[str, bytes | None]) -> None:
        """Write attachments, and delete those that are None."""
        for name, content in contents.items():
            if content is not None and len(content) > MOST_BYTES:
                raise ValueError(
                    f"{self._place}: the attachment {name} has {len(content)} bytes; the limit is "
                    f"{MOST_BYTES} bytes"
                )
        statement = "DELETE FROM {attachments} USING unnest(%s::text[]) AS old WHERE name = old"
        connection.execute(self.fill(statement), ([to_text(name) for name in contents],))
        rows = [(to_text(name), contents[name]) for name in contents if contents[name] is not None]
        with connection.cursor() as cursor:
            cursor.executemany(self.fill("INSERT INTO {attachments} VALUES (%s, %b)"), rows)

    def attachments(self, connection: Connection, prefix: str) -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`, ordered by name."""
        statement = "SELECT name, content FROM {attachments} WHERE starts_with(name, %s)"
        rows = self.read(connection, statement, (to_text(prefix),))
        return dict(sorted((from_text(name), content) for name, content in rows))

    def build_hnsw(self, connection: Connection, m: int, ef_construction: int) -> None:
        """Build the graph for approximate searches, or build it again."""
        if check_whole("m", m, 2) > _MOST_M:
            raise ValueError(f"m is at most {_MOST_M}, got {m}")
        if check_whole("ef_construction", ef_construction, 2 * m) > _MOST_EF:
            raise ValueError(f"ef_construction is at most {_MOST_EF}, got {ef_construction}")
        connection.execute(self.fill(_CREATE_HNSW, m=int(m), ef=int(ef_construction)))

    def prefer_hnsw(self, connection: Connection, ef: int, label: str | None) -> None:
        """Use the graph in the rest of a transaction; raise ValueError if that is impossible."""
        if check_whole("ef", ef, 1) > _MOST_EF:
            raise ValueError(f"ef is at most {_MOST_EF}, got {ef}")
        row = connection.execute("SELECT to_regclass(%s)", (self.fill("{hnsw}").as_string(),))
        if row.fetchone() == (None,):
            raise ValueError(
                f"{self._place}: the index has no graph for approximate searches; call build_hnsw, "
                "or search exactly"
            )
        connection.execute(self.fill(_PREFER_HNSW, ef=int(ef)))
        if self._vector.version >= _ITERATIVE_VECTOR:
            connection.execute(_ITERATE)
        elif label is not None:
            raise ValueError(
                f"{self._place}: an approximate search with a label needs pgvector 0.8; update the "
                "extension, or search exactly"
            )


def read_meta(connection: Connection, place: str, index: str, *, lock: bool = False) -> Meta:
    """Read the properties of an index; with `lock`, other writers wait for the transaction."""
    statement = "SELECT to_jsonb(meta) FROM {} AS meta" + (" FOR UPDATE" if lock else "")
    rows = connection.execute(sql.SQL(statement).format(sql.Identifier(index, "meta"))).fetchall()
    found: dict[str, Any] = rows[0][0] if len(rows) == 1 else {"format": _FORMAT}
    if found.get("format") != _FORMAT:
        raise ValueError(f"{place}: the schema {index} is not a bitprint index")
    if found.get("version", _VERSION) != _VERSION:
        raise other_version(place, found["version"], _VERSION)
    columns = ("bits", "model", "id_type", "code_count")
    bits, model, kind, count = (found.get(name) for name in columns)
    if (
        not isinstance(bits, int)
        or not 1 <= bits <= MOST_BITS
        or kind not in (None, "integer", "string")
        or not isinstance(count, int)
    ):
        raise ValueError(
            f"{place}: the index is damaged (invalid table meta); restore it from a copy"
        )
    return Meta(bits, None if model is None else from_text(model), kind, count)


def find_vector(connection: Connection, place: str) -> Vector:
    """Return the pgvector of the database; raise ValueError if it is missing or too old."""
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
            f"{place}: its extension vector is {row[1]}, but Hamming distances need 0.7; "
            "install a newer pgvector on the server and run ALTER EXTENSION vector UPDATE"
        )
    return Vector(row[0], version)


def prepare_database(connection: Connection, place: str) -> Vector:
    """Install pgvector if possible; raise ValueError if the database cannot contain an index."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ValueError(
            f"{place}: the database has the encoding {encoding}, which lacks most characters; use "
            "a database in UTF8"
        )
    with suppress(*_CANNOT_INSTALL):  # an administrator may have installed it
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return find_vector(connection, place)


def _copied_rows(first: int, ids: Ids, codes: Codes, items: Items) -> Iterator[Row]:
    """Yield the rows of the table codes."""
    for start in range(0, len(ids), _ROWS):
        block = slice(start, start + _ROWS)
        keys, strings = _to_values(ids[block]), to_bit_strings(codes[block])
        described = [NOTHING] * len(keys) if items is None else items[block]
        rows = zip(keys, strings, described, strict=True)
        for ordinal, (key, code, (path, labels)) in enumerate(rows, first + start):
            text = None if path is None else to_text(path)
            yield ordinal, key, code, text, [to_text(label) for label in labels]


def _to_values(ids: Ids) -> list[Any]:
    return [to_text(name) for name in ids] if ids.dtype == object else ids.tolist()


def from_values(values: Sequence[Any], kind: str | None) -> Ids:
    """Return values of the column id as ids of a kind."""
    if kind != "string":
        return np.array(values, np.int64)
    ids = np.empty(len(values), object)
    ids[:] = [from_text(value) for value in values]
    return ids


def to_item(row: Row) -> Item:
    """Return a path and labels."""
    path, labels = row
    return Item(None if path is None else from_text(path), tuple(map(from_text, labels)))


def to_bit_strings(codes: Codes) -> list[str]:
    """Return codes as strings of zeros and ones.

    Examples
    --------
    >>> to_bit_strings(Codes.from_signs([[1, -1, 1]]))
    ['101']
    """
    digits = np.unpackbits(codes.packed, axis=1, count=codes.bits) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def from_bit_fields(fields: Sequence[bytes], bits: int) -> Codes:
    """Return codes in the binary form of PostgreSQL: four bytes of length, then the bits."""
    width = 4 + -(-bits // 8)
    packed = np.frombuffer(b"".join(fields), np.uint8).reshape(-1, width)[:, 4:]
    return Codes(packed.copy(), bits)
