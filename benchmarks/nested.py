"""Compare prefixes of one nested code with codes learned separately for each length.

    python benchmarks/nested.py features.npy --bits 64 128 256 512

Recall is the part of the ten vectors with the largest cosines that are among the first ten, or
among the first hundred (@100, the recall after exact rescoring of these), by Hamming distance and
by real-valued query. Queries are rows that are neither stored nor learned from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import bitprint as bp
from bitprint.search import flat, projected
from bitprint.utils.words import as_planes, as_words

NEIGHBORS, RESCORED = 10, 100
COLUMNS = ("bits", "method", "hamming", "hamming@100", "real-valued", "real-valued@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("vectors", type=Path, help="array of N vectors, .npy")
    parser.add_argument(
        "--bits", type=int, nargs="+", default=[64, 128, 256, 512], help="each twice the one before"
    )
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--training", type=int, default=20_000, help="maximum number of rows")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    vectors = np.load(options.vectors, mmap_mode="r")
    order = np.random.default_rng(options.seed).permutation(len(vectors))
    vectors = np.asarray(vectors, np.float32)[order]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, stored = vectors[: options.queries], vectors[options.queries :]
    truth = np.argpartition(-(queries @ stored.T), NEIGHBORS, axis=1)[:, :NEIGHBORS]
    training = stored[: options.training]
    longest = max(options.bits)
    nested = bp.create("nested-itq", longest, shortest=min(options.bits), seed=options.seed)
    whole = bp.create("itq", longest, seed=options.seed)
    nested.fit(training)
    whole.fit(training)
    print(" ".join(f"{column:>16}" for column in COLUMNS))
    for bits in options.bits:
        alone = bp.create("itq", bits, seed=options.seed).fit(training)
        for name, hasher in (("separate", alone), ("nested", nested), ("prefix of ITQ", whole)):
            codes = hasher.encode(stored).prefix(bits)
            recalls = measure(codes, hasher.project(queries)[:, :bits], truth)
            print(f"{bits:16} {name:>16}", " ".join(f"{recall:16.3f}" for recall in recalls))


def measure(codes: bp.Codes, projections: NDArray, truth: NDArray) -> list[float]:
    """Return the recall of both searches, among the first ten and the first hundred."""
    planes, count = as_planes(codes.packed), len(codes)
    words = as_words(np.packbits(projections >= 0, axis=1))
    near, _ = flat.nearest(words, planes, count, RESCORED, None)
    best, _ = projected.nearest_projected(
        np.ascontiguousarray(projections), planes, count, RESCORED, None
    )
    ranked = [positions[:, :size] for positions in (near, best) for size in (NEIGHBORS, RESCORED)]
    return [float((truth[:, :, None] == found[:, None]).any(axis=2).mean()) for found in ranked]


if __name__ == "__main__":
    main()
