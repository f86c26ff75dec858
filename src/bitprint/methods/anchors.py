"""Kernel features shared by several methods: similarities to anchor rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


def choose_anchors(features: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Choose `count` training rows at random, or all of them if there are fewer.

    Parameters
    ----------
    features : ndarray, shape (N, d)
    count : int
    rng : Generator
    """
    if count < 1:
        raise ValueError(f"the number of anchors must be at least 1, got {count}")
    return features[rng.permutation(len(features))[:count]]


def squared_distances(rows: Floats, anchors: Floats) -> Floats:
    """Return squared Euclidean distances, shape (n, m), computed by one matrix product.

    Examples
    --------
    >>> squared_distances(np.array([[0.0, 3.0]]), np.array([[4.0, 0.0]])).tolist()
    [[25.0]]
    """
    product = rows @ anchors.T
    lengths = np.einsum("ij,ij->i", rows, rows)
    anchor_lengths = np.einsum("ij,ij->i", anchors, anchors)
    # Rounding can make a zero distance slightly negative.
    distances: Floats = np.maximum(lengths[:, None] + anchor_lengths[None, :] - 2 * product, 0)
    return distances


def rbf(rows: Floats, anchors: Floats, variance: float) -> Floats:
    """Return the Gaussian kernel ``exp(-||x - a||^2 / (2 variance))``, shape (n, m)."""
    similarities: Floats = np.exp(squared_distances(rows, anchors) / (-2 * variance))
    return similarities
