"""VectorIndex: codes of vectors and their model in one durable file, searched by vectors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.search.checks import check_kind, check_length
from bitprint.search.closing import Closable, on_error
from bitprint.search.ids import (
    IdList,
    Ids,
    as_ids,
    first_repeated,
    ids_after,
    kind_of,
    largest_number,
)
from bitprint.search.index import Index
from bitprint.utils.arguments import check_whole
from bitprint.vectors.checking import Vectors, check_metric
from bitprint.vectors.keeping import KINDS
from bitprint.vectors.model import DESCRIPTION, VectorModel
from bitprint.vectors.reading import as_source

SAMPLE = 20_000
"""Maximum number of vectors a model is learned from."""

BITS, KEEP, METRIC = 256, "int8", "cosine"
"""Defaults of a new index."""

_RESCORE = 10
_GATHERED = 1 << 24  # numbers of kept vectors in memory at a time
_TRIES = 5  # searches until a hit is not removed before its vector is read

Progress = Callable[[int, int], None]


class Neighbors(NamedTuple):
    """The vectors most similar to each query, best first.

    If there are fewer than k vectors, the remaining similarities are minus infinity and the
    remaining ids are -1, or None for string ids.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with VectorIndex.learn(f"{folder}/docs.bp", np.eye(4), bits=4) as index:
    ...         index.add(["a", "b"], np.eye(4)[:2])
    ...         found = index.search(np.eye(4)[:1], k=3)
    >>> found.ids.tolist(), found.similarities.round(2).tolist()
    ([['a', 'b', None]], [[1.0, 0.0, -inf]])
    """

    ids: NDArray[Any]
    """Shape (Q, k): int64, or strings."""
    similarities: Vectors
    """Shape (Q, k)."""


class VectorIndex(Closable):
    """An index of vectors, such as embeddings of texts or images, in one durable file.

    The file contains a learned model, a code of `bits` bits for each vector and, if `keep` is
    "int8" or "float16", the vector itself. The codes are in memory, at 256 bits a thirty-second of
    256-dimensional float32 vectors. Kept vectors stay in the file: a search ranks all codes by
    real-valued queries, reads the vectors of the best candidates, and ranks these by their
    similarity.

    Use `VectorIndex.learn` or `VectorIndex.open` to get an index.

    Attributes
    ----------
    index : Index
        The index of the codes, for `ids`, `remove`, `compact`, `within` and exports.
    model : VectorModel
    path : Path
    bits : int

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> vectors = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.VectorIndex.learn(f"{folder}/docs.bp", vectors, bits=32) as index:
    ...         index.add(range(1000), vectors)
    ...     with bp.VectorIndex.open(f"{folder}/docs.bp") as index:
    ...         ids, similarities = index.search(vectors[:2] + 0.1, k=1)
    ...         index.remove([1])
    ...         index, len(index)
    (VectorIndex('...docs.bp', ITQ, 32 bits, on vectors of length 32, cosine (...)), 999)
    >>> ids.tolist(), similarities.shape, bool((similarities > 0.98).all())
    ([[0], [1]], (2, 1), True)
    """

    def __init__(self, index: Index) -> None:
        found = index.attachments("vectors/")
        if DESCRIPTION not in found:
            raise ValueError(
                f"{index.path}: contains no model for vectors; create an index with "
                "VectorIndex.learn or `bitprint vectors learn`"
            )
        try:
            self.model = VectorModel.from_files(found)
        except ValueError as error:
            raise ValueError(f"{index.path}: {error}; restore it from a backup") from error
        settings, keeper = self.model.settings, self.model.keeper
        expected = 0 if keeper is None else keeper.record_bytes(settings.width)
        if (index.bits, index.model, index.record_bytes) != (
            settings.bits,
            self.model.identity,
            expected,
        ):
            raise ValueError(
                f"{index.path}: the model does not belong to the codes; restore it from a backup"
            )
        self.index = index
        self.path = index.path
        self.bits = index.bits

    @classmethod
    def learn(
        cls,
        path: str | os.PathLike[str],
        vectors: Any,
        *,
        bits: int = BITS,
        method: str | None = None,
        metric: str = METRIC,
        keep: str | None = KEEP,
        seed: int = 0,
        **options: Any,
    ) -> VectorIndex:
        """Create an empty index with a model learned from vectors, which are not added.

        Parameters
        ----------
        path : path
            Must not exist yet.
        vectors : array_like of real numbers, shape (N, d), or path, or Source
            The model is learned from at most 20,000 random vectors. A path is that of a file which
            `open_vectors` can read.
        bits : int, default=256
            Code length, at most 1,024.
        method : str, optional
            A method without labels whose outputs are a linear map; by default ITQ, or SBLSH if
            there are more bits than dimensions.
        metric : {"cosine", "ip", "l2"}, default="cosine"
            The similarity: cosine, inner product, or minus the squared Euclidean distance. For
            cosine, vectors and queries are scaled to length 1.
        keep : {"int8", "float16"} or None, default="int8"
            How `add` stores the vectors that a search compares again; None stores codes alone.
        seed : int, default=0
            Seed of the sample and of the method.
        **options
            Options of the method, as in `bitprint.create`.

        Returns
        -------
        VectorIndex
        """
        place = Path(path).expanduser()
        if place.exists():
            raise FileExistsError(f"{place}: already exists; open it, or choose another name")
        check_length(bits)
        check_metric(metric)
        source = as_source(vectors)
        model = VectorModel.learn(
            source.sample(SAMPLE, seed),
            bits=bits,
            method=method,
            metric=metric,
            keep=keep,
            place=f"{source.place} (a random sample)" if source.count > SAMPLE else source.place,
            seed=seed,
            **options,
        )
        keeper = model.keeper
        return cls(
            Index.create(
                place,
                bits,
                model=model.identity,
                attachments=model.files,
                record_bytes=0 if keeper is None else keeper.record_bytes(source.width),
            )
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 30.0) -> VectorIndex:
        """Open an index of vectors; see `Index.open`."""
        index = Index.open(Path(path).expanduser(), timeout=timeout)
        with on_error(index.close):
            return cls(index)

    def close(self) -> None:
        """Close the file; later calls of other methods raise ValueError."""
        self.index.close()

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"VectorIndex({str(self.path)!r}, {self.model.identity})"

    def add(
        self,
        ids: IdList | Any | None = None,
        vectors: Any | None = None,
        *,
        progress: Progress | None = None,
    ) -> None:
        """Add vectors in one durable transaction: all of them or, on an error, none.

        A vector whose id is already in the index replaces the earlier one. A file of vectors is
        read in batches.

        Parameters
        ----------
        ids : iterable of int or of str, length N, optional
            Unique ids. Without ids, `index.add(vectors)` uses those of the source; if it has none,
            the vectors are numbered from 0, or after the largest number in the index.
        vectors : array_like of real numbers, shape (N, d), or path, or Source
        progress : callable, optional
            Called with (done, total) vectors.
        """
        if vectors is None:
            ids, vectors = None, ids
        source = as_source(vectors)
        given = source.ids if ids is None else as_ids(ids)
        if given is not None:
            self._check_ids(given, source.count)
        with self.index.transaction():
            new = self._numbers(source.count) if given is None else given
            done = 0
            for batch in source.batches():
                prepared = self.model.prepare(batch, source.place, done)
                some = new[done : done + len(prepared)]
                keeper = self.model.keeper
                self.index.add(
                    some,
                    self.model.encode(prepared),
                    records=None if keeper is None else keeper.pack(prepared),
                )
                done += len(prepared)
                if progress is not None:
                    progress(done, source.count)
            if done != source.count:
                raise ValueError(f"{source.place}: {done} vectors instead of {source.count}")

    def remove(self, ids: IdList) -> None:
        """Remove vectors: all of them or, if an id is unknown, none. See `Index.remove`."""
        self.index.remove(ids)

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        rescore: int | None = None,
        metric: str | None = None,
    ) -> Neighbors:
        """Find the k most similar vectors of each query.

        The codes are ranked by the real-valued outputs of the query. The first `rescore * k` are
        then ranked by the similarity of their kept vectors.

        Parameters
        ----------
        queries : array_like of real numbers, shape (Q, d), or path, or Source
        k : int, default=10
            Number of vectors to return per query.
        rescore : int, optional
            10 by default; 0 returns the order of the codes with estimated similarities, and is the
            default if the index keeps no vectors.
        metric : str, optional
            "hamming" ranks codes by their Hamming distance to the code of the query; it needs less
            time and finds fewer of the most similar vectors. Any other metric must be that of the
            index.

        Returns
        -------
        Neighbors
            Unpacks to (ids, similarities), each of shape (Q, k): the cosine, the inner product or
            minus the squared distance. For metric="hamming" without rescoring, the cosine of the
            codes: 1 - 2 * distance / bits.
        """
        k = check_whole("k", k, 1)
        rescore = self._check_rescore(rescore)
        if metric not in (None, "hamming", self.model.settings.metric):
            raise ValueError(
                f"{self.path}: this index was learned for {self.model.settings.metric}, not for "
                f"{metric}; learn another index"
            )
        source = as_source(queries)
        depth = min(k * max(rescore, 1), max(len(self), 1))
        block = max(1, _GATHERED // (depth * self.model.settings.width)) if rescore else 1024
        found, done = [], 0
        for batch in source.batches():
            prepared = self.model.prepare(batch, source.place, done)
            for start in range(0, len(prepared), block):
                some = prepared[start : start + block]
                found.append(self._search(some, depth, bool(rescore), metric == "hamming"))
            done += len(prepared)
        if not found:
            found.append(self._search(np.empty((0, source.width), np.float32), 1, False, False))
        ids = np.concatenate([part.ids for part in found])
        similarities = np.concatenate([part.similarities for part in found])
        return _padded(ids[:, :k], similarities[:, :k], k)

    def _search(self, prepared: Vectors, depth: int, rescored: bool, hamming: bool) -> Neighbors:
        for tries_left in reversed(range(_TRIES)):
            if hamming:
                ids, distances = self.index.search(self.model.encode(prepared), depth)
                found = distances >= 0
                similarities = np.where(found, 1 - 2 * distances / self.bits, -np.inf)
            else:
                ids, scores = self.index.search(projections=self.model.project(prepared), k=depth)
                found = np.isfinite(scores)
                estimates = self.model.estimate(prepared, np.where(found, scores, 0))
                similarities = np.where(found, estimates, -np.inf)
            if not rescored:
                return Neighbors(ids, similarities.astype(np.float32))
            try:
                return self._rescore(prepared, ids, found)
            except ValueError:  # a candidate was removed after the search
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _rescore(self, prepared: Vectors, ids: Ids, found: NDArray[np.bool_]) -> Neighbors:
        """Rank candidates by the similarity of their kept vectors; equal ones keep their order."""
        keeper = self.model.keeper
        assert keeper is not None
        rows = np.nonzero(found)[0]
        similarities = np.full(ids.shape, -np.inf, np.float32)
        kept = keeper.unpack(self.index.records(ids[found]))
        similarities[found] = self.model.compare(prepared[rows], kept)
        order = np.argsort(-similarities, axis=1, kind="stable")
        return Neighbors(
            np.take_along_axis(ids, order, 1), np.take_along_axis(similarities, order, 1)
        )

    def _check_rescore(self, rescore: int | None) -> int:
        keeps = self.model.keeper is not None
        if rescore is None:
            return _RESCORE if keeps else 0
        rescore = check_whole("rescore", rescore, 0)
        if rescore and not keeps:
            raise ValueError(
                f"{self.path}: this index keeps no vectors to compare again; search with "
                f"rescore=0, or learn an index with keep={KINDS[0]!r}"
            )
        return rescore

    def _check_ids(self, ids: Ids, count: int) -> None:
        if len(ids) != count:
            raise ValueError(f"got {len(ids)} ids for {count} vectors; give one id per vector")
        repeated = first_repeated(ids)
        if repeated is not None:
            raise ValueError(f"duplicate id {repeated!r}; give each vector its own id")
        known = self.index.ids()
        if count and len(known):
            check_kind(self.path, kind_of(known), ids)

    def _numbers(self, count: int) -> Ids:
        known = self.index.ids()
        if not len(known):
            return np.arange(count)
        return ids_after(largest_number(known), count, kind_of(known))


def _padded(ids: Ids, similarities: Vectors, k: int) -> Neighbors:
    """Return k columns; missing ids are -1 or None."""
    missing = k - ids.shape[1]
    if missing > 0:
        nothing = np.full((len(ids), missing), None if ids.dtype == object else -1, ids.dtype)
        ids = np.concatenate([ids, nothing], axis=1)
        similarities = np.pad(similarities, ((0, 0), (0, missing)), constant_values=-np.inf)
    return Neighbors(ids, similarities.astype(np.float32, copy=False))
