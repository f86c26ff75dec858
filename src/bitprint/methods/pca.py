"""Principal components, used by SH, ITQ, PCAH, PCA-RR and OPH."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

_BLOCK = 4096


def principal_components(
    features: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the first `count` principal components.

    Parameters
    ----------
    features : ndarray of float32, shape (N, d)
    count : int
        At most d.

    Returns
    -------
    mean : ndarray of float64, shape (d,)
    components : ndarray of float64, shape (d, count)
        Orthonormal columns in the order of decreasing variance. The entry with the largest
        magnitude in each column is positive. If the data vary in fewer than `count` directions,
        the last columns are zero.

    Examples
    --------
    >>> mean, components = principal_components(np.array([[1, 3], [3, 3]], np.float32), 2)
    >>> mean.tolist(), components.tolist()
    ([2.0, 3.0], [[1.0, 0.0], [0.0, 0.0]])
    """
    mean = features.mean(axis=0, dtype=np.float64)
    samples, width = features.shape
    if samples < width:
        centered = features - mean
        variances, vectors = _largest(centered @ centered.T, min(count, samples))
        found = centered.T @ (vectors / np.sqrt(variances))
    else:
        scatter = np.zeros((width, width))
        for rows in _blocks(samples):
            centered = features[rows] - mean
            scatter += centered.T @ centered
        _, found = _largest(scatter, count)
    components = np.zeros((width, count))
    components[:, : found.shape[1]] = _fix_signs(found)
    return mean, components


def scores(
    features: NDArray[np.float32], mean: NDArray[np.float64], components: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the coordinates of the rows along the components, shape (N, count)."""
    outputs = np.empty((len(features), components.shape[1]))
    for rows in _blocks(len(features)):
        outputs[rows] = (features[rows] - mean) @ components
    return outputs


def random_rotation(size: int, seed: int) -> NDArray[np.float64]:
    """Return a random orthogonal matrix, shape (size, size).

    Examples
    --------
    >>> rotation = random_rotation(3, seed=0)
    >>> bool(np.allclose(rotation.T @ rotation, np.eye(3)))
    True
    """
    rng = np.random.default_rng(seed)
    rotation: NDArray = np.linalg.qr(rng.standard_normal((size, size))).Q
    return rotation


def check_components(name: str, bits: int, width: int) -> None:
    """Raise a ValueError if features of this width have fewer components than bits."""
    if bits > width:
        raise ValueError(
            f"{name}: bits must be at most the number of features, got {bits} bits for "
            f"{width} feature(s); use fewer bits or longer features"
        )


def _blocks(count: int) -> Iterator[slice]:
    """Yield slices of rows, so that only one block is copied to float64 at a time."""
    return (slice(start, start + _BLOCK) for start in range(0, count, _BLOCK))


def _largest(scatter: NDArray, count: int) -> tuple[NDArray, NDArray]:
    """Return up to `count` largest eigenvalues, descending, with vectors, without rounding ones."""
    size = len(scatter)
    values, vectors = eigh(scatter, subset_by_index=[size - count, size - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    real = values > max(values[0], 0) * size * np.finfo(np.float64).eps
    return values[real], vectors[:, real]


def _fix_signs(components: NDArray) -> NDArray:
    """Make the largest entry of each column positive, since eigenvectors have arbitrary signs."""
    largest = np.abs(components).argmax(axis=0)
    signs = np.sign(components[largest, np.arange(components.shape[1])])
    fixed: NDArray = components * signs
    return fixed
