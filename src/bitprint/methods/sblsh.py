"""SBLSH: random projections that are orthogonal within batches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._registry import register_method
from bitprint.methods.lsh import LSH


@register_method
class SBLSH(LSH):
    """Super-bit locality-sensitive hashing (Ji, Li, Yan, Zhang and Tian, NIPS 2012).

    Like `LSH`, but the K Gaussian vectors are divided into batches of `depth` vectors, and each
    batch is orthonormalized. A bit still differs between two vectors with probability angle / pi.
    Bits of one batch are negatively correlated for angles up to pi / 2, so that the fraction of
    differing bits estimates the angle with a lower variance.

    Parameters
    ----------
    bits : int
        K.
    depth : int, optional
        Super-bit depth, from 1 (equal to LSH) to the number of features d; by default the
        largest, ``min(d, K)``. The last batch is smaller if K is not a multiple of it.
    centre : bool
        Subtract the training mean, as in `LSH`.
    seed : int
        Seed of the projections.

    Examples
    --------
    >>> SBLSH(bits=12).fit(np.eye(5)).encode(np.eye(5))
    Codes(5 x 12 bits)
    """

    name = "sblsh"
    title = "Super-bit LSH"
    reference = "Ji, Li, Yan, Zhang and Tian, NIPS 2012"

    def __init__(
        self, bits: int, *, depth: int | None = None, centre: bool = True, seed: int = 0
    ) -> None:
        super().__init__(bits, centre=centre, seed=seed)
        self.depth = depth

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        width = features.shape[1]
        depth = min(width, self.bits) if self.depth is None else self.depth
        if not 1 <= depth <= width:
            raise ValueError(
                f"sblsh: depth must be from 1 to the number of features, {width}, got {depth}"
            )
        super()._fit(features, labels)
        self.projections_ = super_bits(self.projections_, depth).astype(np.float32)


def super_bits(vectors: NDArray[np.floating], depth: int) -> NDArray[np.float64]:
    """Orthonormalize each batch of `depth` columns.

    Parameters
    ----------
    vectors : ndarray, shape (d, K)
        Linearly independent within each batch.
    depth : int
        At most d.

    Returns
    -------
    ndarray of float64, shape (d, K)

    Examples
    --------
    >>> super_bits(np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 2.0]]), 2).round(6).__abs__().tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    starts = range(0, vectors.shape[1], depth)
    batches = [vectors[:, start : start + depth].astype(np.float64) for start in starts]
    # The signs of Q are arbitrary: they flip a bit of all codes, so distances do not change.
    return np.concatenate([np.linalg.qr(batch).Q for batch in batches], axis=1)
