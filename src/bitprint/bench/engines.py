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
    """

    name: str
    nearest: Callable[[Packed, int], Nearest] | None = None
    within: Callable[[Packed, int], Within] | None = None
    exact: bool = True
    skip_reason: str = ""


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


def faiss_flat(packed: Packed) -> list[Engine]:
    """Return the engines of `IndexBinaryFlat` of faiss: with heaps, and with counting."""
    faiss = importlib.import_module("faiss")
    index = faiss.IndexBinaryFlat(8 * packed.shape[1])
    index.add(packed)

    def nearest(queries: Packed, k: int, use_heap: bool) -> Nearest:
        index.use_heap = use_heap
        distances, positions = index.search(queries, k)
        return positions, distances

    return [
        Engine(
            "faiss flat, heap",
            lambda queries, k: nearest(queries, k, True),
            lambda queries, radius: faiss_within(index, queries, radius),
        ),
        Engine("faiss flat, counting", lambda queries, k: nearest(queries, k, False)),
    ]


def faiss_within(index: Any, queries: Packed, radius: int) -> Within:
    """Search within a radius in a binary index of faiss, where the radius is exclusive."""
    offsets, distances, positions = index.range_search(queries, radius + 1)
    return offsets, positions, distances


def set_threads(threads: int) -> None:
    """Set the number of threads of Bitprint, and of faiss if it is installed."""
    torch.set_num_threads(threads)
    if find_spec("faiss") is not None:
        importlib.import_module("faiss").omp_set_num_threads(threads)
