"""Find all pairs of near codes: Bitprint, faiss and the BK-tree of imagededup.

    PYTHONPATH=FOLDER python benchmarks/all_pairs.py --csv results/all_pairs.csv

Codes of 64 bits are random; every tenth code is a copy of an earlier one with up to 3 inverted
bits. Every code is a query, in batches, and all codes within the radius are found. Bitprint
searches an index file with `Index.within`. faiss uses `range_search` of a flat index and of a
multi-index hash, which is exact here: of 4 parts of 16 bits one is equal if at most 3 bits differ.
All use the same number of threads, and are asked once before the measurement.

If a search takes longer than the cap, only the first queries are measured, and the time of all is
the time per query times the number of queries; such rows are "estimated". `bitprint groups` is
`find_duplicates`, which also merges the pairs to groups.

The BK-tree of imagededup is written in Python. It is measured on fewer codes (column `codes`), with
the number of differing bits of two integers as its distance, which is faster than the distance of
imagededup. FOLDER contains imagededup 0.3.3.post2, installed by `pip install --no-deps
--target FOLDER`; without it these rows are left out.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

import bitprint as bp
from bitprint.photos import find_duplicates
from bitprint.utils.commit import source_commit
from bitprint.utils.parallel import thread_count

BITS = 64
BATCH = 1024
Packed = NDArray[np.uint8]
Batches = Callable[[Packed], int]
"""Searches a batch of queries and returns the number of codes found."""


def draw(count: int) -> Packed:
    """Return packed codes; every tenth is a copy of an earlier one with up to 3 inverted bits."""
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (count, BITS // 8), np.uint8)
    copies = np.arange(9, count, 10)
    packed[copies] = packed[(rng.random(len(copies)) * copies).astype(np.int64)]
    for _ in range(3):
        bit = rng.integers(0, BITS, len(copies))
        some = rng.random(len(copies)) < 0.5
        packed[copies[some], bit[some] // 8] ^= (1 << (bit[some] % 8)).astype(np.uint8)
    return packed


def bitprint_search(index: bp.Index, radius: int) -> Batches:
    return lambda queries: sum(map(len, index.within(bp.Codes(queries, BITS), radius).ids))


def faiss_search(index: Any, packed: Packed, radius: int) -> Batches:
    index.add(packed)
    # The radius of a flat index is exclusive, as that of the hash index.
    return lambda queries: int(index.range_search(queries, radius + 1)[0][-1])


def multi_hash() -> Any:
    index = faiss.IndexBinaryMultiHash(BITS, 4, BITS // 4)
    index.nflip = 0
    return index


def tree_search(packed: Packed, radius: int) -> Batches:
    tree_type: Any = import_module("imagededup.handlers.search.bktree").BKTree
    hashes = {str(row): code.tobytes().hex() for row, code in enumerate(packed)}
    tree = tree_type(hashes, lambda one, other: (int(one, 16) ^ int(other, 16)).bit_count())
    return lambda queries: sum(len(tree.search(code.tobytes().hex(), radius)) for code in queries)


def measure(search: Batches, packed: Packed, cap: float, batch: int = BATCH) -> dict[str, Any]:
    """Search all codes, or the first ones until the time is over."""
    search(packed[:2])
    done = found = 0
    started = time.perf_counter()
    while done < len(packed) and time.perf_counter() - started < cap:
        found += search(packed[done : done + batch])
        done = min(done + batch, len(packed))
    seconds = time.perf_counter() - started
    return {
        "queries": done,
        "found": found,
        "seconds": round(seconds * len(packed) / done, 4),
        "estimated": done < len(packed),
    }


@contextmanager
def indexed(packed: Packed) -> Iterator[bp.Index]:
    """Create an index in a temporary file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        bp.Index.create(Path(folder) / "codes.bp", bits=BITS) as index,
    ):
        index.add(np.arange(len(packed)), bp.Codes(packed, BITS))
        yield index


def large(packed: Packed, radius: int, cap: float) -> Iterator[dict[str, Any]]:
    """Measure Bitprint and faiss."""
    with indexed(packed) as index:
        yield {"method": "bitprint", **measure(bitprint_search(index, radius), packed, cap)}
        started = time.perf_counter()
        groups = find_duplicates(index, radius)
        yield {
            "method": "bitprint groups",
            "queries": len(packed),
            "found": sum(len(group.ids) for group in groups),
            "seconds": round(time.perf_counter() - started, 4),
            "estimated": False,
        }
    flat = faiss_search(faiss.IndexBinaryFlat(BITS), packed, radius)
    yield {"method": "faiss flat", **measure(flat, packed, cap)}
    if radius <= 3:
        hashed = faiss_search(multi_hash(), packed, radius)
        yield {"method": "faiss multi-hash", **measure(hashed, packed, cap)}


def small(packed: Packed, radius: int, cap: float) -> Iterator[dict[str, Any]]:
    """Measure Bitprint and the BK-tree."""
    with indexed(packed) as index:
        yield {"method": "bitprint", **measure(bitprint_search(index, radius), packed, cap)}
    try:
        tree = tree_search(packed, radius)
    except ImportError:
        print("imagededup is not installed")
        return
    yield {"method": "imagededup BK-tree", **measure(tree, packed, cap, 16)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--small", nargs="*", type=int, default=[1_000, 10_000])
    parser.add_argument("--radius", type=int, default=2)
    parser.add_argument("--cap", type=float, default=30, help="seconds per search")
    parser.add_argument("--csv", type=Path, help="rows are appended")
    given = parser.parse_args()
    faiss.omp_set_num_threads(thread_count())
    packed = draw(given.codes)
    for count, work in [(given.codes, large), *((count, small) for count in given.small)]:
        for found in work(packed[:count], given.radius, given.cap):
            row = {"codes": count, "bits": BITS, "radius": given.radius, **found}
            row |= {
                "seed": 0,
                "threads": thread_count(),
                "commit": source_commit(),
                "hardware": f"{os.cpu_count()} CPU cores ({platform.machine()})",
            }
            print(" ".join(f"{value!s:>18}" for value in list(row.values())[:8]), flush=True)
            if given.csv:
                append(given.csv, row)


def append(path: Path, row: dict[str, Any]) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
