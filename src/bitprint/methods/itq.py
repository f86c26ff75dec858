"""ITQ: rotated principal components with a small quantization error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.pca import (
    check_components,
    principal_components,
    random_rotation,
    scores,
)


@register_method
class ITQ(FeatureHasher):
    """Iterative quantization (Gong and Lazebnik, CVPR 2011).

    Minimizes ``||B - V R||_F^2`` over codes ``B`` in {-1, +1}^(N x K) and rotations ``R``, where
    ``V`` (N, K) contains the scores of the first K principal components. The method alternates two
    exact steps::

        B = sgn(V R)
        R = U W',   where  U S W' = V'B  is a singular value decomposition

    Parameters
    ----------
    bits : int
        K, at most the number of features.
    iterations : int
        Number of iterations of both steps; 0 keeps the random rotation (known as PCA-RR).
    seed : int
        Seed of the initial rotation.

    Attributes
    ----------
    mean_ : ndarray of float32, shape (d,)
    components_ : ndarray of float32, shape (d, K)
        Principal components. Columns are zero if the data vary in fewer directions than bits.
    rotation_ : ndarray of float64, shape (K, K)
    losses_ : ndarray of float64, shape (2 * iterations,)
        The objective after each step; it never increases.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((100, 16))
    >>> hasher = ITQ(bits=12).fit(features)
    >>> hasher.encode(features)
    Codes(100 x 12 bits)
    >>> bool(hasher.losses_[-1] < hasher.losses_[0])
    True
    """

    name = "itq"
    supervision = "none"
    reference = "Gong and Lazebnik, CVPR 2011"

    def __init__(self, bits: int, *, iterations: int = 50, seed: int = 0) -> None:
        self.bits = bits
        self.iterations = iterations
        self.seed = seed

    def check_width(self, width: int) -> None:
        """Raise a ValueError if there are fewer features than bits."""
        check_components(self.name, self.bits, width)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        if self.iterations < 0:
            raise ValueError(f"itq: iterations cannot be negative, got {self.iterations}")
        mean, components = principal_components(features, self.bits)
        self.mean_ = mean.astype(np.float32)
        self.components_ = components.astype(np.float32)
        self._rotate(scores(features, mean, components))

    def _rotate(self, V: NDArray[np.float64]) -> None:
        R = random_rotation(self.bits, self.seed)
        # ||B - V R||^2 = ||B||^2 + ||V||^2 - 2 tr(B'V R): only the trace depends on B and R.
        lengths = V.size + np.square(V).sum()
        losses = []
        B = np.empty_like(V)
        for _ in range(self.iterations):
            np.matmul(V, R, out=B)
            B += 0.0  # -0.0 becomes 0.0
            np.copysign(1.0, B, out=B)
            product = V.T @ B
            losses.append(lengths - 2 * float(np.vdot(product, R)))
            U, singular, Wt = np.linalg.svd(product)
            R = U @ Wt
            losses.append(lengths - 2 * singular.sum())
        self.rotation_ = R
        self.losses_ = np.array(losses)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        V = (features - self.mean_) @ self.components_
        rotated: NDArray = V @ self.rotation_.astype(np.float32)
        return rotated
