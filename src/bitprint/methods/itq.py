"""ITQ: principal components, rotated towards the corners of a cube."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods.pca import principal_components, scores


class ITQ(FeatureHasher):
    """Iterative quantisation (Gong and Lazebnik, CVPR 2011).

    ``min ||B - V R||_F^2`` over codes ``B`` in {-1, +1}^(N x K) and rotations ``R``, where ``V``
    (N, K) are the scores of the first K principal components. Alternates the two exact steps::

        B = sgn(V R)
        R = U W',   where  U S W' = V'B  is a singular value decomposition

    Parameters
    ----------
    bits : int
        K, at most the number of features.
    iterations : int
        How often both steps are taken; 0 keeps the random rotation (known as PCA-RR).
    seed : int
        Seed of the first rotation.

    Attributes
    ----------
    mean_ : ndarray of float32, shape (d,)
    components_ : ndarray of float32, shape (d, K)
        Principal components; zero columns where the data have fewer directions than bits.
    rotation_ : ndarray of float64, shape (K, K)
    losses_ : ndarray of float64, shape (2 * iterations,)
        The objective after each step, which never rises.

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
        """Raise a ValueError unless features are at least as many as bits."""
        if self.bits > width:
            raise ValueError(
                f"itq makes at most as many bits as there are features, {width} feature(s), "
                f"and bits is {self.bits}; give fewer bits or longer features"
            )

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        if self.iterations < 0:
            raise ValueError(f"itq: iterations cannot be negative, got {self.iterations}")
        mean, components = principal_components(features, self.bits)
        self.mean_ = mean.astype(np.float32)
        self.components_ = components.astype(np.float32)
        self._rotate(scores(features, mean, components))

    def _rotate(self, V: NDArray[np.float64]) -> None:
        rng = np.random.default_rng(self.seed)
        R = np.linalg.qr(rng.standard_normal((self.bits, self.bits))).Q
        # ||B - V R||^2 = ||B||^2 + ||V||^2 - 2 tr(B'V R): only the trace changes.
        lengths = V.size + np.square(V).sum()
        losses = []
        for _ in range(self.iterations):
            rotated = V @ R
            losses.append(lengths - 2 * np.abs(rotated).sum())
            B = np.where(rotated >= 0, 1.0, -1.0)
            U, singular, Wt = np.linalg.svd(V.T @ B)
            R = U @ Wt
            losses.append(lengths - 2 * singular.sum())
        self.rotation_ = R
        self.losses_ = np.array(losses)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        V = (features - self.mean_) @ self.components_
        rotated: NDArray = V @ self.rotation_.astype(np.float32)
        return rotated
