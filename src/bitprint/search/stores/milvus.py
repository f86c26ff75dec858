"""MilvusIndex: codes, their ids, paths and labels in a collection of Milvus."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.search.checks import (
    check_batch,
    check_codes,
    check_kind,
    check_length,
    check_whole,
    no_such_id,
)
from bitprint.search.details import NOTHING, Item
from bitprint.search.ids import IdList, Ids, as_ids, kind_of
from bitprint.search.index import Matches, MatchesWithin
from bitprint.search.stores import milvus_search
from bitprint.search.stores.milvus_connection import Address, connect, disconnect, parse_address
from bitprint.search.stores.milvus_rows import MOST_HITS, Rows
from bitprint.search.stores.milvus_session import Session
from bitprint.search.stores.milvus_states import Header, States, View
from bitprint.search.stores.milvus_values import (
    among,
    from_details,
    from_name,
    from_names,
    to_details,
    to_name,
    to_names,
)

_NAMES_AT_ONCE = 4_096


class MilvusIndex:
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
    ...         index.search(codes[:1], k=2).ids.tolist(), index.labels()
    ([['a', 'b']], ['cat', 'sofa'])
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows = session.rows
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
        contents = {to_name(name): content for name, content in (attachments or {}).items()}
        address = parse_address(uri)
        with _connected(address, timeout) as rows:
            if rows.exists():
                if _is_finished(rows):
                    raise FileExistsError(
                        f"{address.shown}: a collection {address.index} exists already; open it, "
                        "or create the index under another name"
                    )
                rows.drop()
            rows.make(header.bits)
            States(rows).first(header, contents)
            return cls(Session(rows, address))

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
        address = parse_address(uri)
        if address.file is not None and not address.file.exists():
            raise FileNotFoundError(f"{address.shown}: no such index; create it first")
        with _connected(address, timeout) as rows:
            if not rows.exists():
                raise FileNotFoundError(f"{address.shown}: no such index; create it first")
            rows.load()
            return cls(Session(rows, address))

    def close(self) -> None:
        """Close the connection; the index is of no use afterwards."""
        self._session.close()

    def __enter__(self) -> MilvusIndex:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __len__(self) -> int:
        return self._session.read(lambda view: view.header.live)

    def __repr__(self) -> str:
        return f"MilvusIndex({self.path!r}, {self.bits} bits)"

    def add(
        self,
        ids: IdList,
        codes: Codes,
        paths: Iterable[str | os.PathLike[str] | None] | None = None,
        labels: Iterable[Iterable[str]] | None = None,
    ) -> None:
        """Add codes: all of them or, if anything fails, none; see `bitprint.Index.add`."""
        new, items = check_batch(self.path, self.bits, ids, codes, paths, labels)
        if not len(new):
            return
        with self._session.writing() as draft:
            header = draft.header
            check_kind(self.path, header.kind, new)
            names = to_names(new)
            replaced = self._look_up(draft, names, [])
            described = items if items is not None else [NOTHING] * len(new)
            self._rows.insert(
                (header.total + number, name, code.tobytes(), to_details(item))
                for number, (name, code, item) in enumerate(
                    zip(names, codes.packed, described, strict=True)
                )
            )
            header = replace(
                header,
                kind=kind_of(new),
                total=header.total + len(new),
                live=header.live + len(new) - len(replaced),
            )
            self._session.write(_without(draft, header, replaced.values()))

    def remove(self, ids: IdList) -> None:
        """Remove codes: all of them or, if an id is unknown, none."""
        old = as_ids(ids)
        if not len(old):
            return
        with self._session.writing() as draft:
            found = self._look_up(draft, to_names(old), [])
            self._in_order(draft, old, found)
            header = replace(draft.header, live=draft.header.live - len(found))
            self._session.write(_without(draft, header, found.values()))

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
        codes: Codes,
        k: int = 10,
        label: str | None = None,
        *,
        approximate: bool = False,
        nprobe: int = 16,
    ) -> Matches:
        """Find the k nearest codes of each query.

        Parameters
        ----------
        codes : Codes
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
        check_codes(self.path, self.bits, codes)
        k = check_whole("k", k, 1)
        queries = [code.tobytes() for code in codes.packed]
        lists = self._check_approximate(k, nprobe) if approximate else None

        def ask(view: View) -> tuple[View, list[milvus_search.Hits]]:
            if lists is not None:
                found = milvus_search.approximately(self._rows, view, queries, k, label, lists)
            else:
                found = milvus_search.nearest(self._rows, view, queries, k, label)
            return view, found

        view, found = self._session.read(ask)
        ids = np.full((len(codes), k), None if view.header.kind == "string" else -1)
        distances = np.full((len(codes), k), -1, np.int32)
        for row, hits in enumerate(found):
            ids[row, : len(hits)] = from_names([hit[2] for hit in hits], view.header.kind)
            distances[row, : len(hits)] = [hit[0] for hit in hits]
        return Matches(ids, distances)

    def within(self, codes: Codes, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find every code at most `radius` away from each query; see `bitprint.Index.within`."""
        check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        queries = [code.tobytes() for code in codes.packed]
        view, found = self._session.read(
            lambda view: (view, milvus_search.within(self._rows, view, queries, radius, label))
        )
        return MatchesWithin(
            [from_names([hit[2] for hit in hits], view.header.kind) for hits in found],
            [np.array([hit[0] for hit in hits], np.int32) for hits in found],
        )

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        rows = self._rows_of(as_ids(ids), "details")
        return [from_details(row["details"]) for row in rows]

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        return self._session.read(
            lambda view: from_names(
                [row["name"] for row in self._session.states.codes(view, ["name"])],
                view.header.kind,
            )
        )

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        packed = b"".join(row["code"][0] for row in self._rows_of(as_ids(ids), "code"))
        return Codes(np.frombuffer(packed, np.uint8).reshape(-1, -(-self.bits // 8)), self.bits)

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
        return self._session.read(
            lambda view: sorted(
                {
                    label
                    for row in self._session.states.codes(view, ["details"])
                    for label in from_details(row["details"]).labels
                }
            )
        )

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Keep named bytes in the index, or delete those that are None."""
        if not contents:
            return
        with self._session.writing() as draft:
            names = [to_name(name) for name in contents]
            old = [
                piece.ordinal
                for start in range(0, len(names), _NAMES_AT_ONCE)
                for piece in self._session.states.attachments(
                    draft, among(names[start : start + _NAMES_AT_ONCE]), contents=False
                )
            ]
            new = {to_name(name): c for name, c in contents.items() if c is not None}
            pieces = draft.header.pieces + self._session.states.write_pieces(draft, new)
            self._session.write(_without(draft, replace(draft.header, pieces=pieces), old))

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names begin with `prefix`, ordered by name."""
        # An underscore stands for any character there.
        condition = f'name like "{to_name(prefix)}%"' if prefix else ""

        def read(view: View) -> dict[str, bytes]:
            found: dict[str, list[bytes]] = {}
            for piece in self._session.states.attachments(view, condition):
                found.setdefault(from_name(piece.name), []).append(piece.content)
            names = sorted(name for name in found if name.startswith(prefix))
            return {name: b"".join(found[name]) for name in names}

        return self._session.read(read)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the changes inside of a `with` one: all of them or, if anything is raised, none.

        They are made by this thread; others see either state. `compact` is not for use inside.
        """
        with self._session.writing():
            yield

    def _look_up(self, view: View, names: Sequence[str], columns: list[str]) -> dict[str, Any]:
        """Return rows by their names, as far as there are any; without columns, their ordinals."""
        found: dict[str, Any] = {}
        for start in range(0, len(names) if view.header.live else 0, _NAMES_AT_ONCE):
            chosen = among(names[start : start + _NAMES_AT_ONCE])
            condition = f"{chosen} and {view.codes(0, view.header.total)}"
            for row in self._rows.query(condition, ["name", *columns]):
                found[row["name"]] = row if columns else row["ordinal"]
        return found

    def _rows_of(self, ids: Ids, column: str) -> list[Any]:
        """Return the row of each id; raises ValueError if one is unknown."""
        if not len(ids):
            return []
        names = to_names(ids)
        view, found = self._session.read(lambda view: (view, self._look_up(view, names, [column])))
        return self._in_order(view, ids, found)

    def _in_order(self, view: View, ids: Ids, found: dict[str, Any]) -> list[Any]:
        same_kind = view.header.kind == kind_of(ids)
        for identifier, name in zip(ids.tolist(), to_names(ids), strict=True):
            if name not in found or not same_kind:
                raise no_such_id(self.path, identifier)
        return [found[name] for name in to_names(ids)]

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


@contextmanager
def _connected(address: Address, timeout: float) -> Iterator[Rows]:
    """Connect, and close the connection if anything is raised."""
    client = connect(address, timeout)
    try:
        yield Rows(client, address, timeout)
    except BaseException:
        disconnect(client, address)
        raise


def _is_finished(rows: Rows) -> bool:
    """Whether a collection has become an index; otherwise who made it was cut short."""
    rows.load()
    try:
        States(rows).view()
    except FileNotFoundError:
        return False
    return True


def _check_lists(name: str, value: int) -> int:
    if check_whole(name, value, 1) > 65_536:
        raise ValueError(f"{name} is at most 65,536, got {value}")
    return int(value)


def _without(draft: View, header: Header, ordinals: Iterable[int]) -> View:
    """The draft with a new header, in which some rows do not count any more."""
    return View(header, np.append(draft.gone, np.fromiter(ordinals, np.int64)))
