"""NMLSH: hashing for similarities that no metric explains."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.inputs import Data
from bitprint.methods.anchors import squared_distances
from bitprint.methods.landmarks import Floats, Kernel, LandmarkHasher


class NMLSH(LandmarkHasher):
    """Non-metric locality-sensitive hashing (Mu and Yan, AAAI 2010).

    An indefinite similarity lives in a Krein space: ``k(x, y) = p(x) . p(y) - n(x) . n(y)``, where
    the positive part p and the negative part n come from the eigenvectors of the landmarks'
    centred kernel matrix. Query and database codes differ:

    "asymmetric"
        With Gaussian r, the database bit is ``sgn(r . [p, n])``, the query bit
        ``sgn(r . [p, -n])``: they differ with probability
        ``arccos( k(x, y) / (|x| |y|) ) / pi``, where ``|x|^2 = ||p(x)||^2 + ||n(x)||^2``.
    "p-stable"
        Half of the bits are ``floor((a . p + b) / r) mod 2``, half the same of n, and the query
        takes the complement of the latter: the Hamming distance grows with the distance of the
        positive parts and falls with that of the negative parts. Noisier than "asymmetric".

    `encode` gives database codes, `encode_queries` query codes. Without a negative part, as for
    "rbf" and "linear", they are the same.

    Parameters
    ----------
    bits : int
        K.
    kernel : {"sigmoid", "rbf", "linear"} or callable
        ``tanh(x . z / variance)`` seen from the mean of the landmarks, which is indefinite;
        ``exp(-||x - z||^2 / (2 variance))``; ``x . z``; or a function of (n, d) and (p, d) float64
        arrays that returns symmetric similarities (n, p). For a dissimilarity D return
        ``-D**2 / 2``. A model with a function cannot be saved.
    rule : {"asymmetric", "p-stable"}
        How bits are made. The paper names p-stable projections; "asymmetric" is this library's.
    landmarks : int
        Number of training rows drawn as landmarks; all of them when there are fewer.
    variance : float, optional
        Scale of "sigmoid" and "rbf"; by default the mean squared distance between landmarks.
    seed : int
        Seed of landmarks and projections.

    Attributes
    ----------
    landmarks_ : ndarray of float32, shape (p, d)
    kernel_mean_ : ndarray of float64, shape (p,)
        Mean similarity of the landmarks to each of them.
    weights_, query_weights_ : ndarray of float64, shape (p, K)
        Weights of centred similarities, of database and query codes.
    offsets_, query_offsets_ : ndarray of float64, shape (K,)
        Zero for "asymmetric"; b / r for "p-stable", one more for a complement.
    negative_ : int
        Number of negative eigenvalues: dimensions of n.
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
        """Codes of queries, to be compared with the codes of `encode` by Hamming distance."""
        self._check_fitted()
        asking = copy.copy(self)
        asking.weights_, asking.offsets_ = self.query_weights_, self.query_offsets_
        return asking.encode(data)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        rng = np.random.default_rng(self.seed)
        values, vectors = self._span(features, tolerance=1e-6, rng=rng)
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
        """Half of the bits, so that a unit of distance weighs the same in both parts."""
        if self.negative_ == dimensions:
            return self.bits if dimensions else 0
        return self.bits // 2 if self.negative_ else 0

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs = self._weigh(features, self.weights_) + self.offsets_
        if self.rule == "p-stable":
            outputs = np.sin(np.pi * outputs)  # not negative where floor(outputs) is even
        return outputs.astype(np.float32)

    def _check_options(self) -> None:
        super()._check_options()
        if self.rule not in ("asymmetric", "p-stable"):
            raise ValueError(f"nmlsh: rule must be asymmetric or p-stable, got {self.rule!r}")


def cell_width(points: Floats) -> float:
    """Four times the median distance between points (n, r); 1 where that is zero."""
    if len(points) < 2:
        return 1.0
    first, second = np.triu_indices(len(points), k=1)
    distances = np.sqrt(squared_distances(points, points)[first, second])
    return 4 * float(np.median(distances)) or 1.0
