"""CSV tables: labels of a folder, and lists of pictures."""

from __future__ import annotations

from pathlib import Path

from bitprint.data.folder import _read_csv
from bitprint.photos.files import list_pictures
from fuzz.harness import Target


def parse(data: bytes, folder: Path) -> object:
    """Read a table in both ways, the first byte deciding which."""
    path = folder / "table.csv"
    path.write_bytes(data[1:])
    return _read_csv(path) if data[:1] == b"l" else list_pictures(path)


def seeds() -> list[bytes]:
    """Tables with one label, with several, with a split, with quotes, and in two encodings."""
    tables = [
        "file,label\na.png,cat\nb.png,dog\n",
        'file,labels,split\n"a, b.png",cat|dog,train\nsub/c.png,,query\n',
        "\N{BYTE ORDER MARK}file,label\r\ncaf\N{LATIN SMALL LETTER E WITH ACUTE}.png,cat\r\n",
    ]
    return [kind + table.encode() for table in tables for kind in (b"l", b"p")]


TARGET = Target(parse, seeds)
