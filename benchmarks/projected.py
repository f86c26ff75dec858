"""Compare real-valued queries with the Hamming scan and the fast-scan indexes of faiss.

    python benchmarks/projected.py --csv projected.csv

The vectors have as many dimensions as the codes have bits, so that all engines store the same bytes
per vector, and faiss RaBitQ its two factors besides. Real-valued queries rank the stored bits
exactly, which is checked on 20 queries first. Recall is the part of the float top 10 that an engine
returns among its top 10. Engines run in turn; times are medians.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from bitprint.methods.pca import random_rotation
from bitprint.search import flat, projected
from bitprint.search.projections import rounded
from bitprint.utils.words import as_planes, as_words

Search = Callable[[int], NDArray[np.int64]]
COLUMNS = ("bits", "codes", "queries", "k", "engine", "bytes", "million_per_second", "recall")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=500_000)
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--queries", type=int, nargs="+", default=[128])
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    print(f"{options.threads} threads, medians of {options.repeats} runs")
    print(" ".join(f"{column:>18}" for column in COLUMNS))
    rows = []
    for bits in options.bits:
        vectors, queries = clustered(options.size, bits, max(options.queries))
        for row in measure(vectors, queries, options):
            print(" ".join(f"{row[column]!s:>18}" for column in COLUMNS), flush=True)
            rows.append(row)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def clustered(size: int, width: int, queries: int) -> tuple[NDArray, NDArray]:
    """Return unit vectors around 1,000 random centers, and queries of the same distribution."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((1000, width), np.float32)
    vectors = rng.standard_normal((size + queries, width), np.float32)
    vectors += centers[rng.integers(0, len(centers), len(vectors))]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[:size], vectors[size:]


def measure(
    vectors: NDArray, queries: NDArray, options: argparse.Namespace
) -> list[dict[str, Any]]:
    bits, rows = vectors.shape[1], []
    engines = build(vectors, queries)
    exact = faiss.IndexFlatIP(bits)
    exact.add(vectors)
    truth = exact.search(queries, 10)[1]
    for count in options.queries:
        for k in options.k:
            times: dict[str, list[float]] = {name: [] for name in engines}
            found = {name: search(count, k) for name, (_, search) in engines.items()}
            for _ in range(options.repeats):
                for name, (_, search) in engines.items():
                    started = time.perf_counter()
                    search(count, k)
                    times[name].append(time.perf_counter() - started)
            for name, (size, _) in engines.items():
                hits = [
                    len(np.intersect1d(*pair))
                    for pair in zip(found[name][:, :10], truth[:count], strict=True)
                ]
                speed = count * len(vectors) / median(times[name]) / 1e6
                values = (
                    bits,
                    len(vectors),
                    count,
                    k,
                    name,
                    size,
                    round(speed),
                    np.mean(hits) / 10,
                )
                rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def build(vectors: NDArray, queries: NDArray) -> dict[str, tuple[int, Any]]:
    """Return bytes per vector and the search function of each engine."""
    size, bits = vectors.shape
    rotation = random_rotation(bits, seed=0).astype(np.float32)
    packed = np.packbits(vectors @ rotation >= 0, axis=1)
    planes, projections = as_planes(packed), queries @ rotation
    words = as_words(np.packbits(projections >= 0, axis=1))
    check(projections[:20], packed, planes)
    training = vectors[:20_000]
    pq: Any = faiss.IndexPQFastScan(bits, bits // 4, 4)
    rabitq: Any = faiss.IndexRaBitQFastScan(bits)
    for index in (pq, rabitq):
        index.train(training)
        index.add(vectors)
    return {
        "Hamming scan": (bits // 8, lambda q, k: flat.nearest(words[:q], planes, size, k, None)[0]),
        "real-valued query": (
            bits // 8,
            lambda q, k: projected.nearest_projected(projections[:q], planes, size, k, None)[0],
        ),
        "faiss PQ": (pq.code_size, lambda q, k: pq.search(queries[:q], k)[1]),
        "faiss RaBitQ": (rabitq.code_size, lambda q, k: rabitq.search(queries[:q], k)[1]),
    }


def check(projections: NDArray, packed: NDArray, planes: NDArray) -> None:
    """Compare a few queries with all inner products."""
    signs = np.where(np.unpackbits(packed, axis=1), np.float32(1), np.float32(-1))
    positions, _ = projected.nearest_projected(projections, planes, len(packed), 10, None)
    for query, found in zip(rounded(projections), positions, strict=True):
        likely = np.argpartition(signs @ query.astype(np.float32), -50)[-50:]
        scores = signs[likely] @ query
        expected = likely[np.lexsort((likely, -scores))][:10]
        if found.tolist() != expected.tolist():
            raise SystemExit("the results differ from those of all inner products")


if __name__ == "__main__":
    main()
