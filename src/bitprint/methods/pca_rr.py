"""PCA-RR: signs of randomly rotated principal components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._registry import register_method
from bitprint.methods.pca import random_rotation
from bitprint.methods.pcah import PCAH


@register_method
class PCARR(PCAH):
    """Principal components, a random rotation, and signs (Moummad et al., arXiv 2025).

    ``b = sgn(R' W' (x - mean))`` with the first K principal components W of the features of a
    pretrained network and a random rotation R. The components alone have very different variances;
    the rotation spreads them over all bits. The paper calls this Hashing-Baseline. Gong and
    Lazebnik (CVPR 2011) introduced it as the start of `ITQ`, which then optimizes R.

    Parameters
    ----------
    bits : int
        K, at most the number of features.
    seed : int
        Seed of the rotation.

    Attributes
    ----------
    mean_ : ndarray of float32, shape (d,)
    components_ : ndarray of float32, shape (d, K)
        Principal components. Columns are zero if the data vary in fewer directions than bits.
    rotation_ : ndarray of float64, shape (K, K)

    Notes
    -----
    The codes are those of `ITQ` with ``iterations=0`` and the same seed. The paper ranks a database
    of codes by the sigmoids of the outputs of a query; here both are codes.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((100, 16))
    >>> PCARR(bits=12).fit(features).encode(features)
    Codes(100 x 12 bits)
    """

    name = "pca-rr"
    title = "PCA-RR"
    reference = "Moummad, Zaher, Rauch and Joly, arXiv 2025"

    def __init__(self, bits: int, *, seed: int = 0) -> None:
        super().__init__(bits)
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        super()._fit(features, labels)
        self.rotation_ = random_rotation(self.bits, self.seed)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        rotated: NDArray = super()._project(features) @ self.rotation_.astype(np.float32)
        return rotated
