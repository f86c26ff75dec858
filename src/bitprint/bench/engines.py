"""Search engines with a common interface for the benchmark."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.search import flat as scan
from bitprint.search.index import Index
from bitprint.utils.words import as_planes, as_words

Packed = NDArray[np.uint8]
Nearest = tuple[NDArray[Any], NDArray[Any]]
Within = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Engine:
    """An engine that searches a database. Positions are row numbers of codes.

    Parameters
    ----------
    name : str
    nearest : callable, optional
        Called with queries, (Q, B) packed bytes, and k; returns positions and distances, (Q, k).
    within : callable, optional
        Called with queries and a radius; returns offsets, (Q + 1,), positions and distances.
    exact : bool
        Whether the engine must return the nearest codes; otherwise its recall is measured.
    skip_reason : str
        Reason for which the engine is skipped, if it is.
    prepare : callable
        Converts packed queries to the form that `nearest` and `within` take; the identity unless
        given. Only the benchmark of the grid calls it.
    setting : str
        Settings that are not in the name.
    """

    name: str
    nearest: Callable[[Packed, int], Nearest] | None = None
    within: Callable[[Packed, int], Within] | None = None
    exact: bool = True
    skip_reason: str = ""
    prepare: Callable[[Packed], Any] = lambda queries: queries
    setting: str = ""


def flat(packed: Packed) -> Engine:
    """Return the engine of Bitprint that scans all codes."""
    planes, count = as_planes(packed), len(packed)
    return Engine(
        "bitprint scan",
        lambda queries, k: scan.nearest(as_words(queries), planes, count, k, None),
        lambda queries, radius: scan.within(as_words(queries), planes, count, radius, None),
    )


def indexed(index: Index) -> Engine:
    """Return the engine of a Bitprint index, whose ids must be 0, 1, 2 and so on."""

    def within(queries: Packed, radius: int) -> Within:
        ids, distances = index.within(Codes.from_packed(queries, index.bits), radius)
        offsets = np.cumsum([0, *map(len, ids)])
        return offsets, np.concatenate(ids), np.concatenate(distances)

    return Engine(
        "bitprint index",
        lambda queries, k: index.search(Codes.from_packed(queries, index.bits), k),
        within,
    )


def numpy_scan(packed: Packed) -> Engine:
    """Return an engine in NumPy: for each query exclusive or, count of ones, partial sort."""
    words = as_words(packed)

    def distances_of(query: NDArray[np.uint64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.bitwise_count(words ^ query).sum(axis=1, dtype=np.int64)
        return found

    def nearest(queries: Packed, k: int) -> Nearest:
        positions = np.empty((len(queries), k), np.int64)
        distances = np.empty((len(queries), k), np.int64)
        for row, query in enumerate(as_words(queries)):
            found = distances_of(query)
            best = np.argpartition(found, k - 1)[:k]
            positions[row] = best[np.argsort(found[best])]
            distances[row] = found[positions[row]]
        return positions, distances

    def within(queries: Packed, radius: int) -> Within:
        matches, near = [], []
        for query in as_words(queries):
            found = distances_of(query)
            matches.append(np.flatnonzero(found <= radius))
            near.append(found[matches[-1]])
        return np.cumsum([0, *map(len, matches)]), np.concatenate(matches), np.concatenate(near)

    return Engine("NumPy", nearest, within)


def prepared(index: Index) -> Engine:
    """Return the engine of a Bitprint index whose queries are converted to `Codes` beforehand."""
    nearest: Any = index.search
    within: Any = index.within  # returns lists
    return Engine(
        "bitprint index",
        nearest,
        within,
        prepare=lambda queries: Codes.from_packed(queries, index.bits),
    )


def faiss_flat(packed: Packed, width: int | None = None) -> list[Engine]:
    """Return the engines of `IndexBinaryFlat` of faiss: with heaps, and with counting.

    Codes are padded with zeros to `width` bytes, if given.
    """
    faiss = importlib.import_module("faiss")
    padding = 0 if width is None else width - packed.shape[1]
    note = f", padded to {8 * width} bits" if width is not None else ""

    def pad(packed: Packed) -> Packed:
        return np.pad(packed, ((0, 0), (0, padding))) if padding else packed

    index = faiss.IndexBinaryFlat(8 * (packed.shape[1] + padding))
    index.add(pad(packed))

    def nearest(queries: Packed, k: int, use_heap: bool) -> Nearest:
        index.use_heap = use_heap
        distances, positions = index.search(queries, k)
        return positions, distances

    return [
        Engine(
            f"faiss flat, heap{note}",
            lambda queries, k: nearest(queries, k, True),
            lambda queries, radius: faiss_within(index, queries, radius),
            prepare=pad,
        ),
        Engine(
            f"faiss flat, counting{note}",
            lambda queries, k: nearest(queries, k, False),
            prepare=pad,
        ),
    ]


def faiss_within(index: Any, queries: Packed, radius: int) -> Within:
    """Search within a radius in a binary index of faiss, where the radius is exclusive."""
    offsets, distances, positions = index.range_search(queries, radius + 1)
    return offsets, positions, distances


def faiss_ivf(packed: Packed) -> list[Engine]:
    """Return the inverted lists of faiss, sqrt(N) of them, with some numbers of lists searched."""
    faiss = importlib.import_module("faiss")
    bits, lists = 8 * packed.shape[1], int(len(packed) ** 0.5)
    index = faiss.IndexBinaryIVF(faiss.IndexBinaryFlat(bits), bits, lists)
    index.train(packed[: 50 * lists])
    index.add(packed)

    def engine(searched: int) -> Engine:
        def nearest(queries: Packed, k: int) -> Nearest:
            index.nprobe = searched
            distances, positions = index.search(queries, k)
            return positions, distances

        def within(queries: Packed, radius: int) -> Within:
            index.nprobe = searched
            return faiss_within(index, queries, radius)

        setting = f"{searched} of {lists} lists"
        return Engine("faiss IVF", nearest, within, exact=False, setting=setting)

    return [engine(searched) for searched in (1, 8, 64)]


def faiss_hash(packed: Packed) -> list[Engine]:
    """Return the hash index of faiss by the first bits, with some numbers of flipped bits."""
    faiss = importlib.import_module("faiss")
    hashed = min(16, int(np.log2(len(packed))))
    index = faiss.IndexBinaryHash(8 * packed.shape[1], hashed)
    index.add(packed)

    def engine(flipped: int) -> Engine:
        def nearest(queries: Packed, k: int) -> Nearest:
            index.nflip = flipped
            distances, positions = index.search(queries, k)
            return positions, distances

        def within(queries: Packed, radius: int) -> Within:
            index.nflip = flipped
            return faiss_within(index, queries, radius)

        setting = f"{hashed} bits, {flipped} flipped"
        return Engine("faiss hash", nearest, within, exact=False, setting=setting)

    return [engine(flipped) for flipped in (0, 2)]


def numkong_packed(packed: Packed) -> Engine:
    """Return the engine of all distances by packed Hamming distances of numkong, then NumPy."""
    numkong = importlib.import_module("numkong")
    matrix = numkong.hammings_pack(packed, dtype="uint1")

    def nearest(queries: Packed, k: int) -> Nearest:
        found = np.asarray(numkong.hammings_packed(queries, matrix))
        some = np.argpartition(found, k - 1, axis=1)[:, :k]
        distances = np.take_along_axis(found, some, 1)
        order = np.argsort(distances, axis=1)
        return np.take_along_axis(some, order, 1), np.take_along_axis(distances, order, 1)

    def within(queries: Packed, radius: int) -> Within:
        found = np.asarray(numkong.hammings_packed(queries, matrix))
        rows, positions = np.nonzero(found <= radius)
        offsets = np.searchsorted(rows, np.arange(len(queries) + 1))
        return offsets, positions, found[rows, positions]

    return Engine("numkong packed", nearest, within)


def set_threads(threads: int) -> None:
    """Set the number of threads of Bitprint, and of faiss if it is installed."""
    torch.set_num_threads(threads)
    if find_spec("faiss") is not None:
        importlib.import_module("faiss").omp_set_num_threads(threads)
