"""Cache of features on disk, memory-mapped."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitprint.data.home import data_home
from bitprint.data.images import ImageSet
from bitprint.utils.files import no_part_left

_READ_ROWS = 1024


def cached_features(
    images: ImageSet, name: str, compute: Callable[[ImageSet], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """Return `compute(images)`, cached in the folder "features" of `data_home`.

    Parameters
    ----------
    images : ImageSet
        The cache key includes all pixels in their order, but not ids and labels. A subset has a
        separate entry; to avoid this, index the features of the whole set.
    name : str
        Name and version of the features. The same name and images must give the same features.
    compute : callable
        Maps the images to a float32 array of shape (N, d).

    Returns
    -------
    ndarray of float32, shape (N, d)
        Memory-mapped, read-only.

    Examples
    --------
    >>> import tempfile
    >>> from unittest.mock import patch
    >>> def means(images):
    ...     print("computing")
    ...     return images.pixels.mean(axis=(1, 2), dtype=np.float32)
    >>> images = ImageSet(np.full((3, 8, 8, 3), 5, np.uint8))
    >>> with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, BITPRINT_DATA=folder):
    ...     first = cached_features(images, "means v1", means)
    ...     cached_features(images, "means v1", means).tolist()
    computing
    [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]
    """
    file = _cache_path(images, name)
    if not file.exists():
        features = compute(images)
        if features.dtype != np.float32 or features.ndim != 2 or len(features) != len(images):
            raise ValueError(
                f"features of {len(images)} images must be float32 of shape ({len(images)}, d), "
                f"{name} returned {features.dtype} of shape {features.shape}"
            )
        _write(file, features)
    return _read(file, len(images))


def pixel_digest(images: ImageSet) -> str:
    """Return the SHA-256 of the size and the pixels of all images, in their order.

    `ImageSet.fingerprint` samples a large set. A cache key must not, or replacing an image could
    return old features.

    Examples
    --------
    >>> images = ImageSet(np.arange(2, dtype=np.uint8).repeat(48).reshape(2, 4, 4, 3))
    >>> pixel_digest(images) == pixel_digest(images.subset([1, 0]))
    False
    """
    digest = hashlib.sha256(repr((len(images), images.size)).encode())
    for start in range(0, len(images), _READ_ROWS):
        digest.update(np.ascontiguousarray(images.read(slice(start, start + _READ_ROWS))).data)
    return digest.hexdigest()


def _cache_path(images: ImageSet, name: str) -> Path:
    key = hashlib.sha256(f"{pixel_digest(images)} {name}".encode()).hexdigest()[:24]
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name)[:32].strip("-")
    return data_home() / "features" / f"{readable}-{key}.npy"


def _write(file: Path, features: NDArray[np.float32]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    try:
        with no_part_left(file, partial):
            with partial.open("wb") as stream:
                np.save(stream, features, allow_pickle=False)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _read(file: Path, count: int) -> NDArray[np.float32]:
    try:
        features: NDArray[np.float32] = np.lib.format.open_memmap(file, "r")
        if features.dtype != np.float32 or features.ndim != 2 or len(features) != count:
            raise ValueError(f"found {features.dtype} of shape {features.shape}")
    except Exception as error:  # NumPy raises many types for damaged files
        raise ValueError(
            f"{file}: the cached features of {count} images are damaged ({error}); delete this file"
        ) from error
    return features
