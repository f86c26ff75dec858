"""NumPy scan for small searches that finish faster than Numba can be imported.

A command that searches one small index never imports Numba.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from bitprint.utils.words import Words

_MOST = 1 << 22  # comparisons per process that take about as long as importing Numba
_QUERY = 1 << 10  # fixed cost of one query, in comparisons

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
