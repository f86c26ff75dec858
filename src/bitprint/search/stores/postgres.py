"""PostgresIndex: codes, ids, paths and labels in tables of PostgreSQL with pgvector."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes, CodesLike
from bitprint.search.checks import add_numbered, check_batch, check_codes, check_kind, check_length
from bitprint.search.closing import Closable, on_error
from bitprint.search.details import Item
from bitprint.search.ids import IdList, as_ids
from bitprint.search.matches import Matches, MatchesWithin, split_matches
from bitprint.search.promises import Promise
from bitprint.search.stores import postgres_tables as tables
from bitprint.search.stores.postgres_connection import Connection, Connections, parse_address
from bitprint.search.stores.postgres_tables import Meta, Row, Tables, from_bit_fields, from_values
from bitprint.search.stores.text import from_text
from bitprint.utils.arguments import check_whole


class PostgresIndex(Closable):
    """An index on a PostgreSQL server, with the methods and the results of `bitprint.Index`.

    Use `PostgresIndex.create`, `PostgresIndex.open` or `bitprint.open_index` to get an index. The
    address is `postgresql://user:password@host/database?index=NAME`, with all options of libpq. A
    database can contain several indexes, each in a schema of its name; without a name, the schema
    is `bitprint`. Comments in the database describe its tables and columns.

    Searches are exact and read all codes. `build_hnsw` builds a graph for faster, approximate
    searches with `search(..., approximate=True)`.

    Any number of threads and processes can search while one writes. Each search sees the data
    committed before it started. Other writers wait. If a connection is lost, the call has no
    effect or is complete; the next call connects again.

    Attributes
    ----------
    bits : int
    model : str or None
    path : str
        The address, without the password.
    promises : frozenset of Promise
        What the index guarantees, see `docs/scale.md`.

    Examples
    --------
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> address = "postgresql://ada:secret@db.example/photos?index=cats"
    >>> PostgresIndex.shown(address)
    'postgresql://ada@db.example/photos?index=cats'
    >>> with PostgresIndex.create(address, bits=4) as index:  # doctest: +SKIP
    ...     index.add(["a", "b", "c"], codes)
    ...     index.build_hnsw()
    >>> with PostgresIndex.open(address) as index:  # doctest: +SKIP
    ...     index.search(codes[:1], k=2, approximate=True).ids.tolist()
    [['a', 'b']]
    """

    promises = frozenset(Promise)

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.path = connections.address.shown
        name = connections.address.index
        with connections.use() as connection:
            meta = tables.read_meta(connection, self.path, name)
            vector = tables.find_vector(connection, self.path)
        self.bits = meta.bits
        self.model = meta.model
        self._kind = meta.kind
        self._tables = Tables(self.path, name, meta.bits, vector)

    @classmethod
    def create(
        cls,
        uri: str,
        bits: int,
        *,
        model: str | None = None,
        attachments: Mapping[str, bytes] | None = None,
        timeout: float = 30.0,
    ) -> PostgresIndex:
        """Create an empty index, and install the extension vector in the database if necessary.

        The parameters are those of `bitprint.Index.create`.
        """
        length = check_length(bits)
        connections = Connections(parse_address(uri), timeout)
        place, name = connections.address.shown, connections.address.index
        with on_error(connections.close):
            with connections.use() as connection:
                vector = tables.prepare_database(connection, place)
            with connections.transaction() as connection:
                made = Tables(place, name, length, vector)
                made.create(connection, model, attachments or {})
            return cls(connections)

    @classmethod
    def open(cls, uri: str, *, timeout: float = 30.0) -> PostgresIndex:
        """Open an index.

        Raises
        ------
        FileNotFoundError
            If the database does not contain this index.
        ConnectionError
            If the server cannot be reached, or refuses the connection.
        ValueError
            If the schema is not an index, is damaged, or was made by another version of bitprint,
            or if the database lacks pgvector 0.7 or newer.
        """
        connections = Connections(parse_address(uri), timeout)
        with on_error(connections.close):
            return cls(connections)

    @staticmethod
    def shown(uri: str) -> str:
        """Return an address without its password: the `path` of the index there."""
        return parse_address(uri).shown

    def close(self) -> None:
        """Close all connections; later calls of other methods raise ValueError."""
        self._connections.close()

    def __len__(self) -> int:
        with self._connections.use() as connection:
            return self._meta(connection).count

    def __repr__(self) -> str:
        return f"PostgresIndex({self.path!r}, {self.bits} bits)"

    def add(
        self,
        ids: IdList | CodesLike | None = None,
        codes: CodesLike | None = None,
        paths: Iterable[str | os.PathLike[str] | None] | None = None,
        labels: Iterable[Iterable[str]] | None = None,
    ) -> None:
        """Add codes, in one transaction; see `bitprint.Index.add`."""
        if ids is None or codes is None:
            add_numbered(self, codes if ids is None else ids, paths, labels)
            return
        new, codes, items = check_batch(self.path, self.bits, ids, codes, paths, labels)
        if not len(new):
            return
        with self._writing() as (connection, meta):
            check_kind(self.path, meta.kind, new)
            self._tables.add(connection, meta, new, codes, items)

    def remove(self, ids: IdList) -> None:
        """Remove codes in one transaction: all of them or, if an id is unknown, none."""
        old = as_ids(ids)
        if len(old):
            with self._writing() as (connection, meta):
                self._tables.remove(connection, meta, old)

    def compact(self) -> None:
        """Run VACUUM, so that PostgreSQL reuses the space of removed codes."""
        if self._connections.in_transaction:
            raise ValueError(f"{self.path}: compact cannot be called inside a transaction")
        with self._connections.use() as connection:
            connection.execute(self._tables.fill("VACUUM (ANALYZE) {meta}, {attachments}"))
            if self._kind_now(connection) is not None:
                connection.execute(self._tables.fill("VACUUM (ANALYZE) {codes}"))

    def build_hnsw(self, *, m: int = 16, ef_construction: int = 64) -> None:
        """Build the graph for approximate searches, or build it again; writers wait meanwhile.

        It is much faster if the graph, about 700 bytes per code, fits into `maintenance_work_mem`.
        Append `?options=-cmaintenance_work_mem=2GB` to the address to raise this limit.

        Parameters
        ----------
        m : int, default=16
            Number of links per code.
        ef_construction : int, default=64
            Number of candidates per code while building; at least 2 m.
        """
        with self._writing() as (connection, meta):
            if meta.kind is None:
                raise ValueError(f"{self.path}: the index is empty; add codes first")
            self._tables.build_hnsw(connection, m, ef_construction)

    def search(
        self,
        codes: CodesLike,
        k: int = 10,
        label: str | None = None,
        *,
        approximate: bool = False,
        ef: int = 100,
    ) -> Matches:
        """Find the k nearest codes of each query.

        Parameters
        ----------
        codes : Codes, or array_like of -1 and +1, shape (Q, bits)
            The queries.
        k : int, default=10
            Number of codes to return per query.
        label : str, optional
            Search only codes with this label.
        approximate : bool, default=False
            Use the graph of `build_hnsw`, which can miss some of the nearest codes.
        ef : int, default=100
            Number of candidates of an approximate search, 1 to 1,000; more find more.

        Returns
        -------
        Matches
            Unpacks to (ids, distances), each of shape (Q, k), ordered by distance, then by
            insertion; padded if there are fewer than k codes.
        """
        codes = check_codes(self.path, self.bits, codes)
        k = check_whole("k", k, 1)
        lend = self._connections.transaction if approximate else self._connections.use
        with lend() as connection:
            if approximate:
                self._tables.prefer_hnsw(connection, ef, label)
            statement = tables.NEAREST_APPROXIMATELY if approximate else tables.NEAREST
            kind = self._kind_now(connection)
            rows = self._tables.search(connection, statement, codes, label, k=k) if kind else []
        numbers = np.array([row[0] for row in rows], np.int64) - 1
        ranks = np.arange(len(rows)) - np.searchsorted(numbers, numbers)
        ids = np.full((len(codes), k), None if kind == "string" else -1)
        distances = np.full((len(codes), k), -1, np.int32)
        ids[numbers, ranks] = from_values([row[1] for row in rows], kind)
        distances[numbers, ranks] = [row[2] for row in rows]
        return Matches(ids, distances)

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find all codes within Hamming distance `radius` of each query."""
        codes = check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            rows: list[Row] = []
            if kind is not None:
                rows = self._tables.search(connection, tables.WITHIN, codes, label, radius=radius)
        ends = np.searchsorted([row[0] for row in rows], np.arange(len(codes) + 1), side="right")
        ids = from_values([row[1] for row in rows], kind)
        return split_matches(ends, ids, np.array([row[2] for row in rows], np.int32))

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        return [tables.to_item(row) for row in self._look_up(ids, "path", "labels")]

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        rows, kind = self._read("SELECT id FROM {codes} ORDER BY ordinal")
        return from_values([identifier for (identifier,) in rows], kind)

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        return from_bit_fields([code for (code,) in self._look_up(ids, "code")], self.bits)

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
        rows, _ = self._read("SELECT DISTINCT unnest(labels) FROM {codes}")
        return sorted(from_text(name) for (name,) in rows)

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Store named bytes in one transaction, and delete those that are None."""
        if contents:
            with self._writing() as (connection, _):
                self._tables.attach(connection, contents)

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`, ordered by name."""
        with self._connections.use() as connection:
            return self._tables.attachments(connection, prefix)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Group changes in a `with` statement: commit all of them or, on an error, none.

        The changes are made by this thread; others see the state before or after. `compact` cannot
        be called inside.

        If you catch the error of a call inside the statement, only that call has no effect. A
        transaction inside another one is such a call. If the connection is lost, PostgreSQL undoes
        the whole transaction; all further calls inside it and its end then raise ConnectionError.
        """
        with self._writing():
            yield

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Meta]]:
        """Begin a transaction, and lock the index for writing."""
        with self._connections.transaction() as connection:
            yield connection, self._meta(connection, lock=True)

    def _meta(self, connection: Connection, *, lock: bool = False) -> Meta:
        return tables.read_meta(connection, self.path, self._connections.address.index, lock=lock)

    def _look_up(self, ids: IdList, *columns: str) -> list[Row]:
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            return self._tables.look_up(connection, kind, as_ids(ids), *columns)

    def _read(self, statement: str) -> tuple[list[Row], str | None]:
        """Return the rows of a statement, and the kind of the ids."""
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            return self._tables.read(connection, statement) if kind else [], kind

    def _kind_now(self, connection: Connection) -> str | None:
        """Return the kind of the ids; None if there is no table of codes yet."""
        if self._kind is not None:
            return self._kind
        kind = self._meta(connection).kind
        if not self._connections.in_transaction:  # it may be undone
            self._kind = kind
        return kind
