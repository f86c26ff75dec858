"""Power failures: whatever was not synced is lost, wholly or in parts and in any order.

A child writes indexes, codes and models while a preloaded library records each write, sync and
change of a name (`trace.c`). The trace is replayed on a simulated disk up to a random operation;
what is then left must contain all that the child had acknowledged.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from bitprint.codes import Codes
from bitprint.methods import create, load
from bitprint.search.copying import copy_index
from bitprint.search.index import Index
from soak.indexing import BITS, codes_of, plan, states, stored_ids
from soak.rounds import FaultKind, Round, check
from soak.simulated import Disk, Operation, everything, losing, read_trace

_CUTS = 50
_CALLS = 25  # of the index
_VERSIONS = 3  # of the codes and the model
_COMPACTIONS = 0.15
_SESSION = 4  # calls until the index is closed and opened again


class PowerFaults(FaultKind):
    """Each round records one child, and cuts the power 50 times."""

    name = "power"

    @classmethod
    def missing(cls) -> list[str]:
        """Return what is required and not installed."""
        return [
            *(["Linux"] if sys.platform != "linux" else []),
            *(["gcc"] if shutil.which("gcc") is None else []),
        ]

    def prepare(self) -> None:
        """Compile the library that records."""
        self._library = compile_library(self.folder)
        self._rounds = 0

    def inject(self) -> Round:
        """Record a child, and check what is left after each cut."""
        self._rounds += 1
        seed = self.rng.randrange(10**6)
        folder = self.folder / str(self._rounds)
        trace = record(self._library, folder, seed)
        checked = cut_often(folder, trace, seed, _CUTS, self.rng)
        shutil.rmtree(folder)
        return Round(faults=_CUTS, checked=checked)


def compile_library(folder: Path) -> Path:
    """Compile `trace.c`."""
    library = folder / "trace.so"
    source = Path(__file__).with_name("trace.c")
    command = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def record(library: Path, folder: Path, seed: int) -> list[Operation]:
    """Let a child write into a new folder; return its operations."""
    folder.mkdir()
    trace = folder.with_name(f"{folder.name}.trace")
    environment = os.environ | {"LD_PRELOAD": str(library), "TRACED": str(folder)}
    subprocess.run(
        [sys.executable, "-m", "soak.power", folder, str(seed)],
        cwd=Path(__file__).parents[1],
        env=environment | {"TRACE": str(trace)},
        check=True,
    )
    operations = list(read_trace(trace))
    trace.unlink()
    check_complete(folder, operations)
    return operations


def check_complete(folder: Path, operations: list[Operation]) -> None:
    """Raise AssertionError unless the trace has the same effect as the child had."""
    disk, copy = Disk(folder), folder.with_name(f"{folder.name}.copy")
    for operation in operations:
        disk.apply(operation)
    disk.write(copy, everything)
    check(_contents(copy) == _contents(folder), "the trace is incomplete")
    shutil.rmtree(copy)


def _contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def cut_often(
    folder: Path, operations: list[Operation], seed: int, cuts: int, rng: random.Random
) -> int:
    """Cut the power before random operations; return the number of acknowledgements checked."""
    places = sorted(rng.randrange(len(operations) + 1) for _ in range(cuts))
    disk, done, checked = Disk(folder), 0, 0
    acknowledged: Counter[str] = Counter()
    left = folder.with_name(f"{folder.name}.left")
    for place in places:
        for operation in operations[done:place]:
            disk.apply(operation)
            acknowledged.update(_acknowledgement(operation))
        done = place
        disk.write(left, losing(rng))
        try:
            check_left(left, seed, acknowledged)
        except Exception as error:
            raise AssertionError(f"seed {seed}, operation {place}: {error}") from error
        finally:
            shutil.rmtree(left)
        checked += acknowledged.total()
    return checked


def _acknowledgement(operation: Operation) -> Iterator[str]:
    if operation.kind == "M" and operation.data.startswith(b"did "):
        yield operation.data.decode().split()[1]


def work(folder: Path, seed: int) -> None:
    """Write an index, a copy of it, codes and a model; acknowledge each step."""
    number = 0

    def acknowledge(what: str) -> None:
        nonlocal number
        number += 1
        (folder / f"did {what} {number}").mkdir()  # appears in the trace

    Index.create(folder / "a.bp", BITS).close()
    acknowledge("index")
    index = Index.open(folder / "a.bp")
    for call, (kind, ids) in enumerate(islice(plan(seed, [], _COMPACTIONS), _CALLS)):
        if call % _SESSION == _SESSION - 1:
            index.close()
            index = Index.open(folder / "a.bp")
        if kind == "compact":
            index.compact()
        else:
            with index.transaction():
                _change(index, kind, ids)
                index.attach({"calls": str(call + 1).encode()})
        acknowledge("index")
    copy_index(folder / "a.bp", folder / "b.bp")
    acknowledge("copy")
    index.close()
    for version in range(_VERSIONS):
        _codes(version).save(folder / "new" / "codes")
        acknowledge("codes")
        create("lsh", bits=8, seed=version).fit(_FEATURES).save(folder / "new" / "deep" / "model")
        acknowledge("model")


_FEATURES = np.random.default_rng(0).normal(size=(9, 500)).astype(np.float32)


def _change(index: Index, kind: str, ids: list[int]) -> None:
    if kind == "add":
        labels = [[str(key % 3)] for key in ids]
        index.add(ids, codes_of(ids), [f"{key}.png" for key in ids], labels)
    else:
        index.remove(ids)


def _codes(version: int) -> Codes:
    return codes_of(range(version, version + 500))


def check_left(folder: Path, seed: int, acknowledged: Counter[str]) -> None:
    """Check that all acknowledged steps are there, and that the next one is whole or absent."""
    if (folder / "a.bp").exists() or acknowledged["index"]:
        _check_index(folder, seed, acknowledged["index"])
    if (folder / "b.bp").exists() or acknowledged["copy"]:
        copied = copy_index(folder / "a.bp", folder / "b.bp")
        check(stored_ids(folder / "b.bp") == stored_ids(folder / "a.bp"), "the copy differs")
        check(not acknowledged["copy"] or copied.new == 0, "a copy is unfinished")
    codes, model = folder / "new" / "codes", folder / "new" / "deep" / "model"
    if codes.exists() or acknowledged["codes"]:
        found, done = Codes.load(codes), acknowledged["codes"]
        check(found in (_codes(max(done - 1, 0)), _codes(done)), "codes are lost")
    if (model / "model.json").exists() or acknowledged["model"]:
        loaded, done = load(model), acknowledged["model"]
        check(loaded.seed in (done - 1, done), "a model is lost")
        expected = create("lsh", bits=8, seed=loaded.seed).fit(_FEATURES)
        check(loaded.encode(_FEATURES) == expected.encode(_FEATURES), "a model differs")


def _check_index(folder: Path, seed: int, done: int) -> None:
    found = stored_ids(folder / "a.bp")
    if done == 0:
        check(found == set(), "a new index is not empty")
        return
    with Index.open(folder / "a.bp") as index:
        noted = int(index.attachments().get("calls", b"0"))
    calls = [kind for kind, _ in islice(plan(seed, [], _COMPACTIONS), done)]
    changes = [0, *(number for number, kind in enumerate(calls, 1) if kind != "compact")]
    before, after = states(seed, [], _COMPACTIONS, done - 1)
    check(
        (found, noted) in [(before, max(n for n in changes if n < done)), (after, changes[-1])],
        f"the index matches neither {done - 1} acknowledged calls nor the next one",
    )


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
