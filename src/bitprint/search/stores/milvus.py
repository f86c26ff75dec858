"""MilvusIndex: codes, their ids, paths and labels in a collection of Milvus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.arguments import check_whole
from bitprint.codes import Codes, CodesLike
from bitprint.search.checks import add_numbered, check_batch, check_codes, check_kind, check_length
from bitprint.search.closing import Closable
from bitprint.search.details import Item
from bitprint.search.ids import IdList, Ids, as_ids
from bitprint.search.matches import Matches, MatchesWithin
from bitprint.search.stores import milvus_search
from bitprint.search.stores.milvus_address import parse_address
from bitprint.search.stores.milvus_codes import CodeRows, Row, in_order
from bitprint.search.stores.milvus_pieces import Pieces
from bitprint.search.stores.milvus_rows import MOST_HITS
from bitprint.search.stores.milvus_session import Session
from bitprint.search.stores.milvus_values import from_details, from_names
from bitprint.search.stores.milvus_views import Header, View


class MilvusIndex(Closable):
    """An index on Milvus, with the methods and the answers of `bitprint.Index`.

    Made by `MilvusIndex.create`, `MilvusIndex.open` or `bitprint.open_index`. The address is
    `milvus://user:password@host:19530/database?index=NAME` for a server (with a token, if need be,
    in place of the user and `&tls=true` for an encrypted connection), or
    `milvus:///folder/file.db?index=NAME` for Milvus Lite, which keeps everything in that file and
    lets one process at a time use it. Each index is a collection of its name, by default
    `bitprint`.

    Searches are exact. On a server, `build_ivf` makes an index that also answers
    `search(..., approximate=True)` in a part of the time.

    Any number of processes and threads may search while one adds. What a call changes counts at
    once or not at all, also when the process or the connection dies. This process sees it in the
    next call; others see it when Milvus shows it to them, within a second. Milvus has no locks:
    the threads of one index wait for their turn, but let only one process write. If two try,
    one of them is told so.

    Attributes
    ----------
    bits : int
    model : str or None
    path : str
        The address, without the password.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with MilvusIndex.create(f"milvus://{folder}/photos.db", bits=4) as index:
    ...         index.add(["a", "b", "c"], codes, labels=[["cat"], ["cat", "sofa"], []])
    ...     with MilvusIndex.open(f"milvus://{folder}/photos.db") as index:
    ...         index.search(codes[:1], k=2).ids.tolist(), index.labels()
    ([['a', 'b']], ['cat', 'sofa'])
    >>> MilvusIndex.shown("milvus://ada:secret@db.example:19530")
    'milvus://db.example:19530'
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows = session.rows
        self._codes = CodeRows(session.rows)
        self._pieces = Pieces(session.rows)
        self.path = session.address.shown
        self.bits = session.header.bits
        self.model = session.header.model

    @classmethod
    def create(
        cls,
        uri: str,
        bits: int,
        *,
        model: str | None = None,
        attachments: Mapping[str, bytes] | None = None,
        timeout: float = 30.0,
    ) -> MilvusIndex:
        """Make an empty index.

        Parameters are those of `bitprint.Index.create`; the timeout is that of every answer of the
        server.
        """
        header = Header(check_length(bits), model)
        return cls(Session.create(parse_address(uri), timeout, header, attachments or {}))

    @classmethod
    def open(cls, uri: str, *, timeout: float = 30.0) -> MilvusIndex:
        """Open an index.

        Raises
        ------
        FileNotFoundError
            If there is no such file or index.
        ConnectionError
            If the server does not answer.
        ValueError
            If the collection is not an index, or was made by a newer version of bitprint.
        """
        return cls(Session.open(parse_address(uri), timeout))

    @staticmethod
    def shown(uri: str) -> str:
        """Return an address without its password: the `path` of the index there."""
        return parse_address(uri).shown

    def close(self) -> None:
        """Close the connection; the index is of no use afterwards."""
        self._session.close()

    def __len__(self) -> int:
        return self._session.read(lambda view: view.header.live)

    def __repr__(self) -> str:
        return f"MilvusIndex({self.path!r}, {self.bits} bits)"

    def add(
        self,
        ids: IdList | CodesLike | None = None,
        codes: CodesLike | None = None,
        paths: Iterable[str | os.PathLike[str] | None] | None = None,
        labels: Iterable[Iterable[str]] | None = None,
    ) -> None:
        """Add codes: all of them or, if anything fails, none; see `bitprint.Index.add`."""
        if ids is None or codes is None:
            add_numbered(self, codes if ids is None else ids, paths, labels)
            return
        new, codes, items = check_batch(self.path, self.bits, ids, codes, paths, labels)
        if not len(new):
            return
        with self._session.writing() as draft:
            check_kind(self.path, draft.header.kind, new)
            self._session.write(self._codes.add(draft, new, codes, items))

    def remove(self, ids: IdList) -> None:
        """Remove codes: all of them or, if an id is unknown, none."""
        old = as_ids(ids)
        if not len(old):
            return
        with self._session.writing() as draft:
            self._session.write(self._codes.remove(draft, old))

    def compact(self) -> None:
        """Let the server give back the space of removed codes; Milvus Lite does so by itself."""
        self._session.check_open()
        if self._session.draft is not None:
            raise ValueError(f"{self.path}: compact is not for use inside of a transaction")
        if self._session.address.file is None:
            self._rows.compact()

    def build_ivf(self, lists: int = 1024) -> None:
        """Make the index for approximate searches (BIN_IVF_FLAT), or make it again.

        The codes are grouped around centres. Until it is done, searches fail; it is meant for a
        large index that is filled already.

        Parameters
        ----------
        lists : int, default=1024
            How many groups, 1 to 65,536; a few times the square root of the number of codes.

        Examples
        --------
        >>> queries = Codes.from_signs([[1] * 64])
        >>> with MilvusIndex.open("milvus://db.example:19530") as index:  # doctest: +SKIP
        ...     index.build_ivf(lists=4096)
        ...     index.search(queries, k=10, approximate=True, nprobe=32).distances.shape
        (1, 10)
        """
        self._session.check_open()
        if self._session.address.file is not None:
            raise ValueError(
                f"{self.path}: Milvus Lite has no index for approximate searches; use a Milvus "
                "server, or search exactly"
            )
        self._rows.build(_check_lists("lists", lists))

    def search(
        self,
        codes: CodesLike,
        k: int = 10,
        label: str | None = None,
        *,
        approximate: bool = False,
        nprobe: int = 16,
    ) -> Matches:
        """Find the k nearest codes of each query.

        Parameters
        ----------
        codes : Codes, or array_like of -1 and +1, shape (Q, bits)
            Q queries.
        k : int, default=10
            How many to find.
        label : str, optional
            Consider only codes that carry this label.
        approximate : bool, default=False
            Ask the index of `build_ivf`, which may miss some of the nearest; k is then at most
            16,384.
        nprobe : int, default=16
            How many of its lists an approximate search looks at: more find more.

        Returns
        -------
        Matches
            Unpacks to (ids, distances), each of shape (Q, k), ordered by distance, ties by
            insertion; padded where fewer codes were found.
        """
        codes = check_codes(self.path, self.bits, codes)
        k = check_whole("k", k, 1)
        queries = [code.tobytes() for code in codes.packed]
        lists = self._check_approximate(k, nprobe) if approximate else None

        def ask(view: View) -> Matches:
            if lists is not None:
                found = milvus_search.approximately(self._rows, view, queries, k, label, lists)
            else:
                found = milvus_search.nearest(self._rows, view, queries, k, label)
            return milvus_search.to_matches(found, view.header.kind, k)

        return self._session.read(ask)

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find every code at most `radius` away from each query; see `bitprint.Index.within`."""
        codes = check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        queries = [code.tobytes() for code in codes.packed]

        def ask(view: View) -> MatchesWithin:
            found = milvus_search.within(self._rows, view, queries, radius, label)
            return milvus_search.to_matches_within(found, view.header.kind)

        return self._session.read(ask)

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        return [from_details(row["details"]) for row in self._look_up(as_ids(ids), "details")]

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        return self._session.read(
            lambda view: from_names(list(self._codes.read(view, "name")), view.header.kind)
        )

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        packed = b"".join(row["code"][0] for row in self._look_up(as_ids(ids), "code"))
        return Codes(np.frombuffer(packed, np.uint8).reshape(-1, -(-self.bits // 8)), self.bits)

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""

        def ask(view: View) -> set[str]:
            items = map(from_details, self._codes.read(view, "details"))
            return {label for item in items for label in item.labels}

        return sorted(self._session.read(ask))

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Keep named bytes in the index, or delete those that are None."""
        if not contents:
            return
        with self._session.writing() as draft:
            self._session.write(self._pieces.attach(draft, contents))

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names begin with `prefix`, ordered by name."""
        return self._session.read(lambda view: self._pieces.attachments(view, prefix))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes inside of a `with` one: all of them or, if anything is raised, none.

        They are made by this thread; others see either state. `compact` is not for use inside.
        """
        with self._session.writing():
            yield

    def _look_up(self, ids: Ids, column: str) -> list[Row]:
        found = self._session.read(lambda view: self._codes.find(view, ids, column))
        return in_order(self.path, ids, found)

    def _check_approximate(self, k: int, nprobe: int) -> int:
        self._session.check_open()
        if k > MOST_HITS:
            raise ValueError(f"an approximate search finds at most {MOST_HITS}, got {k}")
        if self._rows.index_type() != "BIN_IVF_FLAT":
            raise ValueError(
                f"{self.path}: there is no index for approximate searches; call build_ivf, or "
                "search exactly"
            )
        return _check_lists("nprobe", nprobe)


def _check_lists(name: str, value: int) -> int:
    if check_whole(name, value, 1) > 65_536:
        raise ValueError(f"{name} is at most 65,536, got {value}")
    return int(value)
