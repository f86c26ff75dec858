"""Indexing and compaction faults: kill a writer; each call must be stored fully or not at all."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bitprint.codes import Codes
from bitprint.search.index import Index
from soak.processes import Acknowledge, Child
from soak.rounds import FaultKind, Round, check

BITS = 40
_LONGEST_LIFE = 0.3
_ROUNDS_PER_FILE = 10

Call = tuple[str, list[int]]


class IndexingFaults(FaultKind):
    """Batches are added, replaced and removed; the file is compacted occasionally."""

    name = "indexing"
    compactions = 0.1

    def prepare(self) -> None:
        """Start without a file."""
        self._rounds = 0

    def inject(self) -> Round:
        """Kill one writer."""
        if self._rounds % _ROUNDS_PER_FILE == 0:
            self._path = self.folder / f"{self._rounds}.bp"
            Index.create(self._path, BITS).close()
            self._stored: list[int] = []
        self._rounds += 1
        seed = self.rng.randrange(10**6)
        writer = Child(write, self._path, seed, self._stored, self.compactions)
        if self.rng.random() < 0.9:  # the other writers are killed while they open the file
            writer.wait_for_one()
        time.sleep(self.rng.uniform(0, _LONGEST_LIFE))
        writer.kill()
        done = len(writer.acknowledged)
        found = stored_ids(self._path)
        before, after = states(seed, self._stored, self.compactions, done)
        check(
            found in (before, after),
            f"after {done} acknowledged calls, the index matches neither their result nor that of "
            f"the next call (seed {seed})",
        )
        self._stored = sorted(found)
        return Round(faults=1, checked=done)


class CompactionFaults(IndexingFaults):
    """More than half of the calls compact the file."""

    name = "compaction"
    compactions = 0.6


def plan(seed: int, stored: Sequence[int], compactions: float) -> Iterator[Call]:
    """Yield an endless sequence of calls, determined by the seed and the stored ids."""
    rng = random.Random(seed)
    batches = [list(stored)] if stored else []
    number = 0
    while True:
        kind = rng.random()
        if kind < compactions:
            yield "compact", []
        elif batches and rng.random() < 0.3:
            yield "remove", batches.pop(rng.randrange(len(batches)))
        else:
            number += 1
            first = seed * 10**6 + number * 100
            ids = list(range(first, first + rng.randint(1, 60)))
            if batches and rng.random() < 0.3:
                ids += batches.pop(rng.randrange(len(batches)))  # these are replaced
            batches.append(ids)
            yield "add", ids


def write(
    acknowledge: Acknowledge, path: Path, seed: int, stored: Sequence[int], compactions: float
) -> None:
    """Run a plan until killed, and acknowledge each call after it returns."""
    with Index.open(path) as index:
        for kind, ids in plan(seed, stored, compactions):
            if kind == "add":
                labels = [[str(key % 3)] for key in ids]
                index.add(ids, codes_of(ids), [f"{key}.png" for key in ids], labels)
            elif kind == "remove":
                index.remove(ids)
            else:
                index.compact()
            acknowledge(kind)


def states(
    seed: int, stored: Sequence[int], compactions: float, done: int
) -> tuple[set[int], set[int]]:
    """Return the ids stored after `done` calls of a plan, and after the next call."""
    after = set(stored)
    for number, (kind, ids) in enumerate(plan(seed, stored, compactions)):
        before = set(after)
        after = after - set(ids) if kind == "remove" else after | set(ids)
        if number == done:
            break
    return before, after


def stored_ids(path: Path) -> set[int]:
    """Check codes, paths, labels and the database of an index, and return its ids."""
    with Index.open(path) as index:
        ids = index.ids().tolist()
        check(len(index) == len(set(ids)) == len(ids), "ids are duplicated or miscounted")
        if ids:
            check(index.codes(ids) == codes_of(ids), "codes differ from those that were added")
        expected = [(f"{key}.png", (str(key % 3),)) for key in ids]
        items = [tuple(item) for item in index.items(ids)]
        check(items == expected, "paths or labels differ from those that were added")
    with contextlib.closing(sqlite3.connect(path)) as database:
        verdict = database.execute("PRAGMA integrity_check").fetchone()
    check(verdict == ("ok",), f"the integrity check of the database failed: {verdict}")
    return set(ids)


def codes_of(ids: Sequence[int]) -> Codes:
    """Return pseudo-random codes that are determined by their ids."""
    rows = [np.random.default_rng(key).integers(0, 256, BITS // 8, np.uint8) for key in ids]
    return Codes(np.array(rows, np.uint8).reshape(-1, BITS // 8), BITS)
