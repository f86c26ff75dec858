"""Local index: codes, ids, paths and labels in one durable file, with exact search."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.codes import Codes, CodesLike
from bitprint.search import attachments as attached
from bitprint.search import numpy_scan
from bitprint.search import records as record_rows
from bitprint.search.checks import add_numbered, check_batch, check_codes, check_length
from bitprint.search.closing import Closable
from bitprint.search.details import Item
from bitprint.search.file import IndexFile, IndexHeader
from bitprint.search.ids import IdList, as_ids
from bitprint.search.matches import Matches, MatchesWithin, ScoredMatches, split_matches
from bitprint.search.mirror import Mirror
from bitprint.search.projections import check_projections
from bitprint.search.promises import Promise
from bitprint.utils.arguments import check_whole
from bitprint.utils.words import as_words

if TYPE_CHECKING:
    from bitprint.search.mih_choice import MultiIndex

__all__ = ["Index", "Matches", "MatchesWithin", "ScoredMatches"]


class Index(Closable):
    """Index of codes of 1 to 1,024 bits in one file, with exact search by Hamming distance.

    Use `Index.create` or `Index.open` to get an index. `add`, `remove` and `compact` are atomic and
    durable: their changes are on disk when they return, and a crash of the process or the machine
    never leaves a partial change. Any number of processes and threads can search while one writes.
    Each search sees the data committed before it started. Other writers wait.

    An open index takes 8 bytes of memory per code and started 64 bits, and a file the bytes of the
    codes. Ids that are ascending or descending ranges of integers, such as 0 to N-1, or of decimal
    strings, such as those of `index.add(codes)`, take no memory and no file space. Other integers
    take 8 bytes, other strings 8 bytes plus the Python string (about 50 bytes plus its length).
    For these ids the first `add`, `remove` or `items` builds a lookup of 12 bytes per integer or
    about 100 per string. After a code is replaced or removed, each code takes 1 byte for a flag.
    From half a million codes on, searches build tables of substrings
    (multi-index hashing) when these save time. The results are the same. The tables take 4 to 8
    bytes per code for each started log2(N) bits, for example 15 bytes per code for ten million
    codes of 64 bits.

    While an index is open, it has two more files with `-wal` and `-shm` appended to its name. They
    are part of the index, and are merged into it when it is closed.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(["a", "b", "c"], codes, labels=[["cat"], ["cat", "sofa"], []])
    ...     with Index.open(f"{folder}/photos.bp") as index:
    ...         ids, distances = index.search(codes[:1], k=2)
    ...         near = index.within(codes[:1], radius=1, label="sofa")
    ...         index.items(["b"]), len(index)
    ([Item(path=None, labels=('cat', 'sofa'))], 3)
    >>> ids.tolist(), distances.tolist()
    ([['a', 'b']], [[0, 1]])
    >>> [found.tolist() for found in near.ids]
    [['b']]
    """

    promises = frozenset(Promise)

    def __init__(self, mirror: Mirror) -> None:
        if not isinstance(mirror, Mirror):
            raise ValueError("use Index.create(path, bits) or Index.open(path) to get an index")
        self._mirror = mirror
        self.path = mirror.path
        self.bits = mirror.header.bits
        self.model = mirror.header.model
        self.record_bytes = mirror.header.record

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        bits: int,
        *,
        model: str | None = None,
        attachments: Mapping[str, bytes] | None = None,
        record_bytes: int = 0,
        timeout: float = 30.0,
    ) -> Index:
        """Create an empty index at a path that does not exist yet.

        Parameters
        ----------
        path : path
            The file, by convention with the suffix `.bp`.
        bits : int
            Code length, 1 to 1,024.
        model : str, optional
            Identity of the hasher that computes the codes.
        attachments : dict of str to bytes, optional
            Attachments to store from the beginning, see `attach`.
        record_bytes : int, default=0
            Number of bytes to store with each code, see `records`.
        timeout : float, default=30.0
            Seconds to wait for another writer before TimeoutError is raised.
        """
        contents = attachments or {}
        record = check_whole("record_bytes", record_bytes, 0)
        header = IndexHeader(check_length(bits), model, attached=len(contents), record=record)

        def fill(db: sqlite3.Connection) -> None:
            if contents:
                attached.write(db, contents)
            if record:
                record_rows.create(db)

        IndexFile.create(Path(path), header, fill)
        return cls.open(path, timeout=timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Index:
        """Open an index, read all codes and verify their checksums.

        Raises
        ------
        FileNotFoundError
            If the file does not exist.
        ValueError
            If the file is not an index, is damaged, or was written by a newer version of bitprint.
        """
        return cls(Mirror(Path(path), timeout))

    def close(self) -> None:
        """Close the file; later calls of other methods raise ValueError.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     index = Index.create(f"{folder}/photos.bp", bits=4)
        ...     index.close()
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['photos.bp']
        """
        self._mirror.close()

    @cached_property
    def _multi_index(self) -> MultiIndex:
        from bitprint.search.mih_choice import MultiIndex  # imports Numba

        return MultiIndex(self.bits)

    def __len__(self) -> int:
        return self._mirror.live()

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {self.bits} bits)"

    def add(
        self,
        ids: IdList | CodesLike | None = None,
        codes: CodesLike | None = None,
        paths: Iterable[str | os.PathLike[str] | None] | None = None,
        labels: Iterable[Iterable[str]] | None = None,
        records: NDArray[np.uint8] | None = None,
    ) -> None:
        """Add codes in one durable transaction: all of them or, on an error, none.

        A code whose id is already in the index replaces the earlier code and moves to the end of
        the insertion order.

        Parameters
        ----------
        ids : iterable of int or of str, length N, optional
            Unique ids. The first batch determines whether the index has integer or string ids.
            Without ids, `index.add(codes)` numbers the codes consecutively, starting after the
            largest number among the ids of the index, or at 0. The numbers are strings ("0", "1",
            ...), or integers in an index with integer ids; `index.ids()[-N:]` returns them.
        codes : Codes, or array_like of -1 and +1, shape (N, bits)
            Codes of the length of the index.
        paths : iterable of str, path or None, length N, optional
            The file of each image.
        labels : iterable of iterables of str, length N, optional
            The labels of each image: none, one or several.
        records : ndarray of uint8, shape (N, record_bytes), optional
            The bytes to store with each code, in an index that was created with `record_bytes`.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         index.add([[1, 1, 1, 1], [1, 1, 1, -1]])
        ...         index.add(["cat.jpg"], [[-1, -1, -1, -1]])
        ...         index.search([[-1, -1, -1, 1]], k=1).ids.tolist(), index.ids().tolist()
        ([['cat.jpg']], ['0', '1', 'cat.jpg'])
        """
        if ids is None or codes is None:
            given = codes if ids is None else ids
            add_numbered(self, given, paths, labels, self._mirror.next_ids)
            return
        new, codes, items = check_batch(self.path, self.bits, ids, codes, paths, labels)
        if len(new):
            self._mirror.add(new, codes.packed, items, records)

    def remove(self, ids: IdList) -> None:
        """Remove codes in one durable transaction: all of them or, if an id is unknown, none.

        `compact` frees their space.

        Examples
        --------
        >>> import tempfile
        >>> codes = Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         index.add(["a", "b", "c"], codes, labels=[["cat"], ["cat", "sofa"], []])
        ...         index.remove(["b"])
        ...         index.compact()
        ...         index.ids().tolist(), index.labels(), index.codes(["c"]) == codes[2]
        (['a', 'c'], ['cat'], True)
        """
        old = as_ids(ids)
        if len(old):
            self._mirror.remove(old)

    def compact(self) -> None:
        """Rewrite the file without removed codes and with small batches merged.

        Search results stay the same. Call it after many removals, or after many small batches,
        which slow down opening the index.
        """
        self._mirror.compact()

    @overload
    def search(self, codes: CodesLike, k: int = 10, label: str | None = None) -> Matches: ...

    @overload
    def search(
        self,
        codes: None = None,
        k: int = 10,
        label: str | None = None,
        *,
        projections: ArrayLike,
    ) -> ScoredMatches: ...

    def search(
        self,
        codes: CodesLike | None = None,
        k: int = 10,
        label: str | None = None,
        *,
        projections: ArrayLike | None = None,
    ) -> Matches | ScoredMatches:
        """Find the k nearest codes of each query, or those with the largest inner products.

        Parameters
        ----------
        codes : Codes, or array_like of -1 and +1, shape (Q, bits)
            The queries.
        k : int, default=10
            Number of codes to return per query.
        label : str, optional
            Search only codes with this label.
        projections : array_like of float32, shape (Q, bits)
            Real-valued queries instead of codes, as returned by `hasher.project`. Stored codes are
            ranked by the inner product of the projections with their -1 and +1. This finds more of
            the true neighbors than codes as queries do, and stores nothing more.

        Returns
        -------
        Matches
            Unpacks to (ids, distances), each of shape (Q, k), ordered by distance, then by
            insertion; padded if there are fewer than k codes.
        ScoredMatches
            With projections: unpacks to (ids, scores), ordered by score, the largest first, then by
            insertion.
        """
        k = check_whole("k", k, 1)
        if (codes is None) == (projections is None):
            raise ValueError(f"{self.path}: search needs either codes or projections")
        if projections is not None:
            return self._search_projected(projections, k, label)
        codes = check_codes(self.path, self.bits, codes)
        stored = self._mirror.snapshot(label)
        queries = as_words(codes.packed)
        if numpy_scan.suffices(len(queries), stored.count):
            positions, distances = numpy_scan.nearest(
                queries, stored.planes, stored.count, k, stored.alive
            )
        else:
            positions, distances = self._multi_index.nearest(queries, stored, k, label)
        # All queries have the same number of neighbors.
        complete = positions.size and positions.item(-1) >= 0
        return Matches(stored.ids[positions] if complete else stored.ids_at(positions), distances)

    def _search_projected(self, projections: ArrayLike, k: int, label: str | None) -> ScoredMatches:
        queries = check_projections(projections, self.bits, self.path)
        stored = self._mirror.snapshot(label)
        planes, count, alive = stored.planes, stored.count, stored.alive
        if numpy_scan.suffices(len(queries), count):
            found = numpy_scan.nearest_projected(queries, planes, count, k, alive)
        else:
            from bitprint.search.projected import nearest_projected  # imports Numba

            found = nearest_projected(queries, planes, count, k, alive)
        return ScoredMatches(stored.ids_at(found[0]), found[1])

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find all codes within Hamming distance `radius` of each query.

        Parameters
        ----------
        codes : Codes, or array_like of -1 and +1, shape (Q, bits)
            The queries.
        radius : int, default=2
            The largest distance, in bits.
        label : str, optional
            Search only codes with this label.

        Returns
        -------
        MatchesWithin
            Unpacks to (ids, distances), each a list of Q arrays, ordered by distance, then by
            insertion.
        """
        codes = check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        stored = self._mirror.snapshot(label)
        queries = as_words(codes.packed)
        offsets, positions, distances = self._multi_index.within(queries, stored, radius)
        return split_matches(offsets, stored.ids[positions], distances)

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        return self._mirror.items(as_ids(ids))

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        return self._mirror.ids()

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        return Codes(self._mirror.packed(as_ids(ids)), self.bits)

    def records(self, ids: IdList) -> NDArray[np.uint8]:
        """Return the record of each id, in order, shape (N, record_bytes).

        Only the records of these ids are read from the file.

        Examples
        --------
        >>> import tempfile
        >>> codes = Codes.from_signs([[1, 1, 1, -1], [-1, 1, -1, -1]])
        >>> sizes = np.array([1024, 65536], "<u4")[:, None].view(np.uint8)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4, record_bytes=4) as index:
        ...         index.add(["a", "b"], codes, records=sizes)
        ...         index.records(["b"]).view("<u4").tolist()
        [[65536]]
        """
        return self._mirror.records(as_ids(ids))

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
        return self._mirror.labels()

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Store named bytes in the index, in one durable transaction.

        Parameters
        ----------
        contents : dict of str to bytes or None
            Attachments by name. Existing ones are replaced; None deletes an attachment.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         index.attach({"note/owner": b"Ada", "note/place": b"London"})
        ...         index.attach({"note/place": None})
        ...         index.attachments("note/")
        {'note/owner': b'Ada'}
        """
        if contents:
            self._mirror.attach(contents)

    def attachments(self, prefix: str = "") -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`, ordered by name."""
        return self._mirror.attachments(prefix)

    def transaction(self) -> AbstractContextManager[None]:
        """Group changes in a `with` statement: commit all of them or, on an error, none.

        Other threads and processes see the state before or after. `compact` cannot be called
        inside.

        If you catch the error of a call inside the statement, only that call has no effect. A
        transaction inside another one is such a call. If the disk is full or fails, SQLite may undo
        the whole transaction; all further calls inside it and its end then raise OSError.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         with index.transaction():
        ...             index.add(["a"], Codes.from_signs([[1, 1, 1, -1]]))
        ...             index.attach({"size/a": b"1024"})
        ...         index.codes(["a"]).signs().tolist(), index.attachments("size/")
        ([[1, 1, 1, -1]], {'size/a': b'1024'})
        """
        return self._mirror.transaction()

    def snapshot(self) -> AbstractContextManager[None]:
        """Read the same state in all calls inside a `with` statement, whatever others write.

        Other writers do not wait. Changes through this object raise ValueError inside.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         with Index.open(f"{folder}/photos.bp") as other, index.snapshot():
        ...             other.add(["a"], Codes.from_signs([[1, 1, 1, -1]]))
        ...             before = len(index)
        ...         before, len(index)
        (0, 1)
        """
        return self._mirror.frozen()
