"""Disk faults: the disk is full during a write; old files must stay intact."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bitprint.codes import Codes
from bitprint.methods import create
from bitprint.search.index import Index
from bitprint.training.run import RunFolder
from bitprint.training.state import State
from soak.indexing import BITS, codes_of, stored_ids
from soak.processes import Acknowledge, Child
from soak.rounds import FaultKind, Round, check

_FULL = "full"
_SMALL, _LARGE = 40, 2000


class DiskFaults(FaultKind):
    """A random limit on the file size simulates a full disk."""

    name = "disk"

    def prepare(self) -> None:
        """Write one small file of each format."""
        self._rounds = 0
        self._kept = self.folder / "kept"
        self._kept.mkdir()
        for write in WRITERS:
            write(self._kept, _SMALL)
        self._contents = read_all(self._kept)

    def inject(self) -> Round:
        """Fill an index until the disk is full, then overwrite each small file by a larger one."""
        self._rounds += 1
        path = self.folder / f"{self._rounds}.bp"
        Index.create(path, BITS).close()
        limit = self.rng.randrange(100_000, 1_000_000)
        filler = Child(fill_index, path, limit)
        filler.finish()
        batches = len(filler.acknowledged)
        check(
            stored_ids(path) == set(range(2 * batches)),
            f"{path}: differs from the {batches} acknowledged batches (limit {limit})",
        )
        limit = self.rng.randrange(1_000, 12_000)
        overwriter = Child(overwrite, self._kept, limit)
        overwriter.finish()
        refused = overwriter.acknowledged.count(_FULL)
        check(refused == len(WRITERS), f"{refused} of {len(WRITERS)} writes failed (full disk)")
        found = {name: content for name, content in read_all(self._kept).items()}
        left = {name: found.get(name) for name in self._contents}
        check(left == self._contents, f"an old file was changed (limit {limit})")
        return Round(faults=1 + refused, checked=batches + len(WRITERS))


def fill_index(acknowledge: Acknowledge, path: Path, limit: int) -> None:
    """Add batches of two codes until the disk is full; acknowledged batches must remain."""
    with Index.open(path) as index:
        _limit_files(limit)
        number = 0
        while True:
            ids = [2 * number, 2 * number + 1]
            labels = [[str(key % 3)] for key in ids]
            try:
                index.add(ids, codes_of(ids), [f"{key}.png" for key in ids], labels)
            except OSError as error:
                check("the disk failed or is full" in str(error), f"unclear error: {error}")
                break
            acknowledge(str(number))
            number += 1
        check(index.ids().tolist() == list(range(2 * number)), "stored codes are lost")


def overwrite(acknowledge: Acknowledge, folder: Path, limit: int) -> None:
    """Overwrite each small file by a large one on a full disk."""
    _limit_files(limit)
    for write in WRITERS:
        try:
            write(folder, _LARGE)
        except OSError:
            acknowledge(_FULL)


def write_codes(folder: Path, size: int) -> None:
    """Write `size` codes of 64 bits."""
    Codes(np.full((size, 8), 7, np.uint8), 64).save(folder / "codes")


def write_model(folder: Path, size: int) -> None:
    """Write a model with `size` input features."""
    features = np.random.default_rng(0).normal(size=(9, size))
    create("lsh", bits=8).fit(features).save(folder / "model")


def write_checkpoint(folder: Path, size: int) -> None:
    """Write the checkpoint of a network with `size` inputs."""
    net = nn.Linear(size, 4)
    nn.init.constant_(net.weight, size)
    nn.init.constant_(net.bias, size)
    state = State(torch.arange(5), torch.eye(5), batch_size=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    RunFolder(folder / "run", "soak").save([{"epoch": 1}], net, optimizer, state)


WRITERS: list[Callable[[Path, int], None]] = [write_codes, write_model, write_checkpoint]


def read_all(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _limit_files(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
