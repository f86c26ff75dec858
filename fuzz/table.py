"""CSV tables of labels ("l" as the first byte) and CSV lists of images ("p")."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from bitprint.data import load_folder
from bitprint.photos.files import list_pictures
from fuzz.harness import Target

_IMAGE = "a.png"


def parse(data: bytes, folder: Path) -> object:
    """Load or list the images of a table; only one of them exists."""
    if not (folder / _IMAGE).exists():
        Image.new("RGB", (2, 2)).save(folder / _IMAGE)
    path = folder / "table.csv"
    path.write_bytes(data[1:])
    return load_folder(folder, labels=path, size=2) if data[:1] == b"l" else list_pictures(path)


def seeds() -> list[bytes]:
    """Return tables with one or several labels, with a split, with quotes and with a BOM."""
    tables = [
        "file,label\na.png,cat\nb.png,dog\n",
        'file,labels,split\n"a, b.png",cat|dog,train\na.png,,query\n',
        "\N{BYTE ORDER MARK}file,label\r\na.png,caf\N{LATIN SMALL LETTER E WITH ACUTE}\r\n",
        f"file,label\na.png,cat\n{'x' * 300}.png,too long\n",
    ]
    return [kind + table.encode() for table in tables for kind in (b"l", b"p")]


TARGET = Target(parse, seeds)
