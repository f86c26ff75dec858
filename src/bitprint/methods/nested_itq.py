"""Nested ITQ: codes whose prefixes are codes of fewer bits."""

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
from bitprint.utils.arguments import check_whole


@register_method
class NestedITQ(FeatureHasher):
    """ITQ for several code lengths at once: the first bits of a code are a shorter code.

    `ITQ` finds the rotation R of the scores V of the principal components that minimizes
    ``||B - V R||_F^2``, which is the R that maximizes ``sum |V R|``. Here the sums of all lengths
    are maximized together. Column k counts once for each prefix that contains it::

        max_R  sum_k w_k sum_n |V R|_nk,   w_k = number of prefixes that contain bit k

    Early columns have larger weights and get more of the variance. The two steps of ITQ remain
    exact: ``B = sgn(V R)``, and ``R = U W'`` with the singular value decomposition
    ``U S W' = V'B diag(w)``.

    Parameters
    ----------
    bits : int
        K, at most the number of features.
    shortest : int
        Length of the shortest prefix to use. The others are 2, 4, 8, ... times as long, up to K. If
        it is not less than K, the method is `ITQ`.
    iterations : int
        Number of iterations of both steps.
    seed : int
        Seed of the initial rotation.

    Attributes
    ----------
    mean_ : ndarray of float32, shape (d,)
    components_ : ndarray of float32, shape (d, K)
        Principal components. Columns are zero if the data vary in fewer directions than bits.
    rotation_ : ndarray of float64, shape (K, K)
    objectives_ : ndarray of float64, shape (iterations + 1,)
        The objective before each iteration and at the end; it never decreases.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((100, 16))
    >>> hasher = NestedITQ(bits=16, shortest=4).fit(features)
    >>> codes = hasher.encode(features)
    >>> codes.prefix(4)
    Codes(100 x 4 bits)
    """

    name = "nested-itq"
    title = "Nested ITQ"
    supervision = "none"
    reference = "Bitprint, after Gong and Lazebnik, CVPR 2011"

    def __init__(
        self,
        bits: int,
        *,
        shortest: int = 64,
        iterations: int = 50,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.shortest = shortest
        self.iterations = iterations
        self.seed = seed

    def check_width(self, width: int) -> None:
        """Raise a ValueError if there are fewer features than bits."""
        check_components(self.name, self.bits, width)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        weights = self._weights()
        check_whole("nested-itq: iterations", self.iterations, 0)
        mean, components = principal_components(features, self.bits)
        self.mean_ = mean.astype(np.float32)
        self.components_ = components.astype(np.float32)
        V = scores(features, mean, components)
        R = random_rotation(self.bits, self.seed)
        objectives = []
        for _ in range(self.iterations):
            rotated = V @ R
            objectives.append(np.abs(rotated).sum(axis=0) @ weights)
            B = np.where(rotated >= 0, 1.0, -1.0)
            U, _, Wt = np.linalg.svd((V.T @ B) * weights)
            R = U @ Wt
        objectives.append(np.abs(V @ R).sum(axis=0) @ weights)
        self.rotation_ = R
        self.objectives_ = np.array(objectives)

    def _weights(self) -> NDArray[np.float64]:
        """Return the number of prefixes that contain each bit, including the whole code."""
        length = check_whole("nested-itq: shortest", self.shortest, 1)
        weights = np.ones(self.bits)
        while length < self.bits:
            weights[:length] += 1
            length *= 2
        return weights

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        V = (features - self.mean_) @ self.components_
        rotated: NDArray = V @ self.rotation_.astype(np.float32)
        return rotated
