"""WeightedCodes: codes whose bits count differently in the distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.codes import Codes, CodesLike, as_codes


class WeightedCodes:
    """N codes of K bits with a weight for each bit, compared by weighted Hamming distance.

    The distance of two codes is the sum of the weights of the bits in which they differ. It is
    real-valued, so an index does not search by it; `bitprint.evaluate` ranks by it. Sums that
    floating-point numbers cannot hold exactly are rounded to some 1e-9 of the sum of all weights,
    so that equal distances are equal in whatever order their weights are added.

    Parameters
    ----------
    codes : Codes
        N codes of K bits.
    weights : array_like, shape (K,)
        Finite, none below zero.

    Examples
    --------
    >>> codes = Codes.from_signs([[1, 1, 1], [1, -1, -1]])
    >>> WeightedCodes(codes, [4.0, 2.0, 0.5]).distances(codes[:1]).tolist()
    [[0.0, 2.5]]
    >>> WeightedCodes(codes, [4.0, 2.0, 0.5]).bits
    3
    """

    def __init__(self, codes: Codes, weights: ArrayLike) -> None:
        weights = np.asarray(weights, np.float64)
        if weights.shape != (codes.bits,):
            raise ValueError(f"{codes.bits} bits need as many weights, got shape {weights.shape}")
        if not np.all(np.isfinite(weights) & (weights >= 0)):
            raise ValueError("weights of bits are finite and not below zero")
        self.codes = codes
        self.weights = weights
        self._step = _rounding_step(weights)

    @property
    def bits(self) -> int:
        """K."""
        return self.codes.bits

    def distances(self, queries: CodesLike) -> NDArray[np.float64]:
        """Weighted Hamming distances, shape (Q, N).

        Eight bits at a time: a table says what every pattern of differing bits weighs.
        """
        queries = as_codes(queries)
        if queries.bits != self.bits:
            raise ValueError(f"codes of {queries.bits} and of {self.bits} bits do not compare")
        patterns = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
        padded = np.zeros(8 * self.codes.packed.shape[1])
        padded[: self.bits] = self.weights
        tables = (patterns @ padded.reshape(-1, 8).T).T
        distances = np.zeros((len(queries), len(self)))
        columns = zip(tables, queries.packed.T, self.codes.packed.T, strict=True)
        for table, mine, theirs in columns:
            distances += table[mine[:, None] ^ theirs[None, :]]
        if self._step:
            distances /= self._step
            np.rint(distances, out=distances)
            distances *= self._step
        return distances

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"WeightedCodes({len(self)} x {self.bits} bits)"


def _rounding_step(weights: NDArray[np.float64]) -> float:
    """A power of two to round sums of weights to; 0 where no sum has a rounding error.

    There is none where all weights are multiples of a number of which float64 holds as many as
    their sum: whole numbers, say.
    """
    exponent = int(np.frexp(weights.sum())[1])
    unit = np.ldexp(1.0, max(exponent - 53, -1074))
    if not np.any(weights % unit):
        return 0.0
    return float(np.ldexp(1.0, exponent - 30))
