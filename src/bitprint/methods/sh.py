"""SH: spectral hashing by the eigenfunctions of a box."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods.pca import principal_components, scores


class SH(FeatureHasher):
    """Spectral hashing (Weiss, Torralba and Fergus, NIPS 2008).

    Balanced, uncorrelated bits that rarely differ between near items are, relaxed, eigenvectors of
    the graph Laplacian with small eigenvalues. For data spread evenly over a box with sides
    ``R_j`` along the principal components z these are known functions of one component each::

        cos(m pi (z_j - min_j) / R_j),   m = 1, 2, ...,   with eigenvalues rising in  m / R_j

    and the K smallest, the constant left out, are the bits.

    Parameters
    ----------
    bits : int
        K. Beyond the number of features, further bits are higher modes of the same components.

    Attributes
    ----------
    component_ : ndarray of int64, shape (K,)
        Which principal component each bit reads.
    mode_ : ndarray of int64, shape (K,)
        Its mode m.
    frequency_ : ndarray of float64, shape (K,)
        m pi / R_j, not decreasing.
    lowest_ : ndarray of float64, shape (K,)
        min_j of that component.
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
            sides = np.ones(count)  # one point has no box; any gives it one code

        modes = np.arange(1, self.bits + 1)
        with np.errstate(divide="ignore"):  # a side of zero has no modes: infinite frequency
            frequencies = np.pi * modes / sides[:, None]
        # Stable: of two equal frequencies, that of the component with more variance comes first.
        kept = np.argsort(frequencies, axis=None, kind="stable")[: self.bits]
        self.component_, mode = np.unravel_index(kept, frequencies.shape)
        self.mode_ = modes[mode]
        self.frequency_ = frequencies.ravel()[kept]
        self.lowest_ = lowest[self.component_]

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        coordinates = scores(features, self.mean_, self.components_)[:, self.component_]
        waves: NDArray[np.float64] = np.cos(self.frequency_ * (coordinates - self.lowest_))
        return waves.astype(np.float32)
