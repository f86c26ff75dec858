"""PCAH: signs of the principal components."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.pca import check_components, principal_components


@register_method
class PCAH(FeatureHasher):
    """Hashing by principal components, the baseline of ITQ (Gong and Lazebnik, CVPR 2011).

    ``h_k(x) = sgn(w_k . (x - mean))`` with the principal component ``w_k`` of the k-th largest
    variance. `ITQ` rotates these components before the sign.

    Parameters
    ----------
    bits : int
        K, at most the number of features.

    Attributes
    ----------
    mean_ : ndarray of float32, shape (d,)
    components_ : ndarray of float32, shape (d, K)
        Principal components. Columns are zero if the data vary in fewer directions than bits.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((100, 16))
    >>> PCAH(bits=12).fit(features).encode(features)
    Codes(100 x 12 bits)
    """

    name = "pcah"
    supervision = "none"
    reference = "Gong and Lazebnik, CVPR 2011"

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def check_width(self, width: int) -> None:
        """Raise a ValueError if there are fewer features than bits."""
        check_components(self.name, self.bits, width)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        mean, components = principal_components(features, self.bits)
        self.mean_ = mean.astype(np.float32)
        self.components_ = components.astype(np.float32)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs: NDArray = (features - self.mean_) @ self.components_
        return outputs
