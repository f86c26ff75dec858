"""Untrusted image uploads."""

from __future__ import annotations

import io
import random
from pathlib import Path

import numpy as np
from PIL import Image

from bitprint.data.formats import PLAIN
from bitprint.data.untrusted import decode_stored, decode_upload
from fuzz.bombs import bmp, one_tile, png, slow_bmp, webp
from fuzz.harness import Target
from fuzz.mutating import change_in_place, fix_png_checksums

_MOST_PIXELS = 100_000


def parse(data: bytes, folder: Path) -> object:
    """Decode an upload, and create a thumbnail of the same bytes as a file."""
    path = folder / "picture"
    path.write_bytes(data)
    pixels = decode_upload(data, 8, _MOST_PIXELS)
    with path.open("rb") as file:
        return pixels, decode_stored(file, 8, _MOST_PIXELS)


def seeds() -> list[bytes]:
    """Return small images of each format, plain ones and ones that decode to far more bytes."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 9, 3), np.uint8)
    samples = [png(9, 12, kind=3, rows=12), webp(9, 12), bmp(9, 12), slow_bmp(9, 12)]
    samples.append(one_tile(9, 12, 16))
    for kind in PLAIN:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        samples.append(file.getvalue())
    return samples


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change bytes of an image, and fix the checksums of a PNG."""
    return fix_png_checksums(change_in_place(data, rng))


TARGET = Target(parse, seeds, mutate, names_file=False)
