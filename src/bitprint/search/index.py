"""Index: codes, their ids, paths and labels in one durable file, searched exactly."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from bitprint.arguments import check_whole
from bitprint.codes import Codes, CodesLike
from bitprint.search import attachments as attached
from bitprint.search import plain
from bitprint.search.checks import add_numbered, check_batch, check_codes, check_length
from bitprint.search.closing import Closable
from bitprint.search.details import Item
from bitprint.search.file import Header, IndexFile
from bitprint.search.ids import IdList, as_ids
from bitprint.search.matches import Matches, MatchesWithin, split_matches
from bitprint.search.mirror import Mirror
from bitprint.words import as_words

if TYPE_CHECKING:
    from bitprint.search.mih_choice import MultiIndex

__all__ = ["Index", "Matches", "MatchesWithin"]


class Index(Closable):
    """Codes of 1 to 1,024 bits in one file, with exact search by Hamming distance.

    Made by `Index.create` or `Index.open`. What `add`, `remove` and `compact` did is on disk when
    they return, and none of them is ever half done, whenever the process or the machine stops.
    Any number of processes and threads may search while one adds: each search sees what had
    been written when it began. Other writers wait for their turn.

    An open index takes 8 bytes per code for every 64 bits begun, plus 9 bytes for the id and a
    mark, plus the Python strings where ids are strings (some 50 bytes and their length). The first
    `add`, `remove` or `items` of a process builds a table of ids: 16 bytes more per code, or some
    100 for strings. From half a million codes on, searches that would gain by it build tables of
    substrings (multi-index hashing): the same answers for 4 to 8 bytes more per code for each
    log2(N) bits begun, which is 15 bytes for 64 bits at ten million codes.

    While it is in use, the index keeps two files beside it, with `-wal` and `-shm` added to its
    name. They are part of it; closing the index folds them back.

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

    def __init__(self, mirror: Mirror) -> None:
        if not isinstance(mirror, Mirror):
            raise ValueError("make an index by Index.create(path, bits) or Index.open(path)")
        self._mirror = mirror
        self.path = mirror.path
        self.bits = mirror.header.bits
        self.model = mirror.header.model

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        bits: int,
        *,
        model: str | None = None,
        attachments: Mapping[str, bytes] | None = None,
        timeout: float = 30.0,
    ) -> Index:
        """Make an empty index at a path where nothing is yet.

        Parameters
        ----------
        path : path
            The file; a name that ends in `.bp` by custom.
        bits : int
            The length of the codes, 1 to 1,024.
        model : str, optional
            The identity of the hasher whose codes the index will hold.
        attachments : dict of str to bytes, optional
            What `attach` would write, there from the beginning.
        timeout : float, default=30.0
            Seconds to wait for another writer before giving up.
        """
        contents = attachments or {}
        header = Header(check_length(bits), model, attached=len(contents))
        fill = partial(attached.write, contents=contents) if contents else None
        IndexFile.create(Path(path), header, fill)
        return cls.open(path, timeout=timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> Index:
        """Open an index; every code is read and its checksum verified.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is not an index, is damaged, or was made by a newer version of bitprint.
        """
        return cls(Mirror(Path(path), timeout))

    def close(self) -> None:
        """Close the file; the index is of no use afterwards.

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
    ) -> None:
        """Add codes: all of them or, if anything fails, none; on disk on return.

        An id that the index holds already is replaced, and counts as inserted now.

        Parameters
        ----------
        ids : iterable of int or of str, length N, optional
            All different; the first batch decides whether the index has integers or strings.
            `index.add(codes)` numbers the codes itself: consecutive numbers after the largest
            number among the ids of the index, from 0 if there is none, as strings ("0", "1", ...)
            or, in an index of integers, as integers. `index.ids()[-N:]` returns them. It reads
            all ids of the index with every call.
        codes : Codes, or array_like of -1 and +1, shape (N, bits)
            N codes of as many bits as the index has.
        paths : iterable of str, path or None, length N, optional
            Where each image lies.
        labels : iterable of iterables of str, length N, optional
            The names of the labels of each image: none, one or several.

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
            add_numbered(self, codes if ids is None else ids, paths, labels)
            return
        new, codes, items = check_batch(self.path, self.bits, ids, codes, paths, labels)
        if len(new):
            self._mirror.add(new, codes.packed, items)

    def remove(self, ids: IdList) -> None:
        """Remove codes: all of them or, if an id is unknown, none; on disk on return.

        Their space comes back with `compact`.

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
        """Rewrite the file without removed codes and with small batches joined.

        Answers stay the same. Worth its time after many removals, or after many small batches,
        which make the index slower to open.
        """
        self._mirror.compact()

    def search(self, codes: CodesLike, k: int = 10, label: str | None = None) -> Matches:
        """Find the k nearest codes of each query.

        Parameters
        ----------
        codes : Codes, or array_like of -1 and +1, shape (Q, bits)
            Q queries.
        k : int, default=10
            How many to find.
        label : str, optional
            Consider only codes that carry this label.

        Returns
        -------
        Matches
            Unpacks to (ids, distances), each of shape (Q, k), ordered by distance, ties by
            insertion; padded where the index has fewer codes.
        """
        codes = check_codes(self.path, self.bits, codes)
        k = check_whole("k", k, 1)
        view = self._mirror.view(label)
        queries = as_words(codes.packed)
        if plain.suffices(len(queries), view.count):
            positions, distances = plain.nearest(queries, view.planes, view.count, k, view.alive)
        else:
            positions, distances = self._multi_index.nearest(queries, view, k, label)
        return Matches(view.ids_at(positions), distances)

    def within(self, codes: CodesLike, radius: int = 2, label: str | None = None) -> MatchesWithin:
        """Find every code at most `radius` away from each query.

        Parameters
        ----------
        codes : Codes, or array_like of -1 and +1, shape (Q, bits)
            Q queries.
        radius : int, default=2
            The largest distance, in bits.
        label : str, optional
            Consider only codes that carry this label.

        Returns
        -------
        MatchesWithin
            Unpacks to (ids, distances), each a list of Q arrays, ordered by distance, ties by
            insertion.
        """
        codes = check_codes(self.path, self.bits, codes)
        radius = check_whole("radius", radius, 0)
        view = self._mirror.view(label)
        queries = as_words(codes.packed)
        offsets, positions, distances = self._multi_index.within(queries, view, radius)
        return split_matches(offsets, view.ids_at(positions), distances)

    def items(self, ids: IdList) -> list[Item]:
        """Return the path and the labels of each id, in order."""
        return self._mirror.items(as_ids(ids))

    def ids(self) -> NDArray[Any]:
        """Return the ids of all codes in insertion order: int64, or strings."""
        view = self._mirror.view(None)
        return view.ids.copy() if view.alive is None else view.ids[view.alive == 1]

    def codes(self, ids: IdList) -> Codes:
        """Return the code of each id, in order."""
        return Codes(self._mirror.packed(as_ids(ids)), self.bits)

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
        return self._mirror.labels()

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Keep named bytes in the file, or delete those that are None; on disk on return.

        Parameters
        ----------
        contents : dict of str to bytes or None
            An attachment of a name that the index has already is replaced.

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
        """Return the attachments whose names begin with `prefix`, ordered by name."""
        return self._mirror.attachments(prefix)

    def transaction(self) -> AbstractContextManager[None]:
        """Make the changes inside of a `with` one: all of them or, if anything is raised, none.

        Other threads and processes see either state; `compact` is not for use inside.

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
