"""Vectors for the tests of this folder."""

import numpy as np


def clustered(count, width, seed=0):
    """Return vectors around 20 centers, not centered at zero and of different lengths."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(20, width))
    vectors = centers[rng.integers(0, 20, count)] + 0.5 * rng.normal(size=(count, width)) + 0.3
    return (vectors * rng.uniform(0.5, 2, (count, 1))).astype(np.float32)


def similarity(metric, queries, vectors):
    """Similarities (Q, N) in float64, written out."""
    queries, vectors = queries.astype(np.float64), vectors.astype(np.float64)
    if metric == "l2":
        return -np.square(queries[:, None] - vectors[None]).sum(axis=2)
    products = queries @ vectors.T
    if metric == "cosine":
        products /= np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors, axis=1)
    return products
