"""Compare multi-index hashing with a scan of all codes; the last column and line are ratios.

    python benchmarks/mih.py --sizes 1_000_000 10_000_000 --bits 64 128 --csv mih.csv

"tables" is the time of a search in the tables, including scans for queries that exceed the budget;
"index" is the time of an index that chooses between tables and scan.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bitprint.search import flat, mih
from bitprint.search.memory import Snapshot
from bitprint.search.mih_choice import MultiIndex
from bitprint.search.mih_tables import build
from bitprint.utils.words import Words

REPEATS = 5
BLOCK = 1 << 20
COLUMNS = (
    *("codes", "size", "bits", "build_s", "bytes_per_code", "search", "queries"),
    *("scan_ms", "tables_ms", "index_ms", "tables_ratio", "index_ratio"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--bits", type=int, nargs="+", default=[64], help="multiples of 64")
    parser.add_argument("--codes", nargs="+", default=["uniform", "clustered"])
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--k", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--radius", type=int, nargs="*", default=[2, 5, 10])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    flat.warm_up()
    mih.warm_up()
    print(f"{options.threads} threads, best of {REPEATS} runs each, milliseconds per query")
    print(" ".join(f"{column:>14}" for column in COLUMNS))
    rows = []
    for kind in options.codes:
        for bits in options.bits:
            for size in options.sizes:
                for row in measure(kind, size, bits, options):
                    print(" ".join(f"{shown(value):>14}" for value in row), flush=True)
                    rows.append(row)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            csv.writer(file).writerows([COLUMNS, *rows])
    ratios = [row[-1] for row in rows]
    print(f"ratio of scan to index, minimum and maximum: {min(ratios):.2f} {max(ratios):.1f}")


def measure(kind: str, size: int, bits: int, options: argparse.Namespace) -> Iterator[list[Any]]:
    """Yield a row for each search and number of queries."""
    rng = np.random.default_rng(0)
    centers = random_words(rng, bits, size // 1000)
    planes = np.hstack(
        [random_codes(rng, kind, centers, min(BLOCK, size - at)) for at in range(0, size, BLOCK)]
    )
    all_queries = np.ascontiguousarray(random_codes(rng, kind, centers, max(options.queries)).T)
    snapshot = Snapshot(planes, np.arange(size), None)
    index = MultiIndex(bits)
    plan = index._plan_for(snapshot)
    if plan is None:
        sys.exit(f"an index of {size} codes does not build tables; use a larger size")
    start = time.perf_counter()
    tables = plan._tables = build(planes, size, plan._starts)
    build_s = time.perf_counter() - start
    bytes_per_code = (tables.offsets.nbytes + tables.positions.nbytes) / size
    for name, number in [("k", k) for k in options.k] + [("radius", r) for r in options.radius]:
        for count in options.queries:
            queries, budget = all_queries[:count], plan.budget(count)
            arguments = queries, planes, size, number, None
            contenders: list[Callable[[], tuple]]
            if name == "k":
                contenders = [
                    partial(flat.nearest, *arguments),
                    partial(mih.nearest, tables, *arguments, budget),
                    partial(index.nearest, queries, snapshot, number, None),
                ]
            else:
                contenders = [
                    partial(flat.within, *arguments),
                    partial(mih.within, tables, *arguments, budget),
                    partial(index.within, queries, snapshot, number),
                ]
            check(contenders)
            times = [1000 * t / count for t in best_of_each(*contenders)]
            ratios = times[0] / times[1], times[0] / times[2]
            search = f"{name} {number}"
            yield [kind, size, bits, build_s, bytes_per_code, search, count, *times, *ratios]


def random_words(rng: np.random.Generator, bits: int, count: int) -> Words:
    return rng.integers(0, 2**64, (bits // 64, count), dtype=np.uint64)


def random_codes(rng: np.random.Generator, kind: str, centers: Words, count: int) -> Words:
    """Return planes of uniform codes, or of copies of centers with one bit in 16 flipped."""
    bits = 64 * len(centers)
    if kind == "uniform":
        return random_words(rng, bits, count)
    flips: Words = np.bitwise_and.reduce([random_words(rng, bits, count) for _ in range(4)])
    return centers[:, rng.integers(0, centers.shape[1], count)] ^ flips


def check(contenders: list[Callable[[], tuple]]) -> None:
    """Exit unless all functions return the same results."""
    expected, *others = [contender() for contender in contenders]
    for other in others:
        if not all(map(np.array_equal, expected, other)):
            sys.exit("the results differ")


def best_of_each(*contenders: Callable[[], object]) -> list[float]:
    """Return the shortest time of each function; they run in turn to share other load."""
    times = [[seconds(contender) for contender in contenders] for _ in range(REPEATS)]
    return [min(column) for column in zip(*times, strict=True)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
