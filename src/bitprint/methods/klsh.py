"""KLSH: random hyperplanes in a kernel space."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._registry import register_method
from bitprint.methods.landmarks import Floats, Kernel, LandmarkHasher


@register_method
class KLSH(LandmarkHasher):
    """Kernelized locality-sensitive hashing (Kulis and Grauman, ICCV 2009).

    A Gaussian hyperplane cannot be drawn directly in the space of a kernel. By the central limit
    theorem, the whitened sum of t random landmarks is approximately Gaussian. With the centered
    kernel matrix ``C`` of the p landmarks and the indicator ``e_k`` of t random ones::

        w_k = sqrt((p - 1) / t) C^(-1/2) e_k
        h_k(x) = sgn( sum_i w_ki (k(x, z_i) - mean_j k(z_j, z_i)) )

    A bit differs between two items with probability of approximately angle / pi, where the angle
    is measured in the kernel space.

    Parameters
    ----------
    bits : int
        K.
    kernel : {"rbf", "linear"} or callable
        "rbf" is ``exp(-||x - z||^2 / (2 variance))``, "linear" is ``x . z``. A function takes
        (n, d) and (p, d) float64 arrays and returns symmetric similarities (n, p); its part with
        negative eigenvalues is ignored (see `NMLSH`), and a model with a function cannot be saved.
    landmarks : int
        p, the number of training rows drawn as landmarks; at most all rows.
    subset : int
        t; at most a quarter of the landmarks is used.
    variance : float, optional
        Scale of "rbf"; by default the mean squared distance between landmarks.
    seed : int
        Seed of the landmarks and subsets. With the same seed, a short code is a prefix of a longer
        one.

    Attributes
    ----------
    landmarks_ : ndarray of float32, shape (p, d)
    kernel_mean_ : ndarray of float64, shape (p,)
        Mean similarity of all landmarks to each landmark.
    weights_ : ndarray of float64, shape (p, K)
        Weights; each column sums to zero.
    variance_ : float

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((50, 8))
    >>> KLSH(bits=12).fit(features).encode(features)
    Codes(50 x 12 bits)
    """

    name = "klsh"
    reference = "Kulis and Grauman, ICCV 2009"

    def __init__(
        self,
        bits: int,
        *,
        kernel: str | Kernel = "rbf",
        landmarks: int = 300,
        subset: int = 30,
        variance: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bits, kernel=kernel, landmarks=landmarks, variance=variance, seed=seed)
        self.subset = subset

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        rng = np.random.default_rng(self.seed)
        values, vectors = self._fit_landmarks(features, tolerance=1e-8, rng=rng)
        positive = values > 0
        values, vectors = values[positive], vectors[:, positive]

        count = len(self.landmarks_)
        size = max(1, min(self.subset, count // 4))
        marks = random_subsets(self.bits, count, size, rng).T
        scale = np.sqrt((count - 1) / size)
        self.weights_ = scale * (vectors / np.sqrt(values)) @ (vectors.T @ marks)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._weighted_similarities(features, self.weights_).astype(np.float32)

    def _check_options(self) -> None:
        super()._check_options()
        if self.subset < 1:
            raise ValueError(f"klsh: subset must be at least 1, got {self.subset}")


def random_subsets(rows: int, count: int, size: int, rng: np.random.Generator) -> Floats:
    """Return random 0/1 indicators, shape (rows, count), with `size` ones in each row.

    Examples
    --------
    >>> random_subsets(5, 4, 3, np.random.default_rng(0)).sum(axis=1).tolist()
    [3.0, 3.0, 3.0, 3.0, 3.0]
    """
    chosen = np.argsort(rng.random((rows, count)), axis=1)[:, :size]
    marks = np.zeros((rows, count))
    np.put_along_axis(marks, chosen, 1.0, axis=1)
    return marks
