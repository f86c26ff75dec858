"""Training time and encoding rate of every method that learns from features.

    python benchmarks/shallow.py --csv results/shallow_times.csv

Three tables: all methods at 5,000 x 512 and 48 bits; how training time grows with the number of
training images, and with the number of bits. Features are random clusters, labels the clusters.
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
    """Return features around ten centres, with the spread of real descriptors."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, WIDTH))
    labels = rng.integers(0, CLASSES, count)
    features = centres[labels] + 3 * rng.standard_normal((count, WIDTH))
    return features.astype(np.float32), labels


def measure(name: str, count: int, bits: int) -> dict[str, Any]:
    """Seconds of training, and codes per second of encoding."""
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
        measure(name, 1_000, 2)  # compiles what is compiled on first use
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
