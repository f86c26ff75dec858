"""WeightedCodes: codes with a weighted Hamming distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.codes import Codes, CodesLike, as_codes


class WeightedCodes:
    """N codes of K bits with a weight for each bit, compared by weighted Hamming distance.

    The distance of two codes is the sum of the weights of the bits in which they differ. It is
    real-valued, so an index cannot search by it; `bitprint.evaluate` can rank by it. Sums that are
    not exact in floating point are rounded to about 1e-9 of the sum of all weights, so that equal
    distances do not depend on the order of addition.

    Parameters
    ----------
    codes : Codes
        N codes of K bits.
    weights : array_like, shape (K,)
        Finite weights >= 0.

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
            raise ValueError(
                f"codes of {codes.bits} bits need {codes.bits} weights, got shape {weights.shape}"
            )
        if not np.all(np.isfinite(weights) & (weights >= 0)):
            raise ValueError("weights of bits must be finite and >= 0")
        self.codes = codes
        self.weights = weights
        self._step = _rounding_step(weights)

    @property
    def bits(self) -> int:
        """Code length K."""
        return self.codes.bits

    def distances(self, queries: CodesLike) -> NDArray[np.float64]:
        """Compute weighted Hamming distances from queries to codes, shape (Q, N).

        Eight bits are compared at a time, with a table of the weight of each pattern of bits.
        """
        queries = as_codes(queries)
        if queries.bits != self.bits:
            raise ValueError(
                f"cannot compare codes of {queries.bits} bits with codes of {self.bits} bits"
            )
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
    """Return a power of two to which sums of weights are rounded; 0 if all sums are exact.

    Sums are exact if all weights, such as integers, are multiples of a unit that is not smaller
    than the float64 precision of the sum of all weights.
    """
    exponent = int(np.frexp(weights.sum())[1])
    unit = np.ldexp(1.0, max(exponent - 53, -1074))
    if not np.any(weights % unit):
        return 0.0
    return float(np.ldexp(1.0, exponent - 30))
