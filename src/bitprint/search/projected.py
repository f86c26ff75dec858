"""Exact search with real-valued queries, by a scan of all codes on all cores.

The score of a code, a vector of -1 and +1, is its inner product with the projections of the query.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.search.flat import check_arrays
from bitprint.search.projected_kernels import PLANES, scan_projected
from bitprint.search.projections import check_projections, fixed_point, to_scores
from bitprint.utils.parallel import on_every_core, thread_count
from bitprint.utils.words import Words, as_words

_QUERIES = 128  # queries per pass over the database
_FEW = 32  # with fewer queries per core, a scan is memory-bound and the database is split instead
_SMALL = 1 << 20  # fewer comparisons take less time than starting threads
_RANGES = np.linspace(0.3, 1.0, 8)  # tried for the highest level, as parts of the largest magnitude
_ROUNDING = 1e-6  # added to the slack, far above the rounding errors of its computation


def nearest_projected(
    projections: NDArray[np.float32],
    planes: Words,
    count: int,
    k: int,
    alive: NDArray[np.uint8] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find the k codes with the largest inner product with each query.

    Parameters
    ----------
    projections : ndarray of float32, shape (Q, K)
        The real-valued queries.
    planes : ndarray of uint64, shape (W, capacity)
        The database, as returned by `bitprint.utils.words.as_planes`; the first `count` columns
        are codes.
    count : int
        Number of codes.
    k : int
        Number of codes to find per query, an integer >= 1.
    alive : ndarray of uint8, shape (count,), or None
        Codes with a 0 are skipped; None searches all codes.

    Returns
    -------
    positions : ndarray of int64, shape (Q, k)
        Ordered by score, the largest first, then by position; padded with -1 if there are fewer
        than k codes. Scores are compared in float64, after rounding by
        `bitprint.search.projections.rounded`.
    scores : ndarray of float32, shape (Q, k)
        The inner products at these positions, padded with minus infinity.

    Examples
    --------
    >>> from bitprint.utils.words import as_planes
    >>> packed = np.packbits([[1, 1, 0], [0, 1, 1], [1, 0, 0]], axis=1)
    >>> query = np.array([[0.5, -2.0, 0.25]], np.float32)
    >>> positions, scores = nearest_projected(query, as_planes(packed), 3, 2, None)
    >>> positions.tolist(), scores.tolist()
    ([[2, 0]], [[2.25, -1.75]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if projections.ndim != 2:
        raise ValueError(f"projections must have shape (Q, K), got {projections.shape}")
    values, units = fixed_point(check_projections(projections, projections.shape[1]))
    signs, planes, marks = check_arrays(
        as_words(np.packbits(values >= 0, axis=1)), planes, count, alive
    )
    magnitudes = np.abs(values)
    levels, steps, slacks = quantize(magnitudes)
    ordered, levels = _by_bit_of_word(magnitudes), _by_bit_of_word(levels)
    cores = thread_count()

    def scan(rows: slice, codes: slice) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return scan_projected(
            signs[rows],
            ordered[rows],
            levels[rows],
            steps[rows],
            slacks[rows],
            planes,
            marks,
            codes.start,
            codes.stop,
            k,
        )

    all_queries, all_codes = slice(0, len(values)), slice(0, count)
    if len(values) * count <= _SMALL:
        positions, costs = scan(all_queries, all_codes)
    elif len(values) < _FEW * cores:
        parts = on_every_core(lambda codes: scan(all_queries, codes), count, count)
        positions, costs = _merge(parts, k)
    else:
        parts = on_every_core(lambda rows: scan(rows, all_codes), len(values), _QUERIES)
        positions = np.concatenate([found for found, _ in parts])
        costs = np.concatenate([found for _, found in parts])
    scores = (magnitudes.sum(axis=1, keepdims=True) - 2 * np.where(positions < 0, 0, costs)) * units
    return positions, to_scores(np.where(positions < 0, -np.inf, scores))


def warm_up() -> None:
    """Compile the scan, or load it from the disk cache, before the first search."""
    nearest_projected(np.zeros((1, 1), np.float32), np.zeros((1, 1), np.uint64), 1, 1, None)


def quantize(
    magnitudes: NDArray[np.int64],
) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
    """Return levels, steps and slacks for `scan_projected`.

    The level c of a magnitude a is at most 2^PLANES - 1. The slack is the sum of all c - a / step
    that are positive, so that it bounds how far an integer cost exceeds a cost. A shorter range of
    levels has smaller steps, but more magnitudes are above the range. The range is the one with the
    smallest sum of absolute differences.
    """
    highest = 2**PLANES - 1
    largest = np.maximum(magnitudes.max(axis=1, initial=0), 1) / highest
    least = np.full(len(magnitudes), np.inf)
    steps = largest
    for part in _RANGES:
        scaled = magnitudes / (part * largest)[:, None]
        errors = part * np.abs(scaled - np.minimum(np.rint(scaled), highest)).sum(axis=1)
        steps = np.where(errors < least, part * largest, steps)
        least = np.minimum(errors, least)
    scaled = magnitudes / steps[:, None]
    levels = np.minimum(np.rint(scaled), highest).astype(np.uint8)
    slacks = np.maximum(levels - scaled, 0).sum(axis=1) + _ROUNDING
    return levels, steps, slacks


def _by_bit_of_word(values: NDArray[Any]) -> NDArray[Any]:
    """Reorder (Q, K) values from the order of bits in bytes to that of bits in words."""
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % 64)))
    bytewise = padded.reshape(len(values), padded.shape[1] // 8, 8)
    return np.ascontiguousarray(bytewise[:, :, ::-1]).reshape(padded.shape)


def _merge(
    parts: list[tuple[NDArray[np.int64], NDArray[np.int64]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Merge the best codes of successive parts of the database."""
    positions = np.concatenate([found for found, _ in parts], axis=1)
    costs = np.concatenate([found for _, found in parts], axis=1)
    order = np.argsort(costs, axis=1, kind="stable")[:, :k]  # padding sorts last
    return np.take_along_axis(positions, order, 1), np.take_along_axis(costs, order, 1)
