"""MilvusIndex: codes, ids, paths and labels in a collection of Milvus."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes, CodesLike
from bitprint.search.checks import add_numbered, check_batch, check_codes, check_kind, check_length
from bitprint.search.closing import Closable, on_error
from bitprint.search.details import Item
from bitprint.search.errors import no_such_index
from bitprint.search.ids import IdList, as_ids
from bitprint.search.matches import Matches, MatchesWithin
from bitprint.search.promises import Promise
from bitprint.search.stores.milvus_collections import (
    EVER,
    MOST_HITS,
    AttachmentRows,
    CodeRows,
    Hits,
    Settings,
    Span,
    from_keys,
    from_name,
    to_item,
)
from bitprint.search.stores.milvus_connection import MilvusConnection, parse_address
from bitprint.utils.arguments import check_whole

_FIRST_WITHIN = 256  # results of the first search of `within`
_SPARE = 64  # results beyond k, so that most searches contain all ties
_GROWTH = 8

LITE_PROMISES = frozenset({Promise.EXACT, Promise.DURABLE, Promise.VISIBLE, Promise.REPEATABLE})
SERVER_PROMISES = LITE_PROMISES | {Promise.SHARED}


class MilvusIndex(Closable):
    """An index on Milvus, with the methods and the results of `bitprint.Index`.

    Use `MilvusIndex.create`, `MilvusIndex.open` or `bitprint.open_index` to get an index. The
    address of a server is `milvus://user:password@host:19530/database?index=NAME`; it may have a
    token in place of the user, and `&tls=true` for an encrypted connection. Milvus Lite stores
    indexes in a file: `milvus:///folder/file.db?index=NAME`. Without a name, the index is called
    `bitprint`.

    The collection NAME has one row per code, with the id as primary key. The collection
    NAME_attachments contains the attachments.

    Searches are exact. On a server, `build_ivf` builds an index for faster, approximate searches
    with `search(..., approximate=True)`.

    Milvus has no transactions. `add` writes up to 10,000 codes per request, and readers can see
    the first requests before the last. An interrupted call leaves what Milvus has written; repeat
    the call to complete it. Milvus Lite replaces a code by deleting and inserting it: meanwhile
    readers do not see the code, and it is lost if the engine is killed at this moment. All reads
    have the consistency level Strong, so they see every write that finished before.

    One process at a time can open a file of Milvus Lite. Any number can use a server. If two of
    them write the same id, the last one wins; the insertion order follows their clocks.

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

    def __init__(self, connection: MilvusConnection, settings: Settings) -> None:
        self._connection = connection
        self._codes = CodeRows(connection)
        self._attachments = AttachmentRows(connection)
        self.path = connection.place
        self.bits, self.model = settings
        self.promises = SERVER_PROMISES if connection.address.file is None else LITE_PROMISES

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
        """Create an empty index.

        The parameters are those of `bitprint.Index.create`, except that `timeout` applies to each
        answer of the server.
        """
        length = check_length(bits)
        connection = MilvusConnection(parse_address(uri), timeout)
        with on_error(connection.close):
            codes, attached = CodeRows(connection), AttachmentRows(connection)
            if attached.settings() is not None or codes.exists():
                raise FileExistsError(
                    f"{connection.place}: a collection {connection.address.index} exists already; "
                    "open it, or create the index under another name"
                )
            if attached.exists():  # its creation was interrupted
                attached.drop()
            attached.create(length, model, attachments or {})
            return cls(connection, Settings(length, model))

    @classmethod
    def open(cls, uri: str, *, timeout: float = 30.0) -> MilvusIndex:
        """Open an index.

        Raises
        ------
        FileNotFoundError
            If the file or the index does not exist.
        ConnectionError
            If the server does not answer.
        OSError
            If another process is using the file of Milvus Lite.
        ValueError
            If the collection is not an index, or was made by another version of bitprint.
        """
        address = parse_address(uri)
        if address.file is not None and not address.file.exists():
            raise no_such_index(address.shown)
        connection = MilvusConnection(address, timeout)
        with on_error(connection.close):
            settings = AttachmentRows(connection).settings()
            if settings is None:
                CodeRows(
                    connection
                ).exists()  # raises ValueError for the layout of earlier versions
                raise no_such_index(address.shown)
            return cls(connection, settings)

    @staticmethod
    def shown(uri: str) -> str:
        """Return an address without its password: the `path` of the index there."""
        return parse_address(uri).shown

    def close(self) -> None:
        """Close the connection; later calls of other methods raise ValueError."""
        self._connection.close()

    def __len__(self) -> int:
        return self._codes.count() if self._codes.kind else 0

    def __repr__(self) -> str:
        return f"MilvusIndex({self.path!r}, {self.bits} bits)"

    def add(
        self,
        ids: IdList | CodesLike | None = None,
        codes: CodesLike | None = None,
        paths: Iterable[str | os.PathLike[str] | None] | None = None,
        labels: Iterable[Iterable[str]] | None = None,
    ) -> None:
        """Add codes; see `bitprint.Index.add`.

        If the call fails or is interrupted, some of the codes may have been added. Repeat it.
        """
        if ids is None or codes is None:
            add_numbered(self, codes if ids is None else ids, paths, labels)
            return
        new, codes, items = check_batch(self.path, self.bits, ids, codes, paths, labels)
        if not len(new):
            return
        check_kind(self.path, self._codes.kind, new)
        self._codes.write(new, codes, items)

    def remove(self, ids: IdList) -> None:
        """Remove codes, or none if an id is unknown.

        If the call fails or is interrupted otherwise, some may have been removed.
        """
        old = as_ids(ids)
        if len(old):
            self._codes.find(old, ["id"])
            self._codes.remove(old)

    def compact(self) -> None:
        """Free the space of removed codes; Milvus Lite does this by itself."""
        self._connection.check_open()
        if self._connection.address.file is None:
            self._attachments.call("compact")
            if self._codes.kind:
                self._codes.call("compact")

    def build_ivf(self, lists: int = 1024) -> None:
        """Build the index for approximate searches (BIN_IVF_FLAT), or build it again.

        It groups the codes around centers. Searches fail until it is finished, so add the codes
        first.

        Parameters
        ----------
        lists : int, default=1024
            Number of groups, 1 to 65,536; a few times the square root of the number of codes.

        Examples
        --------
        >>> queries = Codes.from_signs([[1] * 64])
        >>> with MilvusIndex.open("milvus://db.example:19530") as index:  # doctest: +SKIP
        ...     index.build_ivf(lists=4096)
        ...     index.search(queries, k=10, approximate=True, nprobe=32).distances.shape
        (1, 10)
        """
        self._connection.check_open()
        if self._connection.address.file is not None:
            raise ValueError(
                f"{self.path}: Milvus Lite has no index for approximate searches; use a Milvus "
                "server, or search exactly"
            )
        if self._codes.kind is None:
            raise ValueError(f"{self.path}: the index is empty; add codes first")
        self._codes.rebuild_vector_index("BIN_IVF_FLAT", nlist=_check_lists("lists", lists))

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
            The queries.
        k : int, default=10
            Number of codes to return per query.
        label : str, optional
            Search only codes with this label.
        approximate : bool, default=False
            Use the index of `build_ivf`, which can miss some of the nearest codes; k is then at
            most 16,384.
        nprobe : int, default=16
            Number of groups that an approximate search reads; more groups find more.

        Returns
        -------
        Matches
            Unpacks to (ids, distances), each of shape (Q, k), ordered by distance, then by
            insertion; padded if there are fewer than k codes.
        """
        codes = check_codes(self.path, self.bits, codes)
        k = check_whole("k", k, 1)
        lists = self._check_approximate(k, nprobe) if approximate else None

        def reach(hits: Hits) -> float:
            return hits[k - 1][0] if len(hits) >= k else math.inf

        queries = [code.tobytes() for code in codes.packed]
        ask = partial(self._codes.search, label=label, lists=lists)
        limit = 2 * k + _SPARE
        found = ask(queries, k, EVER) if approximate else _find(ask, queries, reach, limit)
        return self._to_matches([hits[:k] for hits in found], k)

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find all codes within Hamming distance `radius` of each query."""
        codes = check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        queries = [code.tobytes() for code in codes.packed]
        ask = partial(self._codes.search, label=label)
        found = _find(ask, queries, lambda hits: radius, _FIRST_WITHIN)
        near = [[hit for hit in hits if hit[0] <= radius] for hits in found]
        return MatchesWithin(
            [from_keys([key for _, _, key in hits], self._codes.kind) for hits in near],
            [np.array([distance for distance, _, _ in hits], np.int32) for hits in near],
        )

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        return [to_item(row) for row in self._codes.find(as_ids(ids), ["path", "labels"])]

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        if self._codes.kind is None:
            return from_keys([], None)
        rows = self._codes.read("", ["added"])
        ordered = sorted((row["added"], row["id"]) for row in rows)
        return from_keys([key for _, key in ordered], self._codes.kind)

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        packed = b"".join(row["code"][0] for row in self._codes.find(as_ids(ids), ["code"]))
        return Codes(np.frombuffer(packed, np.uint8).reshape(-1, -(-self.bits // 8)), self.bits)

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
        rows = self._codes.read("", ["labels"]) if self._codes.kind else ()
        return sorted(map(from_name, {name for row in rows for name in row["labels"]["names"]}))

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Store named bytes in the index, and delete those that are None."""
        if contents:
            self._attachments.write(contents)

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`, ordered by name."""
        return self._attachments.contents(prefix)

    def transaction(self) -> AbstractContextManager[None]:
        """Raise ValueError: Milvus has no transactions."""
        self._connection.check_open()
        raise ValueError(
            f"{self.path}: Milvus has no transactions; make the calls one by one, and repeat a "
            "call that was interrupted"
        )

    def _to_matches(self, found: list[Hits], k: int) -> Matches:
        """Return the hits of each query, padded to k."""
        ids = np.full((len(found), k), None if self._codes.kind == "string" else -1)
        distances = np.full((len(found), k), -1, np.int32)
        for row, hits in enumerate(found):
            ids[row, : len(hits)] = from_keys([key for _, _, key in hits], self._codes.kind)
            distances[row, : len(hits)] = [distance for distance, _, _ in hits]
        return Matches(ids, distances)

    def _check_approximate(self, k: int, nprobe: int) -> int:
        self._connection.check_open()
        if k > MOST_HITS:
            raise ValueError(f"an approximate search finds at most {MOST_HITS} codes, got k={k}")
        if self._codes.kind is None or self._codes.vector_index() != "BIN_IVF_FLAT":
            raise ValueError(
                f"{self.path}: there is no index for approximate searches; call build_ivf, or "
                "search exactly"
            )
        return _check_lists("nprobe", nprobe)


def _find(
    ask: Callable[[list[bytes], int, Span], list[Hits]],
    queries: list[bytes],
    reach: Callable[[Hits], float],
    limit: int,
    span: Span = EVER,
) -> list[Hits]:
    """Return all codes of a span of time up to the distance that `reach` returns, and maybe others.

    Milvus returns a limited number of hits, and any of those at the last distance. If these do not
    suffice, ask for more; beyond the limit of Milvus, search each half of the time separately.
    """
    limit = min(limit, MOST_HITS)
    found = ask(queries, limit, span)
    short = [
        number
        for number, hits in enumerate(found)
        if len(hits) == limit and reach(hits) >= hits[-1][0]
    ]
    first, end = span
    if not short or end - first <= 1:
        return found
    again = [queries[number] for number in short]
    if limit < MOST_HITS:
        longer = _find(ask, again, reach, _GROWTH * limit, span)
    else:
        middle = (first + end) // 2
        low = _find(ask, again, reach, limit, (first, middle))
        high = _find(ask, again, reach, limit, (middle, end))
        longer = [sorted(pair[0] + pair[1]) for pair in zip(low, high, strict=True)]
    for number, hits in zip(short, longer, strict=True):
        found[number] = hits
    return found


def _check_lists(name: str, value: int) -> int:
    if check_whole(name, value, 1) > 65_536:
        raise ValueError(f"{name} is at most 65,536, got {value}")
    return int(value)
