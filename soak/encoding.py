"""Encoding faults: kill `bitprint index add X FOLDER`; the index keeps its images and resumes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
from PIL import Image

from bitprint.codes import Codes
from bitprint.data import draw_shapes
from bitprint.methods import create
from bitprint.search.index import Index
from soak.processes import Child, run_command
from soak.rounds import FaultKind, Round, check

_IMAGES = 1100  # three batches written to an index
_SIDE = 16
_MOST_KILLS = 3


class EncodingFaults(FaultKind):
    """Each round fills a new index and kills the command while it runs."""

    name = "encoding"

    def prepare(self) -> None:
        """Generate images, fit a model, and encode the images once without a fault."""
        self._album, self._model = self.folder / "album", self.folder / "model"
        write_images(self._album, _IMAGES, self.rng)
        create("itq", bits=32).fit(draw_shapes(40, size=_SIDE)).save(self._model)
        self._rounds = 0
        undisturbed = self.folder / "undisturbed.bp"
        self._start(undisturbed).finish()
        self._expected = read_codes(undisturbed)
        check(len(self._expected) == _IMAGES, "an undisturbed command is incomplete")

    def inject(self) -> Round:
        """Kill the command up to three times, then let it finish; no visible code may be lost."""
        self._rounds += 1
        index = self.folder / f"{self._rounds}.bp"
        kills = checked = 0
        seen: dict[str, bytes] = {}
        for _ in range(self.rng.randint(1, _MOST_KILLS)):
            child = self._start(index)
            time.sleep(self.rng.uniform(0, 1.5))
            seen |= read_codes(index)
            kills += child.kill()
            found = read_codes(index)
            check(seen.items() <= found.items(), f"{index}: stored codes are lost")
            checked += len(seen)
            seen = found
        self._start(index).finish()
        check(read_codes(index) == self._expected, f"{index}: differs from an undisturbed run")
        return Round(faults=kills, checked=checked + _IMAGES)

    def _start(self, index: Path) -> Child:
        arguments = ["index", "add", str(index), str(self._album), "--model", str(self._model)]
        return Child(run_command, arguments, self.folder / "log.txt")


def write_images(folder: Path, count: int, rng: random.Random) -> list[Path]:
    """Write PNG files of random noise; return their paths."""
    folder.mkdir()
    pixels = np.random.default_rng(rng.randrange(2**32))
    paths = []
    for number in range(count):
        square = pixels.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)
        paths.append(folder / f"{number:05d}.png")
        Image.fromarray(square).save(paths[-1], compress_level=0)
    return paths


def read_codes(path: Path) -> dict[str, bytes]:
    """Return the codes of an index by id; empty if there is no file yet."""
    if not path.exists():
        return {}
    with Index.open(path) as index:
        ids = index.ids().tolist()
        codes = index.codes(ids) if ids else Codes(np.empty((0, 4), np.uint8), 32)
    return {name: row.tobytes() for name, row in zip(ids, codes.packed, strict=True)}
