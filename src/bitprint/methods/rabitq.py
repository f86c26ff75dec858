"""RaBitQ: signs of a random rotation, with an unbiased estimate of inner products."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from bitprint.codes import CodesLike, as_codes
from bitprint.data.inputs import Data
from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.pca import random_rotation


class Factors(NamedTuple):
    """Two numbers per vector, from which `RaBitQ.estimate` computes inner products.

    Examples
    --------
    >>> hasher = RaBitQ(bits=4).fit([[3.0, 4.0], [-3.0, -4.0]])
    >>> norms, alignments = hasher.factors([[3.0, 4.0]])
    >>> norms.tolist(), alignments.shape
    ([5.0], (1,))
    """

    norms: NDArray[np.float32]
    """Length of x - mean, shape (N,)."""
    alignments: NDArray[np.float32]
    """Cosine of x - mean and its reconstruction from the code, shape (N,); 1 if x = mean."""


class Estimates(NamedTuple):
    """Estimated inner products and bounds on their errors.

    Examples
    --------
    >>> features = [[3.0, 4.0], [-3.0, -4.0]]
    >>> hasher = RaBitQ(bits=4).fit(features)
    >>> codes, factors = hasher.encode(features), hasher.factors(features)
    >>> products, bounds = hasher.estimate(features, codes, factors)
    >>> products.round().tolist()
    [[25.0, -25.0], [-25.0, 25.0]]
    """

    products: NDArray[np.float32]
    """Estimates of <x - mean, q - mean>, shape (Q, N)."""
    bounds: NDArray[np.float32]
    """The error is at most this with the given probability, shape (Q, N)."""


@register_method
class RaBitQ(FeatureHasher):
    """Signs of a random rotation, with an unbiased estimate (Gao and Long, SIGMOD 2024).

    ``b = sgn(P'(x - mean))`` with random orthonormal columns P. A code is reconstructed as the unit
    vector ``o = P b / sqrt(K)``. With two stored numbers per vector, its length ``|x - mean|`` and
    its alignment ``a = <o, x - mean> / |x - mean|``, the inner product with a real-valued query q
    has the estimate::

        <x - mean, q - mean>  ~  |x - mean| <o, q - mean> / a

    It is unbiased over random rotations. Its error is at most
    ``|x - mean| |q - mean| sqrt(1 / a^2 - 1) t`` with a given probability, where t is a quantile of
    a coordinate of a random point on the unit sphere and decreases with the dimension.

    Parameters
    ----------
    bits : int
        K. If it exceeds the number of features, rows are padded with zeros, as in the paper. With
        fewer bits, P projects the features to K dimensions.
    seed : int
        Seed of the rotation.

    Attributes
    ----------
    mean_ : ndarray of float32, shape (d,)
    rotation_ : ndarray of float32, shape (d, K)

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
    >>> hasher = RaBitQ(bits=64).fit(features)
    >>> codes, factors = hasher.encode(features), hasher.factors(features)
    >>> products, bounds = hasher.estimate(features[:5], codes, factors, confidence=0.99)
    >>> centered = features - hasher.mean_
    >>> errors = np.abs(products - centered[:5] @ centered.T)
    >>> products.shape, bool((errors <= bounds).mean() > 0.97)
    ((5, 100), True)
    """

    name = "rabitq"
    title = "RaBitQ"
    group = "data-independent"
    supervision = "none"
    reference = "Gao and Long, SIGMOD 2024"

    def __init__(self, bits: int, *, seed: int = 0) -> None:
        self.bits = bits
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        width = features.shape[1]
        rotation = random_rotation(max(width, self.bits), self.seed)
        self.rotation_ = np.ascontiguousarray(rotation[:width, : self.bits], np.float32)
        self.mean_ = features.mean(axis=0, dtype=np.float64).astype(np.float32)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = (features - self.mean_) @ self.rotation_
        return outputs

    def factors(self, data: Data) -> Factors:
        """Return the lengths and alignments of vectors, to be stored with their codes.

        Parameters
        ----------
        data : array, or any other input of `encode`

        Returns
        -------
        Factors
        """
        norms = self._norms(data)
        reached = np.abs(self.project(data)).sum(axis=1, dtype=np.float64) / np.sqrt(self.bits)
        alignments = np.divide(reached, norms, out=np.ones_like(norms), where=norms > 0)
        return Factors(norms.astype(np.float32), alignments.astype(np.float32))

    def estimate(
        self, queries: Data, codes: CodesLike, factors: Factors, *, confidence: float = 0.95
    ) -> Estimates:
        """Estimate the inner products of queries and encoded vectors, both minus the mean.

        The squared Euclidean distance is ``|x - mean|^2 + |q - mean|^2`` minus twice this inner
        product. All pairs are in memory; `Index.search` with projections finds the codes with the
        largest ``<o, q - mean>`` in a database.

        Parameters
        ----------
        queries : array, or any other input of `encode`
            Q vectors.
        codes : Codes
            N codes of `encode`.
        factors : Factors
            The factors of the same N vectors.
        confidence : float, default=0.95
            Probability, over random rotations, that the error of an estimate is within its bound.

        Returns
        -------
        Estimates
        """
        if not 0 < confidence < 1:
            raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
        codes = as_codes(codes)
        if codes.bits != self.bits or not len(codes) == len(factors.norms):
            raise ValueError(
                f"rabitq: expected {self.bits} bits and one pair of factors per code, got "
                f"{codes.bits} bits, {len(codes)} codes and {len(factors.norms)} pairs"
            )
        norms, alignments = (np.asarray(values, np.float64) for values in factors)
        alignments = np.clip(alignments, np.finfo(np.float32).tiny, 1)
        lengths = self._norms(queries)
        products = self.project(queries) @ codes.signs().T.astype(np.float32)
        scale = norms / (alignments * np.sqrt(self.bits))
        spread = norms * np.sqrt(1 / np.square(alignments) - 1) * self._quantile(confidence)
        return Estimates(
            (products * scale).astype(np.float32), np.outer(lengths, spread).astype(np.float32)
        )

    def _norms(self, data: Data) -> NDArray[np.float64]:
        centered = self._features(data) - self.mean_
        norms: NDArray[np.float64] = np.sqrt(np.square(centered, dtype=np.float64).sum(axis=1))
        return norms

    def _quantile(self, confidence: float) -> float:
        """Return t such that a coordinate of a random unit vector is within [-t, t].

        The vector is the part of the reconstruction that is orthogonal to x - mean, by symmetry a
        random direction. The square of a coordinate of a direction in n dimensions has the beta
        distribution with parameters 1/2 and (n - 1)/2.
        """
        dimensions = max(self.rotation_.shape) - 1
        if dimensions < 2:
            return 1.0
        return float(np.sqrt(betaincinv(0.5, (dimensions - 1) / 2, confidence)))
