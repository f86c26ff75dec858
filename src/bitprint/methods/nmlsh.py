"""NMLSH: hashing for indefinite similarities."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.inputs import Data
from bitprint.methods._registry import register_method
from bitprint.methods.anchors import squared_distances
from bitprint.methods.landmarks import Floats, Kernel, LandmarkHasher


@register_method
class NMLSH(LandmarkHasher):
    """Non-metric locality-sensitive hashing (Mu and Yan, AAAI 2010).

    An indefinite similarity is an inner product in a Krein space:
    ``k(x, y) = p(x) . p(y) - n(x) . n(y)``. The positive part p and the negative part n are
    computed from the eigenvectors of the centered kernel matrix of the landmarks. Query codes and
    database codes differ:

    "asymmetric"
        With Gaussian r, the database bit is ``sgn(r . [p, n])`` and the query bit is
        ``sgn(r . [p, -n])``. They differ with probability
        ``arccos( k(x, y) / (|x| |y|) ) / pi``, where ``|x|^2 = ||p(x)||^2 + ||n(x)||^2``.
    "p-stable"
        Half of the bits are ``floor((a . p + b) / r) mod 2``, the other half are the same function
        of n. Query codes contain the complement of the bits of n. The Hamming distance increases
        with the distance of the positive parts and decreases with the distance of the negative
        parts. These codes are noisier than "asymmetric".

    `encode` returns database codes and `encode_queries` returns query codes. Without a negative
    part, as with "rbf" and "linear", they are equal.

    Parameters
    ----------
    bits : int
        K.
    kernel : {"sigmoid", "rbf", "linear"} or callable
        "sigmoid" is ``tanh(x . z / variance)`` relative to the mean of the landmarks, which is
        indefinite; "rbf" is ``exp(-||x - z||^2 / (2 variance))``; "linear" is ``x . z``. A function
        takes (n, d) and (p, d) float64 arrays and returns symmetric similarities (n, p). For a
        dissimilarity D, return ``-D**2 / 2``. A model with a function cannot be saved.
    rule : {"asymmetric", "p-stable"}
        How bits are computed. The paper uses p-stable projections; "asymmetric" is specific to
        Bitprint.
    landmarks : int
        Number of training rows drawn as landmarks; at most all rows.
    variance : float, optional
        Scale of "sigmoid" and "rbf"; by default the mean squared distance between landmarks.
    seed : int
        Seed of the landmarks and projections.

    Attributes
    ----------
    landmarks_ : ndarray of float32, shape (p, d)
    kernel_mean_ : ndarray of float64, shape (p,)
        Mean similarity of all landmarks to each landmark.
    weights_, query_weights_ : ndarray of float64, shape (p, K)
        Weights of centered similarities for database codes and for query codes.
    offsets_, query_offsets_ : ndarray of float64, shape (K,)
        Zero for "asymmetric"; b / r for "p-stable", plus 1 for a complement.
    negative_ : int
        Number of negative eigenvalues, the dimension of n.
    variance_ : float

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((50, 8))
    >>> hasher = NMLSH(bits=12).fit(features)
    >>> hasher.encode(features), hasher.encode_queries(features[:2])
    (Codes(50 x 12 bits), Codes(2 x 12 bits))
    """

    name = "nmlsh"
    reference = "Mu and Yan, AAAI 2010"
    kernels = ("sigmoid", "rbf", "linear")

    def __init__(
        self,
        bits: int,
        *,
        kernel: str | Kernel = "sigmoid",
        rule: Literal["asymmetric", "p-stable"] = "asymmetric",
        landmarks: int = 300,
        variance: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(bits, kernel=kernel, landmarks=landmarks, variance=variance, seed=seed)
        self.rule = rule

    def encode_queries(self, data: Data) -> Codes:
        """Return query codes, to be compared with the codes of `encode` by Hamming distance."""
        self._check_fitted()
        asking = copy.copy(self)
        asking.weights_, asking.offsets_ = self.query_weights_, self.query_offsets_
        return asking.encode(data)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        rng = np.random.default_rng(self.seed)
        values, vectors = self._fit_landmarks(features, tolerance=1e-6, rng=rng)
        self.negative_ = int((values < 0).sum())
        directions = rng.standard_normal((self.bits, len(values))).T
        if self.rule == "asymmetric":
            self._make_asymmetric(values, vectors, directions)
        else:
            self._make_p_stable(values, vectors, directions, rng)

    def _make_asymmetric(self, values: Floats, vectors: Floats, directions: Floats) -> None:
        embedding = vectors / np.sqrt(np.abs(values))
        self.weights_ = embedding @ directions
        self.query_weights_ = (embedding * np.sign(values)) @ directions
        self.offsets_ = self.query_offsets_ = np.zeros(self.bits)

    def _make_p_stable(
        self, values: Floats, vectors: Floats, directions: Floats, rng: np.random.Generator
    ) -> None:
        embedding = vectors / np.sqrt(np.abs(values))
        negative_bits = self._negative_bits(len(values))
        of_negatives = np.arange(self.bits) >= self.bits - negative_bits
        own_part = (values < 0)[:, None] == of_negatives
        width = cell_width(vectors * np.sqrt(np.abs(values)))
        self.weights_ = self.query_weights_ = embedding @ (directions * own_part) / width
        self.offsets_ = rng.random(self.bits)
        self.query_offsets_ = self.offsets_ + of_negatives

    def _negative_bits(self, dimensions: int) -> int:
        """Return the number of bits of n: half, so that both parts have equal weight."""
        if self.negative_ == dimensions:
            return self.bits if dimensions else 0
        return self.bits // 2 if self.negative_ else 0

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs = self._weighted_similarities(features, self.weights_) + self.offsets_
        if self.rule == "p-stable":
            outputs = np.sin(np.pi * outputs)  # >= 0 if floor(outputs) is even
        return outputs.astype(np.float32)

    def _check_options(self) -> None:
        super()._check_options()
        if self.rule not in ("asymmetric", "p-stable"):
            raise ValueError(f"nmlsh: rule must be asymmetric or p-stable, got {self.rule!r}")


def cell_width(points: Floats) -> float:
    """Return four times the median distance between points (n, r), or 1 if it is zero."""
    if len(points) < 2:
        return 1.0
    first, second = np.triu_indices(len(points), k=1)
    distances = np.sqrt(squared_distances(points, points)[first, second])
    return 4 * float(np.median(distances)) or 1.0
