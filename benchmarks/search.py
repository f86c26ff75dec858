"""Compare search with faiss, usearch and NumPy in one run; the last line shows the budgets.

    python benchmarks/search.py --csv results/search.csv --plot results/search.png

    python benchmarks/search.py --grid --threads 1 --csv results/search_grid.csv \
        --plot results/search_grid.png

The second command measures the cells of a grid of sizes, lengths, tasks and numbers of queries,
uniform and clustered, and prints the ratio of each. Run it again to continue: cells that the file
contains are skipped.

Codes are random; each query differs from a code in two bits. All engines use the same number of
threads. Their results are compared before they are timed. Engines run in turn; times are medians.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from bitprint.bench import grid
from bitprint.bench.engines import (
    Engine,
    Nearest,
    Packed,
    Within,
    faiss_flat,
    faiss_hash,
    faiss_ivf,
    faiss_within,
    numkong_packed,
    prepared,
    set_threads,
)
from bitprint.bench.files import build_index
from bitprint.bench.measuring import BenchTask
from bitprint.bench.report import (
    budgets,
    file_table,
    installed_rivals,
    plot,
    run_bench,
    search_table,
    write_csv,
)
from bitprint.search.index import Index

SIZES = [59_000, 100_000, 1_000_000, 10_000_000]
BITS = [64, 12, 48, 128, 256]
OTHER_BITS_SIZE = 1_000_000
"""Number of codes for lengths other than 64 bits."""
RADIUS = 2
SAMPLE = 50
"""The time to build an index is estimated on one in this many codes."""

FAST_WIDTHS = (4, 8, 16, 20, 32, 64)
"""Bytes of codes for which faiss has its own loops."""
RIVAL_SIZES, RIVAL_BITS, RIVAL_QUERIES = (59_000, 1_000_000), (64, 256), (1, 128)
"""Cells of the grid in which the other engines run too."""

console = Console()


def main() -> None:
    given = parse()
    set_threads(given.threads)
    if given.grid:
        run_grid(given)
        return
    for package in ("faiss", "usearch"):
        if find_spec(package) is None:
            console.print(f"{package} is not installed and is skipped")
    tasks = [BenchTask(count, k) for count in given.queries for k in given.k]
    tasks += [BenchTask(count, radius=RADIUS) for count in given.queries]

    def rivals(packed: Packed, bits: int) -> Iterator[Engine]:
        yield from installed_rivals(packed, bits)
        if find_spec("usearch") is not None:
            yield usearch_exact(packed, given.threads)
        if find_spec("faiss") is not None:
            yield from multi_hash(packed, bits, given.build_cap)
            yield from hnsw(packed, given.build_cap)

    rows = []
    for bits in given.bits:
        for size in given.sizes if bits == 64 else [min(OTHER_BITS_SIZE, max(given.sizes))]:
            rows += run_bench(
                size,
                bits,
                tasks,
                rivals,
                repeats=given.repeats,
                cap=given.cap,
                progress=lambda line: console.print(line, style="dim", highlight=False),
            )
            if given.csv:
                write_csv([row | {"threads": given.threads} for row in rows], given.csv)
    console.print(file_table(rows), search_table(rows))
    if given.plot:
        plot(rows, given.plot)
    console.print("; ".join(map(str, budgets(rows))), highlight=False, soft_wrap=True)


def run_grid(given: argparse.Namespace) -> None:
    """Measure the missing cells until the time is over; print the ratios of all cells."""
    deadline = time.monotonic() + 60 * given.minutes
    missing = grid.cells(given.sizes, given.bits, given.queries, given.kinds)
    missing = [cell for cell in missing if cell not in grid.done_cells(given.csv)]
    databases = dict.fromkeys((cell.codes, cell.bits, cell.kind) for cell in missing)
    with tempfile.TemporaryDirectory() as temporary:
        for database in databases:
            if time.monotonic() > deadline:
                break
            folder = Path(given.folder or temporary)
            some = [cell for cell in missing if (cell.codes, cell.bits, cell.kind) == database]
            measure_database(some, folder, given, deadline)
    rows = grid.read_rows(given.csv)
    for cell, ratio in sorted(grid.ratios(rows).items(), key=lambda item: item[1]):
        console.print(f"{ratio:8.2f}  {cell}", highlight=False, soft_wrap=True)
    if given.plot:
        grid.plot_grid(rows, given.plot)


def measure_database(
    cells: list[grid.Cell], folder: Path, given: argparse.Namespace, deadline: float
) -> None:
    """Measure cells of the same database and append their rows to the file."""
    size, bits, kind = cells[0].codes, cells[0].bits, cells[0].kind
    packed = grid.grid_codes(size, bits, kind, given.seed)
    path = folder / f"{size}-{bits}-{kind}-{given.seed}.bp"
    if not path.exists():
        build_index(path, packed, bits)
    others = size in RIVAL_SIZES and bits in RIVAL_BITS
    with Index.open(path) as index:
        engines = [prepared(index), *faiss_flat(packed)]
        if bits // 8 not in FAST_WIDTHS:
            engines += faiss_flat(packed, min(w for w in FAST_WIDTHS if w > bits // 8))
        more = list(other_engines(packed, given.threads)) if others else []
        for cell in cells:
            if time.monotonic() > deadline:
                return
            run = engines + (more if cell.queries in RIVAL_QUERIES else [])
            settings = {"cap": given.cap, "threads": given.threads, "seed": given.seed}
            rows = grid.measure_cell(cell, packed, run, **settings)
            grid.append_rows(given.csv, rows)


def other_engines(packed: Packed, threads: int) -> Iterator[Engine]:
    """Return the engines that the ratios of the grid leave out."""
    yield usearch_exact(packed, threads)
    yield numkong_packed(packed)
    yield from faiss_ivf(packed)
    yield from faiss_hash(packed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="database sizes")
    parser.add_argument("--bits", nargs="+", type=int, default=BITS)
    parser.add_argument("--queries", nargs="+", type=int, default=[1, 16, 128, 1024])
    parser.add_argument("--k", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--cap", type=float, default=60, help="maximum seconds for an engine in a task"
    )
    parser.add_argument(
        "--build-cap", type=float, default=300, help="maximum seconds to build an index"
    )
    parser.add_argument("--grid", action="store_true", help="measure the grid, see above")
    parser.add_argument("--kinds", nargs="+", default=list(grid.KINDS), help="codes of the grid")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop the grid after this time")
    parser.add_argument("--seed", type=int, default=0, help="of the grid")
    parser.add_argument("--folder", type=Path, help="folder to keep the indexes of the grid in")
    parser.add_argument("--quick", action="store_true", help="short run: two sizes, few queries")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    quick = {
        "sizes": [100_000, 1_000_000],
        "bits": [64],
        "queries": [1, 128],
        "k": [100],
        "repeats": 3,
        "cap": 5.0,
        "build_cap": 10.0,
    }
    early = parser.parse_known_args()[0]
    if early.quick:
        parser.set_defaults(**quick)
    if early.grid:
        parser.set_defaults(
            sizes=grid.SIZES, bits=grid.BITS, cap=2.0, csv=Path("results/search_grid.csv")
        )
    return parser.parse_args()


def usearch_exact(packed: Packed, threads: int) -> Engine:
    usearch = importlib.import_module("usearch.index")

    def nearest(queries: Packed, k: int) -> Nearest:
        found = usearch.search(
            packed, queries, k, usearch.MetricKind.Hamming, exact=True, threads=threads
        )
        shape = (len(queries), k)  # usearch drops the first axis for one query
        return found.keys.reshape(shape).astype(np.int64), found.distances.reshape(shape)

    return Engine("usearch exact", nearest)


def multi_hash(packed: Packed, bits: int, cap: float) -> Iterator[Engine]:
    """Return multi-hash of faiss, with enough tables for exact search within the radius.

    Search for nearest codes is approximate: only buckets up to two bits away are searched.
    """
    faiss = importlib.import_module("faiss")
    tables = RADIUS + 1
    width = min(bits // tables, int(np.log2(len(packed))))
    index, note = build(
        lambda: faiss.IndexBinaryMultiHash(8 * packed.shape[1], tables, width), packed, cap
    )
    if index is None:
        yield Engine("faiss multi-hash", skip_reason=note)
        return

    def nearest(queries: Packed, k: int) -> Nearest:
        index.nflip = 2
        distances, positions = index.search(queries, k)
        return positions, distances

    def within(queries: Packed, radius: int) -> Within:
        index.nflip = 0
        return faiss_within(index, queries, radius)

    yield Engine("faiss multi-hash", nearest, within, exact=False)


def hnsw(packed: Packed, cap: float) -> Iterator[Engine]:
    faiss = importlib.import_module("faiss")
    index, note = build(lambda: faiss.IndexBinaryHNSW(8 * packed.shape[1], 16), packed, cap)
    if index is None:
        yield Engine("faiss HNSW", skip_reason=note)
        return

    def nearest(queries: Packed, k: int) -> Nearest:
        index.hnsw.efSearch = max(64, k)
        distances, positions = index.search(queries, k)
        return positions, distances

    yield Engine("faiss HNSW", nearest, exact=False)


def build(make: Callable[[], Any], packed: Packed, cap: float) -> tuple[Any, str]:
    """Build an index of faiss, or return the reason why it takes too long."""
    part = packed[: max(1, len(packed) // SAMPLE)]
    trial = make()
    started = time.perf_counter()
    trial.add(part)
    estimated = (time.perf_counter() - started) * len(packed) / len(part)
    if estimated > cap:
        return None, f"building it takes at least {estimated:.0f} s, the limit is {cap:.0f} s"
    index = make()
    index.add(packed)
    return index, ""


if __name__ == "__main__":
    main()
