"""CIFAR-10: 60,000 images in 10 classes, from the official binary files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np

from bitprint.data.decoding import Progress
from bitprint.data.home import data_home
from bitprint.data.images import ImageSet

# MD5 of each official file of the binary version.
FILES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
LABEL_NAMES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
ROW_BYTES = 1 + 3 * 32 * 32
"""Bytes per image: label, then 1,024 red, 1,024 green and 1,024 blue values."""


def load_cifar10(
    root: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
) -> ImageSet:
    """Load CIFAR-10 from its six official `.bin` files and verify their MD5.

    Parameters
    ----------
    root : path, optional
        Folder of the files; "cifar10" in `data_home` by default.
    progress : callable, optional
        Called with the number of files read, and 6.

    Returns
    -------
    ImageSet
        The five training batches, then the test batch. Ids have the form "data_batch_1/0".

    Examples
    --------
    >>> load_cifar10("empty")
    Traceback (most recent call last):
    FileNotFoundError: empty/data_batch_1.bin: no such file; run: bitprint data cifar10
    """
    root = cifar10_home(root)
    pixels, labels, ids = [], [], []
    for done, (name, md5) in enumerate(FILES.items(), start=1):
        file = root / name
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file; run: bitprint data cifar10")
        content = file.read_bytes()
        if digest_of(content) != md5:
            raise ValueError(
                f"{file}: not the official file (wrong MD5); run: bitprint data cifar10"
            )
        rows = np.frombuffer(content, np.uint8).reshape(-1, ROW_BYTES)
        labels.append(rows[:, 0])
        pixels.append(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        ids += [f"{file.stem}/{row}" for row in range(len(rows))]
        if progress is not None:
            progress(done, len(FILES))
    return ImageSet(
        np.ascontiguousarray(np.concatenate(pixels)),
        labels=np.concatenate(labels),
        ids=ids,
        label_names=list(LABEL_NAMES),
        name="cifar10",
        protocol="cifar10",
    )


def cifar10_home(root: str | os.PathLike[str] | None) -> Path:
    """Return the folder of the six files: `root`, or "cifar10" in `data_home` if None."""
    return data_home() / "cifar10" if root is None else Path(root)


def digest_of(content: bytes) -> str:
    """Return the MD5, the checksum published by the authors of CIFAR-10."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
