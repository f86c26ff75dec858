"""Feature vectors of images: pixels, GIST, or the features of a backbone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bitprint.data.decoding import Progress
from bitprint.data.images import ImageSet
from bitprint.data.vectors import as_features
from bitprint.features.cache import cached_features
from bitprint.features.deep import deep_features, trunk_digest, trunk_for
from bitprint.features.gist import FEATURES, gist
from bitprint.nets import Trunk, list_backbones

__all__ = ["cached_features", "deep_features", "extract", "gist"]

_VERSION = 1
"""Increase this if the same images and weights produce other features."""


def extract(
    images: ImageSet, name: str, *, progress: Progress | None = None
) -> NDArray[np.float32]:
    """Return the features of images by name, cached in the folder "features" of `data_home`.

    For a split, extract the features of the whole set and index them, so that they are computed
    once for all splits: ``extract(images, "gist")[split.queries]``.

    Parameters
    ----------
    images : ImageSet
    name : str
        "pixels", scaled to 0..1; "gist", at the size of the images; or an image backbone of
        `bitprint.nets.create_trunk`, such as "efficientnet-lite0". The features of a backbone are
        computed again if its weights change.
    progress : callable, optional
        Called with the number of images done, and N. Not called for cached features.

    Returns
    -------
    ndarray of float32, shape (N, d)
        Memory-mapped and read-only, except for "pixels", which are not cached.

    Examples
    --------
    >>> images = ImageSet(np.full((3, 8, 8, 3), 255, np.uint8))
    >>> extract(images, "pixels").shape
    (3, 192)
    """
    if name == "pixels":
        return as_features(images)
    if name == "gist":
        return cached_features(
            images, f"gist v{_VERSION}", lambda images: gist(images, progress=progress)
        )
    trunk = _trunk_of(images, name)
    return cached_features(
        images,
        f"{name} v{_VERSION} {trunk_digest(trunk)}",
        lambda images: deep_features(images, trunk, progress=progress),
    )


def width(images: ImageSet, name: str) -> int:
    """Return the number of features d without computing them; see `extract`.

    Examples
    --------
    >>> images = ImageSet(np.zeros((3, 8, 8, 3), np.uint8))
    >>> width(images, "pixels"), width(images, "gist"), width(images, "small")
    (192, 512, 256)
    """
    if name == "pixels":
        return images.size[0] * images.size[1] * 3
    return FEATURES if name == "gist" else _trunk_of(images, name).out_features


def check_features(name: str) -> None:
    """Raise a ValueError if `name` is not a name of features for `extract`.

    Examples
    --------
    >>> check_features("gist")
    >>> check_features("sift")
    Traceback (most recent call last):
    ValueError: unknown features 'sift'; choose from pixels, gist, alexnet, alexnet-skip, ...
    """
    if name not in ("pixels", "gist") and name.partition(":")[0] not in list_backbones():
        backbones = ", ".join(list_backbones())
        raise ValueError(f"unknown features {name!r}; choose from pixels, gist, {backbones}")


def _trunk_of(images: ImageSet, name: str) -> Trunk:
    check_features(name)
    return trunk_for(images, name)
