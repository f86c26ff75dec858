"""Hashing in a kernel space spanned by a few training rows, for KLSH and NMLSH."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods.anchors import choose_anchors, rbf

Floats = NDArray[np.float64]
Kernel = Callable[[Floats, Floats], Floats]

_BLOCK = 4096


class LandmarkHasher(FeatureHasher):
    """Base class of methods whose bits are weighted sums of similarities to p landmarks.

    Parameters
    ----------
    bits : int
        K.
    kernel : str or callable
        A name in `kernels`, or a function ``kernel(rows, landmarks)`` of (n, d) and (p, d)
        float64 arrays that returns symmetric similarities (n, p). A model with a function cannot
        be saved.
    landmarks : int
        p, the number of training rows drawn as landmarks; at most all rows.
    variance : float, optional
        Scale of "rbf" and "sigmoid"; by default the mean squared distance between landmarks.
    seed : int
        Seed of the landmarks and hash functions.
    """

    group = "data-independent"
    supervision = "none"
    kernels: ClassVar[tuple[str, ...]] = ("rbf", "linear")

    def __init__(
        self,
        bits: int,
        *,
        kernel: str | Kernel = "rbf",
        landmarks: int = 300,
        variance: float | None = None,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.kernel = kernel
        self.landmarks = landmarks
        self.variance = variance
        self.seed = seed

    def save(self, folder: str | os.PathLike[str], **about: Any) -> None:
        """Write the model; raise a ValueError if its kernel is a function."""
        if callable(self.kernel):
            raise ValueError(
                f"{self.name}: a model whose kernel is a function cannot be saved; "
                f"use one of {', '.join(self.kernels)}"
            )
        super().save(folder, **about)

    def _fit_landmarks(
        self, features: NDArray[np.float32], tolerance: float, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Draw the landmarks and decompose their centered kernel matrix.

        Return its eigenvalues (r,) and eigenvectors (p, r), without eigenvalues whose magnitude
        is at most `tolerance` times the largest. Each eigenvector sums to zero, and so do weights
        computed from them. The similarities of a row are therefore centered by subtracting
        `kernel_mean_`.
        """
        self._check_options()
        self.landmarks_ = choose_anchors(features, self.landmarks, rng)
        rows = self.landmarks_.astype(np.float64)
        # The mean squared distance of all pairs is twice the mean squared distance to the mean.
        spread = 2 * float(np.square(rows - rows.mean(axis=0)).sum(axis=1).mean())
        self.variance_ = (spread or 1.0) if self.variance is None else float(self.variance)

        gram = self._similarities(rows)
        if not np.allclose(gram, gram.T):
            raise ValueError(f"{self.name}: kernel(x, y) must equal kernel(y, x)")
        self.kernel_mean_ = gram.mean(axis=0)
        centered = gram - self.kernel_mean_ - self.kernel_mean_[:, None] + gram.mean()
        values, vectors = np.linalg.eigh(centered)
        rounding = len(gram) * np.finfo(np.float64).eps * np.abs(gram).max()
        kept = np.abs(values) > max(tolerance * np.abs(values).max(), rounding)
        # For small eigenvalues the sum is only approximately zero; weights would amplify it.
        vectors = vectors - vectors.mean(axis=0)
        return values[kept], vectors[:, kept]

    def _weighted_similarities(self, features: NDArray[np.float32], weights: Floats) -> Floats:
        """Return the centered similarities (n, p) times `weights` (p, K), computed in blocks."""
        outputs = np.empty((len(features), weights.shape[1]))
        for start in range(0, len(features), _BLOCK):
            rows = slice(start, start + _BLOCK)
            similarities = self._similarities(features[rows].astype(np.float64))
            outputs[rows] = (similarities - self.kernel_mean_) @ weights
        return outputs

    def _similarities(self, rows: Floats) -> Floats:
        landmarks = self.landmarks_.astype(np.float64)
        if callable(self.kernel):
            values = np.asarray(self.kernel(rows, landmarks), np.float64)
            if values.shape != (len(rows), len(landmarks)) or not np.isfinite(values).all():
                raise ValueError(
                    f"{self.name}: kernel(rows, landmarks) must return finite numbers of shape "
                    f"{(len(rows), len(landmarks))}, got shape {values.shape}"
                )
            return values
        # Relative to the mean, since "sigmoid" saturates far from the origin.
        origin = landmarks.mean(axis=0)
        rows, landmarks = rows - origin, landmarks - origin
        if self.kernel == "rbf":
            return rbf(rows, landmarks, self.variance_).astype(np.float64, copy=False)
        products: Floats = rows @ landmarks.T
        return np.tanh(products / self.variance_) if self.kernel == "sigmoid" else products

    def _check_options(self) -> None:
        if not callable(self.kernel) and self.kernel not in self.kernels:
            raise ValueError(
                f"{self.name}: kernel must be {', '.join(self.kernels)} or a function, "
                f"got {self.kernel!r}"
            )
        if self.variance is not None and not 0 < self.variance < np.inf:
            raise ValueError(f"{self.name}: variance must be positive, got {self.variance}")
