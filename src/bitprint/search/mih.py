"""Multi-index hashing: exact search through tables, fast if neighbors are near.

Norouzi, Punjani & Fleet, Fast search in Hamming space with multi-index hashing, CVPR 2012.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.search import flat
from bitprint.search.mih_probes import NO_KEY, SHIFT, Keys, probe_nearest, probe_within
from bitprint.search.mih_tables import SubstringTables, build, count_agreements, cut
from bitprint.utils.parallel import on_every_core
from bitprint.utils.words import Words

_UNLIMITED = 2**62
_QUERIES = 32  # queries per task; small, because some queries take much longer than others

Positions = NDArray[np.int64]
Distances = NDArray[np.int32]
Offsets = NDArray[np.int64]


def nearest(
    tables: SubstringTables,
    queries: Words,
    planes: Words,
    count: int,
    k: int,
    alive: NDArray[np.uint8] | None,
    budget: int = _UNLIMITED,
) -> tuple[Positions, Distances]:
    """Find the k nearest codes of each query, with the same results as `flat.nearest`.

    Codes that are not in the tables are all compared. The work of a query is the number of compared
    codes plus two for each bucket lookup. Queries whose work would exceed the budget are passed to
    `flat.nearest`.

    Examples
    --------
    >>> from bitprint.utils.words import as_planes, as_words
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> tables = build(as_planes(packed), 4, cut(bits=8, longest=4))
    >>> positions, distances = nearest(tables, as_words(packed[:1]), as_planes(packed), 4, 3, None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    """
    words, codes, marks = flat.check_arrays(queries, planes, count, alive)
    heap_size = max(1, min(k, count))
    parts = on_every_core(
        lambda rows: (
            rows,
            *probe_nearest(words[rows], codes, marks, count, tables, heap_size, budget),
        ),
        len(words),
        _QUERIES,
    )
    keys = np.full((len(words), k), NO_KEY)
    work = np.zeros(len(words), np.int64)
    for rows, found, spent in parts:
        keys[rows, :heap_size], work[rows] = found, spent
    positions, distances = _split_keys(keys)
    positions[keys == NO_KEY] = distances[keys == NO_KEY] = -1
    stopped = work > budget
    if np.any(stopped):
        positions[stopped], distances[stopped] = flat.nearest(
            queries[stopped], planes, count, k, alive
        )
    return positions, distances


def within(
    tables: SubstringTables,
    queries: Words,
    planes: Words,
    count: int,
    radius: int,
    alive: NDArray[np.uint8] | None,
    budget: int = _UNLIMITED,
) -> tuple[Offsets, Positions, Distances]:
    """Find all codes within `radius` of each query, with the same results as `flat.within`.

    Examples
    --------
    >>> from bitprint.utils.words import as_planes, as_words
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> tables = build(as_planes(packed), 4, cut(bits=8, longest=4))
    >>> found = within(tables, as_words(packed[1:3]), as_planes(packed), 4, 1, None)
    >>> [array.tolist() for array in found]
    [[0, 3, 6], [1, 3, 2, 2, 1, 3], [0, 0, 1, 0, 1, 1]]
    """
    words, codes, marks = flat.check_arrays(queries, planes, count, alive)
    radius = min(radius, 64 * len(codes))
    parts = on_every_core(
        lambda rows: probe_within(words[rows], codes, marks, count, tables, radius, budget),
        len(words),
        _QUERIES,
    )
    sizes = np.concatenate([[0], *(np.diff(ends) for _, ends, _ in parts)])
    keys = np.concatenate([np.empty(0, np.int64), *(found for found, _, _ in parts)])
    stopped = np.flatnonzero(
        np.concatenate([np.empty(0, np.int64), *(work for *_, work in parts)]) > budget
    )
    if len(stopped):
        each = np.split(keys, np.cumsum(sizes)[1:-1])
        ends, positions, distances = flat.within(queries[stopped], planes, count, radius, alive)
        scanned = np.split(distances.astype(np.int64) << SHIFT | positions, ends[1:-1])
        for q, found in zip(stopped, scanned, strict=True):
            each[q], sizes[q + 1] = found, len(found)
        keys = np.concatenate(each)
    return np.cumsum(sizes), *_split_keys(keys)


def warm_up() -> None:
    """Compile the probes, or load them from the disk cache, before the first search."""
    word = np.zeros((1, 1), np.uint64)
    tables = build(word, 1, cut(bits=8, longest=4))
    count_agreements(word, word, tables.starts)
    nearest(tables, word, word, 1, 1, None)
    within(tables, word, word, 1, 0, None)


def _split_keys(keys: Keys) -> tuple[Positions, Distances]:
    """Return the positions and distances of keys."""
    return keys & (1 << SHIFT) - 1, (keys >> SHIFT).astype(np.int32)
