"""KLSH: random hyperplanes in the space of a kernel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods.landmarks import Floats, Kernel, LandmarkHasher


class KLSH(LandmarkHasher):
    """Kernelised locality-sensitive hashing (Kulis and Grauman, ICCV 2009).

    A Gaussian hyperplane in the kernel's own space cannot be drawn there, but by the central limit
    theorem the whitened sum of t random landmarks is nearly one. With the centred kernel matrix
    ``C`` of the p landmarks and ``e_k`` marking a random t of them::

        w_k = sqrt((p - 1) / t) C^(-1/2) e_k
        h_k(x) = sgn( sum_i w_ki (k(x, z_i) - mean_j k(z_j, z_i)) )

    so that a bit differs with a probability of about the angle in kernel space / pi.

    Parameters
    ----------
    bits : int
        K.
    kernel : {"rbf", "linear"} or callable
        ``exp(-||x - z||^2 / (2 variance))``; ``x . z``; or a function of (n, d) and (p, d) float64
        arrays that returns symmetric similarities (n, p). What is not positive definite in it is
        left out (see `NMLSH`), and a model with a function cannot be saved.
    landmarks : int
        p, the number of training rows drawn as landmarks; all of them when there are fewer.
    subset : int
        t; at most a quarter of the landmarks is taken.
    variance : float, optional
        Scale of "rbf"; by default the mean squared distance between landmarks.
    seed : int
        Seed of landmarks and subsets; a longer code of the same seed starts with the shorter one.

    Attributes
    ----------
    landmarks_ : ndarray of float32, shape (p, d)
    kernel_mean_ : ndarray of float64, shape (p,)
        Mean similarity of the landmarks to each of them.
    weights_ : ndarray of float64, shape (p, K)
        Columns sum to zero.
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
        values, vectors = self._span(features, tolerance=1e-8, rng=rng)
        positive = values > 0
        values, vectors = values[positive], vectors[:, positive]

        count = len(self.landmarks_)
        size = max(1, min(self.subset, count // 4))
        marks = random_subsets(self.bits, count, size, rng).T
        scale = np.sqrt((count - 1) / size)
        self.weights_ = scale * (vectors / np.sqrt(values)) @ (vectors.T @ marks)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._weigh(features, self.weights_).astype(np.float32)

    def _check_options(self) -> None:
        super()._check_options()
        if self.subset < 1:
            raise ValueError(f"klsh: subset must be at least 1, got {self.subset}")


def random_subsets(rows: int, count: int, size: int, rng: np.random.Generator) -> Floats:
    """Mark `size` of `count` places with 1.0 in each of `rows` rows, all choices equally likely.

    Examples
    --------
    >>> random_subsets(5, 4, 3, np.random.default_rng(0)).sum(axis=1).tolist()
    [3.0, 3.0, 3.0, 3.0, 3.0]
    """
    chosen = np.argsort(rng.random((rows, count)), axis=1)[:, :size]
    marks = np.zeros((rows, count))
    np.put_along_axis(marks, chosen, 1.0, axis=1)
    return marks
