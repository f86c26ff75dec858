"""Multi-index hashing against the scan of all codes; the last column and line are the ratios.

"tables" is what every search through the tables takes, with the scans of those queries that were
given up; "index" is what an index takes that chooses one of the two. For example

    python benchmarks/mih.py --sizes 1_000_000 10_000_000 --bits 64 128 --csv mih.csv
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
from bitprint.search.memory import View
from bitprint.search.mih_choice import MultiIndex
from bitprint.search.mih_tables import build
from bitprint.words import Words

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
    parser.add_argument("--csv", type=Path, help="file to write the table to")
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
    print(f"ratio of scan to index, least and greatest: {min(ratios):.2f} {max(ratios):.1f}")


def measure(kind: str, size: int, bits: int, options: argparse.Namespace) -> Iterator[list[Any]]:
    """One row for each search and number of queries."""
    rng = np.random.default_rng(0)
    centres = random_words(rng, bits, size // 1000)
    planes = np.hstack(
        [random_codes(rng, kind, centres, min(BLOCK, size - at)) for at in range(0, size, BLOCK)]
    )
    everyone = np.ascontiguousarray(random_codes(rng, kind, centres, max(options.queries)).T)
    view = View(planes, np.arange(size), None)
    index = MultiIndex(bits)
    prospect = index._prospect_of(view)
    if prospect is None:
        sys.exit(f"an index of {size} codes never builds tables; choose more")
    start = time.perf_counter()
    tables = prospect._tables = build(planes, size, prospect._starts)
    build_s = time.perf_counter() - start
    bytes_per_code = (tables.offsets.nbytes + tables.positions.nbytes) / size
    for name, number in [("k", k) for k in options.k] + [("radius", r) for r in options.radius]:
        for count in options.queries:
            queries, budget = everyone[:count], prospect.budget(count)
            arguments = queries, planes, size, number, None
            contenders: list[Callable[[], tuple]]
            if name == "k":
                contenders = [
                    partial(flat.nearest, *arguments),
                    partial(mih.nearest, tables, *arguments, budget),
                    partial(index.nearest, queries, view, number, None),
                ]
            else:
                contenders = [
                    partial(flat.within, *arguments),
                    partial(mih.within, tables, *arguments, budget),
                    partial(index.within, queries, view, number),
                ]
            check(contenders)
            times = [1000 * t / count for t in best_of_each(*contenders)]
            ratios = times[0] / times[1], times[0] / times[2]
            search = f"{name} {number}"
            yield [kind, size, bits, build_s, bytes_per_code, search, count, *times, *ratios]


def random_words(rng: np.random.Generator, bits: int, count: int) -> Words:
    return rng.integers(0, 2**64, (bits // 64, count), dtype=np.uint64)


def random_codes(rng: np.random.Generator, kind: str, centres: Words, count: int) -> Words:
    """Planes of coins, or of copies of centres in which one bit in 16 is flipped."""
    bits = 64 * len(centres)
    if kind == "uniform":
        return random_words(rng, bits, count)
    flips: Words = np.bitwise_and.reduce([random_words(rng, bits, count) for _ in range(4)])
    return centres[:, rng.integers(0, centres.shape[1], count)] ^ flips


def check(contenders: list[Callable[[], tuple]]) -> None:
    """Stop unless all give the same answers."""
    expected, *others = [contender() for contender in contenders]
    for other in others:
        if not all(map(np.array_equal, expected, other)):
            sys.exit("the answers differ")


def best_of_each(*contenders: Callable[[], object]) -> list[float]:
    """Shortest time of each, taking turns so that a busy machine is fair to all."""
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
