"""Image sets, decoding of image files, and protocols."""

from __future__ import annotations

import os
from pathlib import Path

from bitprint.data.cifar10 import load_cifar10
from bitprint.data.cifar10_fetch import fetch_cifar10
from bitprint.data.decoding import Progress, decode_image
from bitprint.data.digits import load_digits
from bitprint.data.folder import load_folder
from bitprint.data.home import data_home
from bitprint.data.images import ImageSet
from bitprint.data.nuswide import load_nuswide
from bitprint.data.protocols import split_for
from bitprint.data.shapes import draw_shapes
from bitprint.data.split import Split

__all__ = [
    "ImageSet",
    "Split",
    "data_home",
    "decode_image",
    "draw_shapes",
    "fetch_cifar10",
    "load_cifar10",
    "load_digits",
    "load_folder",
    "load_nuswide",
    "open_images",
    "split_for",
]

SHAPES_COUNT = 4_000
BUILT_IN = ("digits", "shapes", "cifar10", "nuswide")


def open_images(
    name: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    size: int = 256,
    progress: Progress | None = None,
) -> ImageSet:
    """Open a built-in image set or a folder of images.

    Parameters
    ----------
    name : str or path
        "digits", "shapes", "cifar10", "nuswide", or a folder of images.
    labels : path, optional
        CSV file with the labels of the images of a folder, and optionally their split.
    size : int
        Height and width to which the images of a folder are resized.
    progress : callable, optional
        Called with (done, total) while images are decoded.

    Returns
    -------
    ImageSet

    Examples
    --------
    >>> len(open_images("digits"))
    1797
    """
    if not isinstance(name, str | os.PathLike):
        raise ValueError(
            f"open_images needs the name of a set or a folder, got {type(name).__name__}; for "
            "arrays use bp.ImageSet(pixels, labels)"
        )
    if name in BUILT_IN and labels is not None:
        raise ValueError(f"labels are for folders only; to open a folder of this name use ./{name}")
    if name == "digits":
        return load_digits()
    if name == "shapes":
        return draw_shapes(SHAPES_COUNT)
    if name == "cifar10":
        return load_cifar10()
    cache = data_home() / "decoded"
    if name == "nuswide":
        return load_nuswide(cache=cache, progress=progress)
    folder = Path(name).expanduser()
    if not os.fspath(name) or not folder.is_dir():
        reason = "a file, not a folder" if folder.is_file() else "no such folder"
        raise FileNotFoundError(
            f"{name}: {reason}; use a folder of images, or a built-in set: {', '.join(BUILT_IN)}"
        )
    return load_folder(folder, labels=labels, size=size, cache=cache, progress=progress)
