"""Feature vectors from arrays, or from the pixels of an image set."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.data.images import ImageSet


def as_features(data: ImageSet | ArrayLike) -> NDArray[np.float32]:
    """Return feature vectors (N, d) as finite float32; pixels of images are scaled to 0..1."""
    if isinstance(data, ImageSet):
        pixels = data.read(slice(None)).reshape(len(data), -1)
        return pixels.astype(np.float32) / np.float32(255)
    if hasattr(data, "toarray"):
        raise ValueError("sparse features are not supported; use features.toarray()")
    features = np.asarray(data)
    _check_form(features)
    with np.errstate(over="ignore"):
        features = _to_float32(features)
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise ValueError(f"features contain NaN or infinity (first in row {bad[0]})")
    return features


def _to_float32(features: NDArray) -> NDArray[np.float32]:
    try:
        return features.astype(np.float32)
    except ValueError as error:  # objects that are not numbers
        raise ValueError(f"features must be numbers: {error}") from None


def _check_form(features: NDArray) -> None:
    """Raise unless these are numbers (N, d); scikit-learn requires parts of the messages."""
    form = "features must be numbers of shape (N, d)"
    if features.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {form}")
    if features.ndim == 1:
        raise ValueError(f"Reshape your data: {form}, got shape {features.shape}")
    if features.ndim == 2 and features.shape[1] == 0:
        raise ValueError(
            f"{form}, got 0 feature(s) (shape={features.shape}) while a minimum of 1 is required."
        )
    if features.ndim != 2 or features.dtype.kind not in "biufO":
        raise ValueError(f"{form}, got {features.dtype} of shape {features.shape}")
