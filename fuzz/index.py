"""Index files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bitprint.codes import Codes
from bitprint.search.index import Index
from fuzz.harness import Target
from fuzz.samples import written


def parse(data: bytes, folder: Path) -> object:
    """Open an index, and read all that it holds."""
    path = folder / "a.bp"
    for part in folder.glob("a.bp*"):
        part.unlink()
    path.write_bytes(data)
    with Index.open(path) as index:
        ids = index.ids().tolist()
        codes = index.codes(ids) if ids else None
        return ids, codes, index.items(ids), index.labels(), index.attachments(), index.model


def seeds() -> list[bytes]:
    """An index with rows of every kind, and one without any."""
    return [written(_fill), written(lambda path: Index.create(path, 12).close())]


def _fill(path: Path) -> None:
    codes = Codes(np.random.default_rng(0).integers(0, 256, (90, 2), np.uint8), 16)
    with Index.create(path, 16, model="itq") as index:
        names = [f"{number}.png" for number in range(90)]
        index.add(names, codes, names, [[str(number % 3)] for number in range(90)])
        index.remove(names[::7])
        index.attach({"note": b"kept"})


TARGET = Target(parse, seeds)
