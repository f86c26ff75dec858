"""NUS-WIDE: the list of images and the labels of one concept, separated by a null byte."""

from __future__ import annotations

from pathlib import Path

from bitprint.data.nuswide import CONCEPTS, IMAGE_LIST, frequent_concepts, read_nuswide_labels
from fuzz.harness import Target


def parse(data: bytes, folder: Path) -> object:
    """Read both files, and find the images with the concept."""
    listing, _, labels = data.partition(b"\0")
    for name, content in ((IMAGE_LIST, listing), (f"{CONCEPTS}/Labels_sky.txt", labels)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    names, matrix, paths = read_nuswide_labels(folder)
    return frequent_concepts(matrix, names, 1), paths


def seeds() -> list[bytes]:
    """Return lists with both kinds of line ends."""
    return [
        b"actor\\0001_1.jpg\nactor\\0001_2.jpg\nzoo\\9_3.jpg\n\x001\n0\n1\n",
        b"actor/0001_1.jpg\r\ncaf\xc3\xa9/2.jpg\r\n\x000\r\n1\r\n",
    ]


TARGET = Target(parse, seeds)
