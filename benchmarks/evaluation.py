"""Compare `bitprint.evaluate` with MAP by sorting in NumPy; the last lines are ratios.

The NumPy version works like most published code: for each query a matrix product with the signs of
the database, `np.argsort` of the distances, and the precision at each relevant item.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.evaluation import evaluate

REPEATS = 7
RIVAL_QUERIES = 50


def main() -> None:
    rng = np.random.default_rng(0)
    queries, size, bits = 1_000, 59_000, 48
    query_codes, codes = random_codes(rng, queries, bits), random_codes(rng, size, bits)
    query_labels, labels = rng.integers(0, 10, queries), rng.integers(0, 10, size)
    few = slice(RIVAL_QUERIES)
    query_signs, signs = (
        query_codes[few].signs().astype(np.float32),
        codes.signs().astype(np.float32),
    )

    exact = evaluate(query_codes[few], query_labels[few], codes, labels, ties="stable").map
    sorting = sorted_map(query_signs, query_labels[few], signs, labels, kind="stable")
    print(
        f"MAP of {RIVAL_QUERIES} queries, ties in database order: "
        f"bitprint {exact:.12f}, NumPy {sorting:.12f}"
    )
    if abs(exact - sorting) > 1e-10:
        sys.exit("the results differ")

    ours, stable, rival = best_of_each(
        lambda: evaluate(query_codes, query_labels, codes, labels),
        lambda: evaluate(query_codes, query_labels, codes, labels, ties="stable"),
        lambda: sorted_map(query_signs, query_labels[few], signs, labels),
    )
    rival *= queries / RIVAL_QUERIES
    before = peak_memory()
    big = nuswide_size(rng)
    print(f"peak memory increased by {peak_memory() - before:.0f} MB, including inputs")
    print(f"2,100 x 193,734 x 48 bits, 21 labels, MAP@5000: {big:.3f} s (Bitprint only)")
    print(f"1,000 x 59,000 x 48 bits, 10 classes, best of {REPEATS} runs each:")
    print(f"  bitprint.evaluate, all metrics  {ours:8.4f} s")
    print(f'  the same with ties="stable"     {stable:8.4f} s')
    print(f"  NumPy argsort, MAP only         {rival:8.4f} s (scaled from {RIVAL_QUERIES} queries)")
    print(f"ratio of stable to expected ties {stable / ours:.2f}")
    print(f"ratio {rival / ours:.1f}")


def random_codes(rng: np.random.Generator, count: int, bits: int) -> Codes:
    return Codes.from_signs(rng.random((count, bits), np.float32) < 0.5)


def sorted_map(
    query_signs: NDArray[np.float32],
    query_labels: NDArray[np.int64],
    signs: NDArray[np.float32],
    labels: NDArray[np.int64],
    kind: Literal["stable"] | None = None,
) -> float:
    """Compute mean average precision with one argsort per query."""
    precisions = []
    for query, label in zip(query_signs, query_labels, strict=True):
        distances = 0.5 * (signs.shape[1] - signs @ query)
        order = np.argsort(distances, kind=kind)
        ranks = np.flatnonzero(labels[order] == label) + 1
        precisions.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    return float(np.mean(precisions))


def nuswide_size(rng: np.random.Generator) -> float:
    """Return the time in seconds for a multi-label task of the size of NUS-WIDE."""
    query_codes, codes = random_codes(rng, 2_100, 48), random_codes(rng, 193_734, 48)
    query_labels, labels = (
        rng.random((len(part), 21), np.float32) < 0.1 for part in (query_codes, codes)
    )
    evaluate(query_codes[:2], query_labels[:2], codes, labels, top=5000, empty="zero")
    return best_of_each(lambda: evaluate(query_codes, query_labels, codes, labels, top=5000))[0]


def best_of_each(*contenders: Callable[[], object]) -> list[float]:
    """Return the shortest time of each function; they run in turn to share other load."""
    times = [[seconds(contender) for contender in contenders] for _ in range(REPEATS)]
    return [min(column) for column in zip(*times, strict=True)]


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_memory() -> float:
    """Return the peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
