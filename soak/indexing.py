"""Indexing and compaction: a writer is killed; each call that returned is there, none is half."""

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
from soak.rounds import Kind, Round, check
from soak.victims import Acknowledge, Victim

BITS = 40
_LONGEST_LIFE = 0.3
_ROUNDS_PER_FILE = 10

Call = tuple[str, list[int]]


class Indexing(Kind):
    """Batches are added, replaced and removed; now and then the file is compacted."""

    name = "indexing"
    compactions = 0.1

    def prepare(self) -> None:
        """Start without a file."""
        self._rounds = 0

    def strike(self) -> Round:
        """Kill one writer."""
        if self._rounds % _ROUNDS_PER_FILE == 0:
            self._path = self.folder / f"{self._rounds}.bp"
            Index.create(self._path, BITS).close()
            self._held: list[int] = []
        self._rounds += 1
        seed = self.rng.randrange(10**6)
        victim = Victim(write, self._path, seed, self._held, self.compactions)
        if self.rng.random() < 0.9:  # the others are killed while they open the file
            victim.wait_for_one()
        time.sleep(self.rng.uniform(0, _LONGEST_LIFE))
        victim.kill()
        done = len(victim.acknowledged)
        found = stored_ids(self._path)
        before, after = states(seed, self._held, self.compactions, done)
        check(
            found in (before, after),
            f"{done} calls were acknowledged, and the index holds neither what they left nor what "
            f"the next would leave (seed {seed})",
        )
        self._held = sorted(found)
        return Round(faults=1, checked=done)


class Compaction(Indexing):
    """Nearly every second call compacts."""

    name = "compaction"
    compactions = 0.6


def plan(seed: int, held: Sequence[int], compactions: float) -> Iterator[Call]:
    """Give an endless list of calls, which the seed and what is held decide."""
    rng = random.Random(seed)
    batches = [list(held)] if held else []
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
    acknowledge: Acknowledge, path: Path, seed: int, held: Sequence[int], compactions: float
) -> None:
    """Carry out a plan until killed, and acknowledge each call that has returned."""
    with Index.open(path) as index:
        for kind, ids in plan(seed, held, compactions):
            if kind == "add":
                labels = [[str(key % 3)] for key in ids]
                index.add(ids, codes_of(ids), [f"{key}.png" for key in ids], labels)
            elif kind == "remove":
                index.remove(ids)
            else:
                index.compact()
            acknowledge(kind)


def states(
    seed: int, held: Sequence[int], compactions: float, done: int
) -> tuple[set[int], set[int]]:
    """Return what the first `done` calls of a plan leave, and what the next one would leave."""
    after = set(held)
    for number, (kind, ids) in enumerate(plan(seed, held, compactions)):
        before = set(after)
        after = after - set(ids) if kind == "remove" else after | set(ids)
        if number == done:
            break
    return before, after


def stored_ids(path: Path) -> set[int]:
    """Return the ids of an index, having checked codes, paths, labels and the database itself."""
    with Index.open(path) as index:
        ids = index.ids().tolist()
        check(len(index) == len(set(ids)) == len(ids), "ids are counted wrongly or twice")
        if ids:
            check(index.codes(ids) == codes_of(ids), "codes differ from those that were added")
        expected = [(f"{key}.png", (str(key % 3),)) for key in ids]
        items = [tuple(item) for item in index.items(ids)]
        check(items == expected, "paths or labels differ from those that were added")
    with contextlib.closing(sqlite3.connect(path)) as database:
        verdict = database.execute("PRAGMA integrity_check").fetchone()
    check(verdict == ("ok",), f"the database is not sound: {verdict}")
    return set(ids)


def codes_of(ids: Sequence[int]) -> Codes:
    """Return the codes of ids, which anybody can tell from the ids alone."""
    rows = [np.random.default_rng(key).integers(0, 256, BITS // 8, np.uint8) for key in ids]
    return Codes(np.array(rows, np.uint8).reshape(-1, BITS // 8), BITS)
