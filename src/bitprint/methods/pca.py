"""Principal components, which SH and ITQ start from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

_BLOCK = 4096


def principal_components(
    features: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and the first `count` directions of largest variance.

    Parameters
    ----------
    features : ndarray of float32, shape (N, d)
    count : int
        At most d.

    Returns
    -------
    mean : ndarray of float64, shape (d,)
    components : ndarray of float64, shape (d, count)
        Orthonormal columns, by falling variance; the largest entry by magnitude of each is
        positive. Where the data vary in fewer directions than `count`, the last columns are zero.

    Examples
    --------
    >>> mean, components = principal_components(np.array([[1, 3], [3, 3]], np.float32), 2)
    >>> mean.tolist(), components.tolist()
    ([2.0, 3.0], [[1.0, 0.0], [0.0, 0.0]])
    """
    mean = features.mean(axis=0, dtype=np.float64)
    samples, width = features.shape
    if samples < width:
        centred = features - mean
        variances, vectors = _largest(centred @ centred.T, min(count, samples))
        found = centred.T @ (vectors / np.sqrt(variances))
    else:
        scatter = np.zeros((width, width))
        for rows in _blocks(samples):
            centred = features[rows] - mean
            scatter += centred.T @ centred
        _, found = _largest(scatter, count)
    components = np.zeros((width, count))
    components[:, : found.shape[1]] = _fix_signs(found)
    return mean, components


def scores(
    features: NDArray[np.float32], mean: NDArray[np.float64], components: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Coordinates of the rows along the components, shape (N, count)."""
    outputs = np.empty((len(features), components.shape[1]))
    for rows in _blocks(len(features)):
        outputs[rows] = (features[rows] - mean) @ components
    return outputs


def _blocks(count: int) -> Iterator[slice]:
    """Slices of rows: float64 copies are made of one block at a time."""
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _largest(scatter: NDArray, count: int) -> tuple[NDArray, NDArray]:
    """Up to `count` largest eigenvalues, falling, and vectors, less those that are rounding."""
    size = len(scatter)
    values, vectors = eigh(scatter, subset_by_index=[size - count, size - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    real = values > max(values[0], 0) * size * np.finfo(np.float64).eps
    return values[real], vectors[:, real]


def _fix_signs(components: NDArray) -> NDArray:
    """Eigenvectors come with either sign; codes must not depend on which."""
    largest = np.abs(components).argmax(axis=0)
    signs = np.sign(components[largest, np.arange(components.shape[1])])
    fixed: NDArray = components * signs
    return fixed
