"""Multi-index hashing: exact search through tables, quick where neighbours are near.

Norouzi, Punjani & Fleet, Fast search in Hamming space with multi-index hashing, CVPR 2012.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.parallel import on_every_core
from bitprint.search import flat
from bitprint.search.mih_probes import NEVER, SHIFT, Keys, probe_nearest, probe_within
from bitprint.search.mih_tables import Tables, build, count_agreements, cut
from bitprint.words import Words

_UNLIMITED = 2**62
_QUERIES = 32  # that a core takes at a time: some take much longer than others

Positions = NDArray[np.int64]
Distances = NDArray[np.int32]
Offsets = NDArray[np.int64]


def nearest(
    tables: Tables,
    queries: Words,
    planes: Words,
    count: int,
    k: int,
    alive: NDArray[np.uint8] | None,
    budget: int = _UNLIMITED,
) -> tuple[Positions, Distances]:
    """Find the k nearest codes of each query: what `flat.nearest` finds.

    Codes beyond those in the tables are all compared. A query that would take more work than the
    budget (codes compared, and buckets looked up times two) is left to `flat.nearest`.

    Examples
    --------
    >>> from bitprint.words import as_planes, as_words
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> tables = build(as_planes(packed), 4, cut(bits=8, longest=4))
    >>> positions, distances = nearest(tables, as_words(packed[:1]), as_planes(packed), 4, 3, None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    """
    words, codes, marks = flat.check_arrays(queries, planes, count, alive)
    held = max(1, min(k, count))  # a heap has at least one place
    parts = on_every_core(
        lambda rows: (
            rows,
            *probe_nearest(words[rows], codes, marks, count, tables, held, budget),
        ),
        len(words),
        _QUERIES,
    )
    keys = np.full((len(words), k), NEVER)
    work = np.zeros(len(words), np.int64)
    for rows, found, spent in parts:
        keys[rows, :held], work[rows] = found, spent
    positions, distances = _parted(keys)
    positions[keys == NEVER] = distances[keys == NEVER] = -1
    given_up = work > budget
    if np.any(given_up):
        positions[given_up], distances[given_up] = flat.nearest(
            queries[given_up], planes, count, k, alive
        )
    return positions, distances


def within(
    tables: Tables,
    queries: Words,
    planes: Words,
    count: int,
    radius: int,
    alive: NDArray[np.uint8] | None,
    budget: int = _UNLIMITED,
) -> tuple[Offsets, Positions, Distances]:
    """Find every code at most `radius` away from each query: what `flat.within` finds.

    Examples
    --------
    >>> from bitprint.words import as_planes, as_words
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
    given_up = np.flatnonzero(
        np.concatenate([np.empty(0, np.int64), *(work for *_, work in parts)]) > budget
    )
    if len(given_up):
        each = np.split(keys, np.cumsum(sizes)[1:-1])
        ends, positions, distances = flat.within(queries[given_up], planes, count, radius, alive)
        scanned = np.split(distances.astype(np.int64) << SHIFT | positions, ends[1:-1])
        for q, found in zip(given_up, scanned, strict=True):
            each[q], sizes[q + 1] = found, len(found)
        keys = np.concatenate(each)
    return np.cumsum(sizes), *_parted(keys)


def warm_up() -> None:
    """Compile what tables take, or load it from the disk cache, so that no later search has to."""
    word = np.zeros((1, 1), np.uint64)
    tables = build(word, 1, cut(bits=8, longest=4))
    count_agreements(word, word, tables.starts)
    nearest(tables, word, word, 1, 1, None)
    within(tables, word, word, 1, 0, None)


def _parted(keys: Keys) -> tuple[Positions, Distances]:
    """Positions and distances of keys."""
    return keys & (1 << SHIFT) - 1, (keys >> SHIFT).astype(np.int32)
