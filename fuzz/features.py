"""Features that are kept beside an index."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bitprint.photos.files import Picture
from bitprint.photos.kept import KeptFeatures
from fuzz.harness import Target
from fuzz.samples import written


def parse(data: bytes, folder: Path) -> object:
    """Read the features of one part."""
    (folder / "000000.npz").write_bytes(data)
    return KeptFeatures(folder, "digest")


def seeds() -> list[bytes]:
    """Features of three pictures."""

    def keep(path: Path) -> None:
        pictures = [Picture(f"/{number}.png", number, number) for number in range(3)]
        KeptFeatures(path.parent, "digest").keep(pictures, np.ones((3, 2), np.float32))
        (path.parent / "000000.npz").rename(path)

    return [written(keep)]


TARGET = Target(parse, seeds)
