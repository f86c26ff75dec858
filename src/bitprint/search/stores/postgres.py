"""PostgresIndex: codes, their ids, paths and labels in tables of a PostgreSQL with pgvector."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from bitprint.arguments import check_whole
from bitprint.codes import Codes, CodesLike
from bitprint.search.checks import add_numbered, check_batch, check_codes, check_kind, check_length
from bitprint.search.closing import Closable, on_error
from bitprint.search.details import Item
from bitprint.search.ids import IdList, as_ids, kind_of
from bitprint.search.matches import Matches, MatchesWithin
from bitprint.search.stores import postgres_hnsw as hnsw
from bitprint.search.stores import postgres_tables as tables
from bitprint.search.stores.postgres_address import parse_address
from bitprint.search.stores.postgres_codes import NEAREST, WITHIN, CodesTable
from bitprint.search.stores.postgres_connection import Connection, Connections
from bitprint.search.stores.postgres_rows import (
    from_bit_fields,
    from_values,
    to_items,
    to_matches,
    to_matches_within,
)
from bitprint.search.stores.postgres_tables import Meta, Tables
from bitprint.search.stores.text import from_text


class PostgresIndex(Closable):
    """An index on a PostgreSQL server, with the methods and the answers of `bitprint.Index`.

    Made by `PostgresIndex.create`, `PostgresIndex.open` or `bitprint.open_index`. The address is
    `postgresql://user:password@host/database?index=NAME`, with all that libpq understands; a
    database holds any number of indexes, each in a schema of its name, by default `bitprint`.

    Searches are exact: PostgreSQL goes through all codes. `build_hnsw` makes an index of theirs
    that answers `search(..., approximate=True)` in a fraction of the time.

    Any number of processes and threads may search while one adds: each search sees what was
    committed when it began. Writers wait for their turn. A connection that is lost leaves nothing
    half done, and the next call connects again.

    Attributes
    ----------
    bits : int
    model : str or None
    path : str
        The address, without the password.

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

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self.path = connections.address.shown
        name = connections.address.index
        with connections.use() as connection:
            meta = tables.read_meta(connection, self.path, name)
            vector, self._vector_version = tables.find_vector(connection, self.path)
        self.bits = meta.bits
        self.model = meta.model
        self._kind = meta.kind
        self._tables = Tables(name, vector, meta.bits)
        self._codes = CodesTable(self.path, self._tables, meta.bits)

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
        """Make an empty index, and the extension vector in the database if it lacks it.

        Parameters are those of `bitprint.Index.create`.
        """
        length = check_length(bits)
        connections = Connections(parse_address(uri), timeout)
        with on_error(connections.close):
            tables.create(connections, length, model, attachments or {})
            return cls(connections)

    @classmethod
    def open(cls, uri: str, *, timeout: float = 30.0) -> PostgresIndex:
        """Open an index.

        Raises
        ------
        FileNotFoundError
            If the database holds no such index.
        ConnectionError
            If the server cannot be reached, or refuses the connection.
        ValueError
            If it is not an index, is damaged, or was made by a newer version of bitprint, or if
            the database lacks pgvector 0.7 or newer.
        """
        connections = Connections(parse_address(uri), timeout)
        with on_error(connections.close):
            return cls(connections)

    @staticmethod
    def shown(uri: str) -> str:
        """Return an address without its password: the `path` of the index there."""
        return parse_address(uri).shown

    def close(self) -> None:
        """Close all connections; the index is of no use afterwards."""
        self._connections.close()

    def __len__(self) -> int:
        with self._connections.use() as connection:
            return self._meta(connection).held

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
            kind = kind_of(new)
            if meta.kind is None:
                self._codes.create(connection, kind)
            replaced = self._codes.delete(connection, new) if meta.held else 0
            self._codes.insert(connection, new, codes, items)
            held = meta.held + len(new) - replaced
            tables.update_meta(connection, self._tables, kind, held)

    def remove(self, ids: IdList) -> None:
        """Remove codes: all of them or, if an id is unknown, none."""
        old = as_ids(ids)
        if not len(old):
            return
        with self._writing() as (connection, meta):
            self._codes.look_up(connection, meta.kind, old)
            held = meta.held - self._codes.delete(connection, old)
            tables.update_meta(connection, self._tables, meta.kind, held)

    def compact(self) -> None:
        """Let PostgreSQL use the space of removed codes again, and count what it holds (VACUUM)."""
        if self._connections.in_transaction:
            raise ValueError(f"{self.path}: compact is not for use inside of a transaction")
        with self._connections.use() as connection:
            connection.execute(self._tables.fill("VACUUM (ANALYZE) {meta}, {attachments}"))
            if self._kind_now(connection) is not None:
                connection.execute(self._tables.fill("VACUUM (ANALYZE) {codes}"))

    def build_hnsw(self, *, m: int = 16, ef_construction: int = 64) -> None:
        """Make the index for approximate searches, or make it again; writers wait meanwhile.

        It is much faster if the graph, some 700 bytes for each code, fits into
        `maintenance_work_mem`, which an address that ends in
        `?options=-cmaintenance_work_mem=2GB` raises.

        Parameters
        ----------
        m : int, default=16
            How many neighbours each code is linked to.
        ef_construction : int, default=64
            How many candidates are looked at to find them; at least 2 m.
        """
        with self._writing() as (connection, meta):
            if meta.kind is None:
                raise ValueError(f"{self.path}: the index is empty; add codes first")
            hnsw.build(connection, self._tables, m, ef_construction)

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
            Q queries, which go to the server at once.
        k : int, default=10
            How many to find.
        label : str, optional
            Consider only codes that carry this label.
        approximate : bool, default=False
            Ask the index of `build_hnsw`, which may miss some of the nearest.
        ef : int, default=100
            How many candidates an approximate search looks at, 1 to 1,000: more find more.

        Returns
        -------
        Matches
            Unpacks to (ids, distances), each of shape (Q, k), ordered by distance, ties by
            insertion; padded where fewer codes were found.
        """
        codes = check_codes(self.path, self.bits, codes)
        k = check_whole("k", k, 1)
        lend = self._connections.transaction if approximate else self._connections.use
        with lend() as connection:
            if approximate:
                version = self._vector_version
                hnsw.prefer(connection, self._tables, self.path, version, ef, label)
            statement = hnsw.NEAREST if approximate else NEAREST
            kind = self._kind_now(connection)
            rows = self._codes.search(connection, statement, codes, label, k=k) if kind else []
        return to_matches(rows, kind, len(codes), k)

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find every code at most `radius` away from each query; see `bitprint.Index.within`."""
        codes = check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            rows = (
                self._codes.search(connection, WITHIN, codes, label, radius=radius) if kind else []
            )
        return to_matches_within(rows, kind, len(codes))

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            rows = self._codes.look_up(connection, kind, as_ids(ids), "path", "labels")
        return to_items(rows)

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            statement = "SELECT id FROM {codes} ORDER BY ordinal"
            rows = self._codes.read(connection, statement) if kind else []
        return from_values([row[0] for row in rows], kind)

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            rows = self._codes.look_up(connection, kind, as_ids(ids), "code")
        return Codes(from_bit_fields([row[1] for row in rows], self.bits), self.bits)

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
        with self._connections.use() as connection:
            kind = self._kind_now(connection)
            statement = "SELECT DISTINCT unnest(labels) FROM {codes}"
            rows = self._codes.read(connection, statement) if kind else []
        return sorted(from_text(name) for (name,) in rows)

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Keep named bytes in the index, or delete those that are None."""
        if contents:
            with self._writing() as (connection, _):
                tables.attach(connection, self._tables, self.path, contents)

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names begin with `prefix`, ordered by name."""
        with self._connections.use() as connection:
            return tables.read_attachments(connection, self._tables, prefix)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes inside of a `with` one: all of them or, if anything is raised, none.

        They are made by this thread; others see either state. `compact` is not for use inside.
        """
        with self._writing():
            yield

    @contextmanager
    def _writing(self) -> Iterator[tuple[Connection, Meta]]:
        """Hold the index for writing until everything inside is committed."""
        with self._connections.transaction() as connection:
            yield connection, self._meta(connection, lock=True)

    def _meta(self, connection: Connection, *, lock: bool = False) -> Meta:
        return tables.read_meta(connection, self.path, self._connections.address.index, lock=lock)

    def _kind_now(self, connection: Connection) -> str | None:
        """The kind of ids; without it there is no table of codes yet."""
        if self._kind is not None:
            return self._kind
        kind = self._meta(connection).kind
        if not self._connections.in_transaction:  # which may be undone
            self._kind = kind
        return kind
