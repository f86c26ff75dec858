"""Measure training time and encoding rate of all shallow methods.

    python benchmarks/shallow.py --csv results/shallow_times.csv
    python benchmarks/shallow.py --faiss

All methods are measured with 5,000 x 512 features and 48 bits, then with more training images, and
with other numbers of bits. Features are random clusters; the labels are the clusters. Rows of the
file for other methods, images and bits are kept. The last column of the output is the exponent of
the growth: 1 means that the time grows as the number of images.

With --faiss, `ITQ.fit` is compared with `ITQTransform.train` of faiss, on 5,000 x 512 features and
48 bits, in turn and with the same number of threads. Both center the rows, compute principal
components and make 50 iterations; faiss also scales the rows to unit length.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

import bitprint as bp
from bitprint.experiments.tables import SHALLOW
from bitprint.utils.commit import source_commit
from bitprint.utils.parallel import thread_count

CLASSES, WIDTH, ENCODED = 10, 512, 10_000
REPEATS = 15
KEY = ("method", "images", "bits")


def clusters(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features around ten centers, with a spread similar to real descriptors."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((CLASSES, WIDTH))
    labels = rng.integers(0, CLASSES, count)
    features = centers[labels] + 3 * rng.standard_normal((count, WIDTH))
    return features.astype(np.float32), labels


def measure(name: str, count: int, bits: int) -> dict[str, Any]:
    """Return training time and encoding rate."""
    features, labels = clusters(count)
    started = time.perf_counter()
    hasher = bp.create(name, bits).fit(features, labels)
    fitted = time.perf_counter()
    hasher.encode(features[:ENCODED])
    encoded = time.perf_counter()
    row: dict[str, Any] = {
        "method": name,
        "images": count,
        "bits": bits,
        "train_seconds": round(fitted - started, 2),
        "encoded_per_second": round(min(count, ENCODED) / (encoded - fitted)),
        "seed": 0,
        "commit": source_commit(),
        "hardware": f"{os.cpu_count()} CPU cores ({platform.machine()})",
    }
    print(
        "{method:8} {images:7} images {bits:4} bits {train_seconds:9.2f} s "
        "{encoded_per_second:12,} codes/s".format(**row),
        end=" ",
    )
    return row


def growth(rows: list[dict[str, Any]]) -> str:
    """Return the exponent of the growth from the first to the last number of images."""
    first, last = rows[0], rows[-1]
    if first["images"] == last["images"] or first["train_seconds"] < 0.1:
        return ""
    times = last["train_seconds"] / first["train_seconds"]
    return f"{math.log(times) / math.log(last['images'] / first['images']):.2f}"


def compare_with_faiss(count: int = 5_000, bits: int = 48) -> None:
    """Print the time of both implementations of ITQ, the best of several runs in turn."""
    import faiss

    faiss.omp_set_num_threads(thread_count())
    features, _ = clusters(count)
    ours, theirs = [], []
    for _ in range(REPEATS):
        started = time.perf_counter()
        bp.ITQ(bits=bits).fit(features)
        between = time.perf_counter()
        faiss.ITQTransform(WIDTH, bits, True).train(features)
        theirs.append(time.perf_counter() - between)
        ours.append(between - started)
    print(f"{count:,} x {WIDTH}, {bits} bits, {thread_count()} threads, best of {REPEATS} runs:")
    print(f"  ITQ.fit                    {min(ours):8.4f} s")
    print(f"  faiss ITQTransform.train   {min(theirs):8.4f} s")
    print(f"ratio {min(theirs) / min(ours):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(SHALLOW))
    parser.add_argument("--images", nargs="+", type=int, default=[5_000, 20_000, 50_000])
    parser.add_argument("--bits", nargs="+", type=int, default=[12, 48, 96])
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--faiss", action="store_true", help="compare ITQ with faiss only")
    given = parser.parse_args()
    if given.faiss:
        compare_with_faiss()
        return
    for name in given.methods:
        measure(name, 1_000, 2)  # compiles functions
        print()
        sizes = [(count, 48) for count in given.images]
        sizes += [(given.images[0], bits) for bits in given.bits if bits != 48]
        rows = []
        for count, bits in sizes:
            rows.append(measure(name, count, bits))
            print(growth(rows) if bits == 48 else "", flush=True)
            if given.csv:
                write(given.csv, rows[-1])


def write(path: Path, row: dict[str, Any]) -> None:
    """Append a row, or replace the row of the same method, images and bits."""
    rows = [row]
    if path.exists():
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        keys = [[str(other[name]) for name in KEY] for other in rows]
        place = next((i for i, key in enumerate(keys) if key == [str(row[n]) for n in KEY]), None)
        if place is None:
            rows.append(row)
        else:
            rows[place] = row
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
