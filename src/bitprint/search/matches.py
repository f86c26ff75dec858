"""Search results of all index back-ends."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Matches(NamedTuple):
    """Nearest codes of each query, ordered by distance, then by insertion.

    If fewer than k codes are found, the remaining distances are -1 and the remaining ids are -1,
    or None for string ids.

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


class ScoredMatches(NamedTuple):
    """Codes with the largest inner products with each query, ordered by score, then by insertion.

    If fewer than k codes are found, the remaining scores are minus infinity and the remaining ids
    are -1, or None for string ids.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=3) as index:
    ...         index.add(["a", "b"], [[1, 1, 1], [1, 1, -1]])
    ...         matches = index.search(projections=[[0.5, 2.0, -1.0]], k=3)
    >>> matches.ids.tolist(), matches.scores.tolist()
    ([['b', 'a', None]], [[3.5, 1.5, -inf]])
    """

    ids: NDArray[Any]
    """Shape (Q, k): int64, or strings."""
    scores: NDArray[np.float32]
    """Shape (Q, k)."""


class MatchesWithin(NamedTuple):
    """All codes within the radius of each query, ordered by distance, then by insertion.

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
    """One array per query, of the same lengths as `ids`."""


def split_matches(
    offsets: NDArray[np.int64], ids: NDArray[Any], distances: NDArray[np.int32]
) -> MatchesWithin:
    """Split concatenated matches by query.

    Parameters
    ----------
    offsets : ndarray of int64, shape (Q + 1,)
        Query q has the matches from offsets[q] up to offsets[q + 1].
    ids, distances : ndarray, shape (matches,)
        The matches of all queries, one query after the other.

    Examples
    --------
    >>> ids, distances = split_matches(np.array([0, 2, 2]), np.array([7, 8]), np.array([0, 1]))
    >>> [found.tolist() for found in ids], [found.tolist() for found in distances]
    ([[7, 8], []], [[0, 1], []])
    """
    spans = [slice(*span) for span in pairwise(offsets.tolist())]
    return MatchesWithin([ids[span] for span in spans], [distances[span] for span in spans])
