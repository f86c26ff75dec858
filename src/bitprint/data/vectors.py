"""Feature vectors: what is not an image set, or an image set read as its pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.data.images import ImageSet


def as_features(data: ImageSet | ArrayLike) -> NDArray[np.float32]:
    """Feature vectors (N, d) as finite float32; images become their pixels, from 0 to 1."""
    if isinstance(data, ImageSet):
        pixels = data.read(slice(None)).reshape(len(data), -1)
        return pixels.astype(np.float32) / np.float32(255)
    if hasattr(data, "toarray"):
        raise ValueError("sparse features are not supported; give features.toarray()")
    features = np.asarray(data)
    if features.ndim != 2 or features.shape[1] == 0 or features.dtype.kind not in "biuf":
        raise ValueError(
            f"features are numbers of shape (N, d), got {features.dtype} of shape {features.shape}"
        )
    with np.errstate(over="ignore"):
        features = features.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise ValueError(f"features contain NaN or infinity (first in row {bad[0]})")
    return features
