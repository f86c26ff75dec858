"""NumPy scan for small searches that finish faster than Numba can be imported.

A command that searches one small index never imports Numba.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from bitprint.search.projections import rounded, to_scores
from bitprint.utils.words import Words

_MOST = 1 << 22  # comparisons per process that take about as long as importing Numba
_QUERY = 1 << 10  # fixed cost of one query, in comparisons
_CODES = 4096  # codes whose signs are in memory at a time

_done = 0


def suffices(queries: int, count: int) -> bool:
    """Return whether this scan is cheaper than importing the compiled scans.

    Parameters
    ----------
    queries, count : int
        The numbers of queries and codes. Their cost is added to that of earlier calls.
    """
    global _done
    if "bitprint.search.kernels" in sys.modules:
        return False
    _done += queries * (count + _QUERY)
    return _done <= _MOST


def nearest(
    queries: Words, planes: Words, count: int, k: int, alive: NDArray[np.uint8] | None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Find the k nearest codes of each query.

    Parameters and return values are those of `flat.nearest`.

    Examples
    --------
    >>> from bitprint.utils.words import as_planes, as_words
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> positions, distances = nearest(as_words(packed[:1]), as_planes(packed), 4, 3, None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    """
    codes = planes[:, :count]
    candidates = np.arange(count) if alive is None else np.flatnonzero(alive)
    positions = np.full((len(queries), k), -1, np.int64)
    distances = np.full((len(queries), k), -1, np.int32)
    for row, query in enumerate(queries):
        ones = np.bitwise_count(codes ^ query[:, None])
        away = ones.sum(axis=0, dtype=np.uint16)[candidates]
        nearest_first = np.argsort(away, kind="stable")[:k]
        found = len(nearest_first)
        positions[row, :found] = candidates[nearest_first]
        distances[row, :found] = away[nearest_first]
    return positions, distances


def nearest_projected(
    projections: NDArray[np.float32],
    planes: Words,
    count: int,
    k: int,
    alive: NDArray[np.uint8] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the k codes with the largest inner product with each query.

    Parameters and return values are those of `bitprint.search.projected.nearest_projected`.

    Examples
    --------
    >>> from bitprint.utils.words import as_planes
    >>> packed = np.packbits([[1, 1, 0], [0, 1, 1], [1, 0, 0]], axis=1)
    >>> query = np.array([[0.5, -2.0, 0.25]], np.float32)
    >>> positions, scores = nearest_projected(query, as_planes(packed), 3, 2, None)
    >>> positions.tolist(), scores.tolist()
    ([[2, 0]], [[2.25, -1.75]])
    """
    values = rounded(projections)
    candidates = np.arange(count) if alive is None else np.flatnonzero(alive)
    totals = np.empty((len(values), len(candidates)))
    for start in range(0, len(candidates) if len(values) else 0, _CODES):
        span = slice(start, start + _CODES)
        packed = np.ascontiguousarray(planes[:, candidates[span]].T).view(np.uint8)
        ones = np.unpackbits(packed, axis=1, count=values.shape[1])
        totals[:, span] = values @ (2.0 * ones - 1).T
    positions = np.full((len(values), k), -1, np.int64)
    scores = np.full((len(values), k), -np.inf)
    for row, total in enumerate(totals):
        best_first = np.argsort(-total, kind="stable")[:k]
        positions[row, : len(best_first)] = candidates[best_first]
        scores[row, : len(best_first)] = total[best_first]
    return positions, to_scores(scores)
