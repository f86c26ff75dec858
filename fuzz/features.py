"""Features cached beside an index."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np

from bitprint.photos.files import Picture
from bitprint.photos.kept import KeptFeatures
from fuzz.harness import Target, file_bytes
from fuzz.mutating import change_json

_SHAPES = ((), (0, 2), (3,), (2, 2), (3, 2), (3, 2, 1))
_DTYPES = ("f4", "f8", "u1", "c8", "S3", "M8[s]")


def parse(data: bytes, folder: Path) -> object:
    """Read one file of features."""
    (folder / "000000.npz").write_bytes(data)
    return KeptFeatures(folder, "digest")


def seeds() -> list[bytes]:
    """Return features of three images."""

    def keep(path: Path) -> None:
        images = [Picture(f"/{number}.png", number, number) for number in range(3)]
        KeptFeatures(path.parent, "digest").keep(images, np.ones((3, 2), np.float32))
        (path.parent / "000000.npz").rename(path)

    return [file_bytes(keep)]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change one of the two arrays, and write a valid archive."""
    with np.load(io.BytesIO(data)) as arrays:
        features, about = arrays["features"], arrays["about"].tobytes()
    if rng.random() < 0.7:
        about = change_json(about, rng)
    else:
        shape, dtype = rng.choice(_SHAPES), rng.choice(_DTYPES)
        features = np.zeros(shape, dtype)
    content = io.BytesIO()
    np.savez(content, features=features, about=np.frombuffer(about, np.uint8))
    return content.getvalue()


TARGET = Target(parse, seeds, mutate)
