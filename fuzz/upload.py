"""Uploads: pictures that anybody may have sent."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
from PIL import Image

from bitprint.data.formats import PLAIN
from bitprint.web.pictures import Thumbnails, decode_upload
from fuzz.harness import Target
from fuzz.mutating import change_in_place
from fuzz.png import mend_png

_MOST_PIXELS = 100_000


def parse(data: bytes, folder: Path) -> object:
    """Decode an upload, and make a thumbnail of the same bytes as a file."""
    path = folder / "picture"
    path.write_bytes(data)
    pixels = decode_upload(data, 8, _MOST_PIXELS)
    with path.open("rb") as file:
        return pixels, Thumbnails(_MOST_PIXELS).get(file)


def seeds() -> list[bytes]:
    """One small picture of each format."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), np.uint8)
    samples = []
    for kind in PLAIN:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG" if kind == "MPO" else kind)
        samples.append(file.getvalue())
    return samples


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change bytes of a picture; the chunks of a PNG have sums that fit."""
    return mend_png(change_in_place(data, rng))


TARGET = Target(parse, seeds, mutate, names_file=False)
