"""Exact Hamming search by scanning all codes, on every core.

Codes are 64-bit words: those of the queries row by row, (Q, W), those of the database plane by
plane, (W, N), so that the inner loops run along the database.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.parallel import on_every_core, thread_count
from bitprint.search.kernels import count_within, place_within, scan_nearest
from bitprint.words import Words

_QUERIES = 128  # queries that share one pass over the database
_FEW = 32  # queries per core below which a pass is bound by memory: then the database is split
_SMALL = 1 << 22  # comparisons that take less time than starting threads


def nearest(
    queries: Words, planes: Words, count: int, k: int, alive: NDArray[np.uint8] | None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Find the k nearest codes of each query.

    Parameters
    ----------
    queries : ndarray of uint64, shape (Q, W)
        As `bitprint.words.as_words` gives them.
    planes : ndarray of uint64, shape (W, capacity)
        The database, as `as_planes` gives it; its first `count` columns are codes.
    count : int
        How many codes there are.
    k : int
        How many neighbours to find, at least 1.
    alive : ndarray of uint8, shape (count,), or None
        Codes marked 0 are passed over; None where every code counts.

    Returns
    -------
    positions : ndarray of int64, shape (Q, k)
        Ordered by distance, then by position; -1 where there are fewer than k codes.
    distances : ndarray of int32, shape (Q, k)
        Likewise.

    Examples
    --------
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> from bitprint.words import as_planes, as_words
    >>> positions, distances = nearest(as_words(packed[:1]), as_planes(packed), 4, 3, None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    queries, planes, marks = check_arrays(queries, planes, count, alive)
    cores = thread_count()

    def scan(rows: slice, codes: slice) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        return scan_nearest(queries[rows], planes, marks, codes.start, codes.stop, k)

    everyone, everything = slice(0, len(queries)), slice(0, count)
    if len(queries) * count <= _SMALL:
        return scan(everyone, everything)
    if len(queries) < _FEW * cores:
        return _merge(on_every_core(lambda codes: scan(everyone, codes), count, count), k)
    parts = on_every_core(lambda rows: scan(rows, everything), len(queries), _QUERIES)
    positions, distances = zip(*parts, strict=True)
    return np.concatenate(positions), np.concatenate(distances)


def within(
    queries: Words, planes: Words, count: int, radius: int, alive: NDArray[np.uint8] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Find every code at most `radius` away from each query.

    One scan counts the matches by distance, which says where each of them belongs; a second scan
    puts them there. `queries`, `planes`, `count` and `alive` are those of `nearest`.

    Returns
    -------
    offsets : ndarray of int64, shape (Q + 1,)
        The matches of query q are those from offsets[q] to offsets[q + 1].
    positions : ndarray of int64, shape (matches,)
        For each query ordered by distance, then by position.
    distances : ndarray of int32, shape (matches,)
        Likewise.

    Examples
    --------
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> from bitprint.words import as_planes, as_words
    >>> offsets, positions, distances = within(as_words(packed[1:3]), as_planes(packed), 4, 1, None)
    >>> offsets.tolist(), positions.tolist(), distances.tolist()
    ([0, 3, 6], [1, 3, 2, 2, 1, 3], [0, 0, 1, 0, 1, 1])
    """
    if radius < 0:
        raise ValueError(f"radius must be at least 0, got {radius}")
    queries, planes, marks = check_arrays(queries, planes, count, alive)
    radius = min(radius, 64 * len(planes))

    def tally(codes: slice) -> tuple[slice, NDArray[np.int64]]:
        return codes, count_within(queries, planes, marks, codes.start, codes.stop, radius)

    small = len(queries) * count <= _SMALL
    parts = [tally(slice(0, count))] if small else on_every_core(tally, count, count)
    counts = np.stack([tallied for _, tallied in parts], axis=2)  # (Q, radius + 1, parts)
    ends = np.cumsum(counts.ravel()).reshape(counts.shape)
    cursors = np.ascontiguousarray(np.moveaxis(ends - counts, 2, 0))
    offsets = np.concatenate([[0], ends[:, -1, -1]])
    positions = np.empty(offsets[-1], np.int64)
    distances = np.empty(offsets[-1], np.int32)

    def place(chosen: slice) -> None:
        for part in range(chosen.start, chosen.stop):
            codes = parts[part][0]
            place_within(
                queries,
                planes,
                marks,
                codes.start,
                codes.stop,
                cursors[part],
                positions,
                distances,
            )

    on_every_core(place, len(parts), 1)
    return offsets, positions, distances


def warm_up() -> None:
    """Compile the scans, or load them from the disk cache, so that no later search has to."""
    word = np.zeros((1, 1), np.uint64)
    nearest(word, word, 1, 1, None)
    within(word, word, 1, 0, None)


def check_arrays(
    queries: Words, planes: Words, count: int, alive: NDArray[np.uint8] | None
) -> tuple[Words, Words, NDArray[np.uint8]]:
    """Return queries, planes and marks as compiled loops take them, or raise a ValueError.

    Those check no index, and whether an array may be written is a type to them.
    """
    marks = np.empty(0, np.uint8) if alive is None else alive
    if queries.shape[1] != len(planes):
        raise ValueError(
            f"queries of {queries.shape[1]} words do not compare with codes of {len(planes)}"
        )
    if not 0 <= count <= planes.shape[1] or (alive is not None and len(alive) != count):
        raise ValueError(
            f"{count} codes were announced, but there are {planes.shape[1]} columns of codes "
            f"and {len(marks)} marks"
        )
    return _frozen(queries), _frozen(planes), _frozen(marks)


def _frozen(array: NDArray) -> NDArray:
    """Return a contiguous, read-only view (a copy only where it is not contiguous)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _merge(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int32]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Nearest codes of the whole database from those of its successive parts."""
    positions = np.concatenate([found for found, _ in parts], axis=1)
    distances = np.concatenate([found for _, found in parts], axis=1)
    keys = distances.view(np.uint32)  # -1, where a part had too few codes, comes last
    order = np.argsort(keys, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(positions, order, 1), np.take_along_axis(distances, order, 1)
