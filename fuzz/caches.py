"""Cached decoded images, with the list of unreadable files, and cached features.

The first byte is the kind of cache. "d" is followed by the length of the list (four bytes), the
list and the images; "f" is followed by the features.
"""

from __future__ import annotations

import io
import json
import random
import struct
from pathlib import Path

import numpy as np

from bitprint.data import decoded
from bitprint.features import cache
from fuzz.harness import Target
from fuzz.mutating import change_in_place, change_json

_SHAPE = (2, 4, 4, 3)


def parse(data: bytes, folder: Path) -> object:
    """Read a cache."""
    pixels_file, skipped_file = folder / "pixels.npy", folder / "skipped.json"
    if data[:1] == b"f":
        pixels_file.write_bytes(data[1:])
        return cache._read(pixels_file, 3).sum()
    skipped, pixels = _parts(data)
    skipped_file.write_bytes(skipped)
    pixels_file.write_bytes(pixels)
    found, names = decoded._read_cache(pixels_file, skipped_file, _SHAPE)
    return found.sum(), names


def seeds() -> list[bytes]:
    """Return a cache of two images and one unreadable file, and a cache of three features."""
    skipped = json.dumps([("c.png", "no such file")]).encode()
    return [
        _joined(skipped, _npy(np.ones(_SHAPE, np.uint8))),
        b"f" + _npy(np.ones((3, 5), np.float32)),
    ]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change the list, or some bytes of an array without changing its length."""
    if data[:1] == b"f":
        return b"f" + change_in_place(data[1:], rng)
    skipped, pixels = _parts(data)
    if rng.random() < 0.5:
        return _joined(change_json(skipped, rng), pixels)
    return _joined(skipped, change_in_place(pixels, rng))


def _parts(data: bytes) -> tuple[bytes, bytes]:
    end = 5 + int.from_bytes(data[1:5], "little")
    return data[5:end], data[end:]


def _joined(skipped: bytes, pixels: bytes) -> bytes:
    return b"d" + struct.pack("<I", len(skipped)) + skipped + pixels


def _npy(array: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.save(content, array, allow_pickle=False)
    return content.getvalue()


TARGET = Target(parse, seeds, mutate)
