"""Measure training time and encoding rate of all shallow methods.

    python benchmarks/shallow.py --csv results/shallow_times.csv

All methods are measured with 5,000 x 512 features and 48 bits, then with more training images, and
with other numbers of bits. Features are random clusters; the labels are the clusters.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import Any

import numpy as np

import bitprint as bp
from bitprint.experiments.tables import SHALLOW

CLASSES, WIDTH, ENCODED = 10, 512, 10_000


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
    }
    print(
        "{method:8} {images:7} images {bits:4} bits {train_seconds:9.2f} s "
        "{encoded_per_second:12,} codes/s".format(**row),
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(SHALLOW))
    parser.add_argument("--images", nargs="+", type=int, default=[5_000, 20_000, 50_000])
    parser.add_argument("--bits", nargs="+", type=int, default=[12, 48, 96])
    parser.add_argument("--csv", type=Path)
    given = parser.parse_args()
    rows = []
    for name in given.methods:
        measure(name, 1_000, 2)  # compiles functions
        sizes = [(count, 48) for count in given.images]
        sizes += [(given.images[0], bits) for bits in given.bits if bits != 48]
        for count, bits in sizes:
            rows.append(measure(name, count, bits))
            if given.csv:
                write(given.csv, rows)


def write(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
