"""Matches and MatchesWithin: what a search of any index finds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Matches(NamedTuple):
    """The nearest codes of each query, nearest first, ties in insertion order.

    Where fewer than k codes were found, the distance is -1, and the id is -1 or, in an index of
    strings, None.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, -1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(["a", "b"], codes)
    ...         matches = index.search(codes[:1], k=3)
    >>> matches.ids.tolist(), matches.distances.tolist()
    ([['a', 'b', None]], [[0, 2, -1]])
    """

    ids: NDArray[Any]
    """Shape (Q, k): int64, or strings."""
    distances: NDArray[np.int32]
    """Shape (Q, k)."""


class MatchesWithin(NamedTuple):
    """Every code within the radius of each query, nearest first, ties in insertion order.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(["a", "b", "c"], codes)
    ...         matches = index.within(codes[1:], radius=1)
    >>> for ids, distances in zip(*matches):
    ...     print(ids, distances)
    ['b' 'a'] [0 1]
    ['c'] [0]
    """

    ids: list[NDArray[Any]]
    """One array per query: int64, or strings."""
    distances: list[NDArray[np.int32]]
    """One array per query, of the same lengths."""


def split_matches(
    offsets: NDArray[np.int64], ids: NDArray[Any], distances: NDArray[np.int32]
) -> MatchesWithin:
    """Give each of Q queries its part of all matches.

    Parameters
    ----------
    offsets : ndarray of int64, shape (Q + 1,)
        The matches of query q are those from offsets[q] to offsets[q + 1].
    ids, distances : ndarray, shape (matches,)

    Examples
    --------
    >>> ids, distances = split_matches(np.array([0, 2, 2]), np.array([7, 8]), np.array([0, 1]))
    >>> [found.tolist() for found in ids], [found.tolist() for found in distances]
    ([[7, 8], []], [[0, 1], []])
    """
    spans = [slice(*span) for span in pairwise(offsets.tolist())]
    return MatchesWithin([ids[span] for span in spans], [distances[span] for span in spans])
