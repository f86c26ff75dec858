"""Exact Hamming search by a scan of all codes on all cores.

Codes are 64-bit words. Queries are stored row by row, (Q, W), the database plane by plane, (W, N),
so that the inner loops run along the database.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.search.kernels import (
    MOST_QUERIES,
    collect_within,
    place_within,
    scan_nearest,
    scan_within,
)
from bitprint.utils.parallel import on_every_core, thread_count
from bitprint.utils.words import Words

_QUERIES = 128  # queries per pass over the database
_FEW = 32  # with fewer queries per core, a scan is memory-bound and the database is split instead
_SMALL = 1 << 22  # fewer comparisons take less time than starting threads
_NO_MARKS = np.empty(0, np.uint8)


def nearest(
    queries: Words, planes: Words, count: int, k: int, alive: NDArray[np.uint8] | None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Find the k nearest codes of each query.

    Parameters
    ----------
    queries : ndarray of uint64, shape (Q, W)
        The queries, as returned by `bitprint.utils.words.as_words`.
    planes : ndarray of uint64, shape (W, capacity)
        The database, as returned by `as_planes`; the first `count` columns are codes.
    count : int
        Number of codes.
    k : int
        Number of neighbors to find, an integer >= 1.
    alive : ndarray of uint8, shape (count,), or None
        Codes with a 0 are skipped; None searches all codes.

    Returns
    -------
    positions : ndarray of int64, shape (Q, k)
        Ordered by distance, then by position; padded with -1 if there are fewer than k codes.
    distances : ndarray of int32, shape (Q, k)
        The distances at these positions, padded with -1.

    Examples
    --------
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> from bitprint.utils.words import as_planes, as_words
    >>> positions, distances = nearest(as_words(packed[:1]), as_planes(packed), 4, 3, None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    queries, planes, marks = check_arrays(queries, planes, count, alive)
    positions = np.empty((len(queries), k), np.int64)
    distances = np.empty((len(queries), k), np.int32)

    def scan(rows: slice) -> None:
        found = positions[rows], distances[rows]
        scan_nearest(queries[rows], planes, marks, 0, count, k, *found)

    def scan_part(codes: slice) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        found = np.empty_like(positions), np.empty_like(distances)
        scan_nearest(queries, planes, marks, codes.start, codes.stop, k, *found)
        return found

    if len(queries) * count <= _SMALL:
        scan_nearest(queries, planes, marks, 0, count, k, positions, distances)
    elif (cores := thread_count()) > 1 and len(queries) < _FEW * cores:
        return _merge(on_every_core(scan_part, count, count), k)
    else:
        on_every_core(scan, len(queries), _QUERIES)
    return positions, distances


def within(
    queries: Words, planes: Words, count: int, radius: int, alive: NDArray[np.uint8] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Find all codes within Hamming distance `radius` of each query.

    A scan stores the matches and counts them by distance, which gives the output offset of each
    match. `queries`, `planes`, `count` and `alive` are those of `nearest`.

    Returns
    -------
    offsets : ndarray of int64, shape (Q + 1,)
        Query q has the matches from offsets[q] up to offsets[q + 1].
    positions : ndarray of int64, shape (matches,)
        For each query ordered by distance, then by position.
    distances : ndarray of int32, shape (matches,)
        The distances of the matches.

    Examples
    --------
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> from bitprint.utils.words import as_planes, as_words
    >>> offsets, positions, distances = within(as_words(packed[1:3]), as_planes(packed), 4, 1, None)
    >>> offsets.tolist(), positions.tolist(), distances.tolist()
    ([0, 3, 6], [1, 3, 2, 2, 1, 3], [0, 0, 1, 0, 1, 1])
    """
    if radius < 0:
        raise ValueError(f"radius must be at least 0, got {radius}")
    queries, planes, marks = check_arrays(queries, planes, count, alive)
    radius = min(radius, 64 * len(planes))
    if len(queries) <= MOST_QUERIES:
        return _within(queries, planes, marks, count, radius)
    parts = [
        _within(queries[first : first + MOST_QUERIES], planes, marks, count, radius)
        for first in range(0, len(queries), MOST_QUERIES)
    ]
    offsets, positions, distances = zip(*parts, strict=True)
    sizes = np.concatenate([np.diff(ends) for ends in offsets])
    return np.cumsum([0, *sizes]), np.concatenate(positions), np.concatenate(distances)


def _within(
    queries: Words, planes: Words, marks: NDArray[np.uint8], count: int, radius: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """Find the codes of at most `MOST_QUERIES` queries."""
    if len(queries) * count <= _SMALL or thread_count() == 1:
        return scan_within(queries, planes, marks, 0, count, radius)

    def collect(codes: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return collect_within(queries, planes, marks, codes.start, codes.stop, radius)

    keys, counted = zip(*on_every_core(collect, count, count), strict=True)
    counts = np.stack(counted, axis=2)  # (Q, radius + 1, parts)
    ends = np.cumsum(counts.ravel()).reshape(counts.shape)
    cursors = np.ascontiguousarray(np.moveaxis(ends - counts, 2, 0))
    offsets = np.concatenate([[0], ends[:, -1, -1]])
    positions = np.empty(offsets[-1], np.int64)
    distances = np.empty(offsets[-1], np.int32)

    def place(parts: slice) -> None:
        for part in range(parts.start, parts.stop):
            place_within(keys[part], cursors[part], positions, distances)

    on_every_core(place, len(keys), 1)
    return offsets, positions, distances


def warm_up() -> None:
    """Compile the scans, or load them from the disk cache, before the first search."""
    word = np.zeros((1, 1), np.uint64)
    nearest(word, word, 1, 1, None)
    within(word, word, 1, 0, None)
    queries, planes, marks = check_arrays(word, word, 1, None)
    keys, counts = collect_within(queries, planes, marks, 0, 1, 0)
    place_within(keys, counts - 1, np.empty(1, np.int64), np.empty(1, np.int32))


def check_arrays(
    queries: Words, planes: Words, count: int, alive: NDArray[np.uint8] | None
) -> tuple[Words, Words, NDArray[np.uint8]]:
    """Return queries, planes and marks as read-only arrays, or raise ValueError.

    The compiled loops do not check bounds, and Numba compiles them again for writeable arrays.
    """
    marks = _NO_MARKS if alive is None else alive
    if queries.shape[1] != len(planes):
        raise ValueError(
            f"queries have {queries.shape[1]} words, but codes have {len(planes)} words"
        )
    if not 0 <= count <= planes.shape[1] or (alive is not None and len(alive) != count):
        raise ValueError(
            f"count is {count}, but there are {planes.shape[1]} columns of codes and "
            f"{len(marks)} marks"
        )
    return _frozen(queries), _frozen(planes), _frozen(marks)


def _frozen(array: NDArray) -> NDArray:
    """Return a contiguous, read-only view; copy the array only if it is not contiguous."""
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def _merge(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int32]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Merge the nearest codes of successive parts of the database."""
    positions = np.concatenate([found for found, _ in parts], axis=1)
    distances = np.concatenate([found for _, found in parts], axis=1)
    keys = distances.view(np.uint32)  # padding (-1) sorts last
    order = np.argsort(keys, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(positions, order, 1), np.take_along_axis(distances, order, 1)
