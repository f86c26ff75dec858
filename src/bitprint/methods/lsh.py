"""LSH: signs of random projections."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method


@register_method
class LSH(FeatureHasher):
    """Locality-sensitive hashing by random hyperplanes (Charikar, STOC 2002).

    ``h_k(x) = sgn(w_k . (x - mean))`` with Gaussian ``w_k``. A bit differs between two vectors
    with probability angle / pi.

    Parameters
    ----------
    bits : int
        K.
    centre : bool
        Subtract the training mean. Without it, non-negative features (pixels, ReLU outputs) lie
        in a narrow cone and get nearly equal codes.
    seed : int
        Seed of the projections. With the same seed, a short code is a prefix of a longer one.

    Examples
    --------
    >>> import bitprint as bp
    >>> bp.create("lsh", bits=12).fit(np.eye(5)).encode(np.eye(5))
    Codes(5 x 12 bits)
    """

    name = "lsh"
    group = "data-independent"
    supervision = "none"
    reference = "Charikar, STOC 2002"

    def __init__(self, bits: int, *, centre: bool = True, seed: int = 0) -> None:
        self.bits = bits
        self.centre = centre
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        rng = np.random.default_rng(self.seed)
        # One row per bit, so that the first k bits do not depend on the number of bits.
        rows = rng.standard_normal((self.bits, features.shape[1]), np.float32)
        # Contiguous as in a saved model: products of transposed views round differently.
        self.projections_ = np.ascontiguousarray(rows.T)
        mean = features.mean(axis=0)
        self.mean_ = mean if self.centre else np.zeros_like(mean)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = (features - self.mean_) @ self.projections_
        return outputs
