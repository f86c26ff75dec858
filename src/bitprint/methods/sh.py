"""SH: spectral hashing with the eigenfunctions of a uniform distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.pca import principal_components, scores


@register_method
class SH(FeatureHasher):
    """Spectral hashing (Weiss, Torralba and Fergus, NIPS 2008).

    Balanced, uncorrelated bits that rarely differ between similar items are, after relaxation, the
    eigenvectors of the graph Laplacian with the smallest eigenvalues. For a uniform distribution
    on a box with sides ``R_j`` along the principal components z, the eigenfunctions are::

        cos(m pi (z_j - min_j) / R_j),   m = 1, 2, ...

    Their eigenvalues increase with ``m / R_j``. The bits are the signs of the K eigenfunctions with
    the smallest eigenvalues, except the constant one.

    Parameters
    ----------
    bits : int
        K. It can exceed the number of features: the components then have several modes m.

    Attributes
    ----------
    component_ : ndarray of int64, shape (K,)
        Principal component of each bit.
    mode_ : ndarray of int64, shape (K,)
        Mode m of each bit.
    frequency_ : ndarray of float64, shape (K,)
        m pi / R_j, in ascending order.
    lowest_ : ndarray of float64, shape (K,)
        min_j of the component of each bit.
    mean_, components_ : ndarray
        Principal components of the training features.

    Examples
    --------
    >>> line = np.arange(8)[:, None]
    >>> hasher = SH(bits=2).fit(line)
    >>> hasher.encode(line).signs().T.tolist()
    [[1, 1, 1, 1, -1, -1, -1, -1], [1, 1, -1, -1, -1, -1, 1, 1]]
    """

    name = "sh"
    supervision = "none"
    reference = "Weiss, Torralba and Fergus, NIPS 2008"

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        count = min(self.bits, features.shape[1])
        self.mean_, self.components_ = principal_components(features, count)
        coordinates = scores(features, self.mean_, self.components_)
        lowest = coordinates.min(axis=0)
        sides = coordinates.max(axis=0) - lowest
        if not sides.any():
            sides = np.ones(count)  # all rows are equal; any box gives them one code

        modes = np.arange(1, self.bits + 1)
        with np.errstate(divide="ignore"):  # a side of zero has infinite frequencies
            frequencies = np.pi * modes / sides[:, None]
        # Stable: for equal frequencies, the component with the larger variance is first.
        kept = np.argsort(frequencies, axis=None, kind="stable")[: self.bits]
        self.component_, mode = np.unravel_index(kept, frequencies.shape)
        self.mode_ = modes[mode]
        self.frequency_ = frequencies.ravel()[kept]
        self.lowest_ = lowest[self.component_]

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        coordinates = scores(features, self.mean_, self.components_)[:, self.component_]
        waves: NDArray[np.float64] = np.cos(self.frequency_ * (coordinates - self.lowest_))
        return waves.astype(np.float32)
