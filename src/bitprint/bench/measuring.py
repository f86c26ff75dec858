"""Measure search: compare the results of all engines, then time the engines in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from bitprint.bench.engines import Engine, Nearest, Packed, Within
from bitprint.utils.words import as_words

Row = dict[str, Any]

FLIPPED = 2
"""Number of bits in which a query differs from a code of the database."""

_SHORT, _MORE_RUNS = 0.05, 5  # engines below this time in seconds have more runs, by this factor
_PAUSE = 0.02  # seconds
_BATCH_SPEEDUP = 8  # assumed limit of the speedup by searching many queries at once


@dataclass(frozen=True)
class BenchTask:
    """A search for the k nearest codes, or for all codes within `radius` if `k` is None."""

    queries: int
    k: int | None = None
    radius: int = 2

    def __str__(self) -> str:
        return f"within {self.radius}" if self.k is None else f"top {self.k}"

    def search_of(self, engine: Engine) -> Callable[[Packed], Any] | None:
        """Return the search function of an engine, or None if it has none."""
        search, argument = (
            (engine.within, self.radius) if self.k is None else (engine.nearest, self.k)
        )
        return None if search is None else lambda queries: search(queries, argument)


def make_row(count: int, bits: int, task: str, engine: str, **values: Any) -> Row:
    """Return one row of results; missing values are None, and the note is empty."""
    blank = dict.fromkeys(("queries", "seconds", "codes_per_second", "recall", "bytes_per_code"))
    about = {"codes": count, "bits": bits, "task": task, "engine": engine}
    return {**about, **blank, "note": "", **values}


def random_codes(count: int, bits: int, seed: int = 0) -> Packed:
    """Return uniformly random codes, the hardest to search: (count, ceil(bits / 8)) packed bytes.

    Examples
    --------
    >>> random_codes(3, 12).shape
    (3, 2)
    """
    packed = np.random.default_rng(seed).integers(0, 256, (count, -(-bits // 8)), np.uint8)
    packed[:, -1] &= 0xFF << (-bits % 8) & 0xFF
    return packed


def near_queries(packed: Packed, bits: int, count: int, seed: int = 1) -> Packed:
    """Return queries that differ in `FLIPPED` bits from random codes of the database.

    Examples
    --------
    >>> near_queries(random_codes(100, 12), 12, 5).shape
    (5, 2)
    """
    rng = np.random.default_rng(seed)
    signs = np.unpackbits(packed[rng.integers(0, len(packed), count)], axis=1)
    flips = rng.random((count, bits)).argsort(axis=1)[:, : min(FLIPPED, bits)]
    signs[np.arange(count)[:, None], flips] ^= 1
    return np.packbits(signs, axis=1)


def measure(
    engines: Sequence[Engine],
    task: BenchTask,
    packed: Packed,
    bits: int,
    *,
    repeats: int = 5,
    cap: float = 60.0,
) -> list[Row]:
    """Compare the results of all engines with those of the first, then time them.

    Engines run in turn, so that other load on the machine affects all of them. A pause before each
    run lets threads of the previous engine stop spinning. Fast engines have an extra run before
    each measured run, which loads their data into the caches.

    Parameters
    ----------
    engines : sequence of Engine
        The first engine is the reference; it must be exact and support the task.
    task : BenchTask
    packed : ndarray of uint8, shape (N, B)
        The database.
    bits : int
    repeats : int
        Number of runs of each engine; the median time is reported. Engines that take a few
        milliseconds have five times as many runs.
    cap : float
        Maximum time of all runs of an engine in seconds. An engine that takes longer for one run is
        skipped, with a note; other engines have fewer runs.

    Returns
    -------
    list of dict
        A row for each engine that supports the task: the time in seconds, or a note.

    Examples
    --------
    >>> from bitprint.bench.engines import flat, numpy_scan
    >>> packed = random_codes(1000, 64)
    >>> rows = measure([flat(packed), numpy_scan(packed)], BenchTask(queries=4, k=10), packed, 64)
    >>> [(row["engine"], row["recall"], row["seconds"] > 0) for row in rows]
    [('bitprint scan', 1.0, True), ('NumPy', 1.0, True)]
    """
    queries = near_queries(packed, bits, task.queries)
    reference: Any = None
    rows, running = [], []
    for engine in engines:
        row = make_row(len(packed), bits, str(task), engine.name, queries=task.queries)
        search = task.search_of(engine)
        if search is None:
            rows += [row | {"note": engine.skip_reason}] if engine.skip_reason else []
            continue
        rows.append(row)
        first = _first_run(row, search, queries, cap)
        if first is None:
            continue
        results, spent = first
        reference = results if reference is None else reference
        row["recall"] = _check(engine, task, results, reference, packed, queries)
        short = spent < _SHORT
        runs = min(repeats * _MORE_RUNS if short else repeats, int(cap / max(spent, 1e-9)))
        running.append((row, search, max(1, runs), short))
    times: list[list[float]] = [[] for _ in running]
    for turn in range(repeats * _MORE_RUNS):
        for (_, search, runs, short), taken in zip(running, times, strict=True):
            if turn < runs:
                time.sleep(_PAUSE)
                if short:
                    search(queries)
                taken.append(seconds(partial(search, queries)))
    for (row, *_), taken in zip(running, times, strict=True):
        row["seconds"] = median(taken)
        row["codes_per_second"] = len(packed) * task.queries / row["seconds"]
    return rows


def _first_run(
    row: Row, search: Callable[[Packed], Any], queries: Packed, cap: float
) -> tuple[Any, float] | None:
    """Return results and time of the first run of an engine; None and a note if it is too slow."""
    search(queries[:1])  # compiles functions and builds tables
    one = seconds(partial(search, queries[:1]))
    if one * len(queries) > _BATCH_SPEEDUP * cap:
        row["note"] = f"{one:.2g} s per query, {one * len(queries):.0f} s for all"
        return None
    started = time.perf_counter()
    results = search(queries)
    spent = time.perf_counter() - started
    if spent > cap:
        row["note"] = f"{spent:.0f} s per run"
        return None
    return results, spent


def seconds(work: Callable[[], object]) -> float:
    """Return the time of a call in seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _check(
    engine: Engine, task: BenchTask, results: Any, reference: Any, packed: Packed, queries: Packed
) -> float:
    """Return the recall of the results; raise a ValueError if they are wrong."""
    if task.k is None:
        correct = _same_within(results, reference)
        recall = 1.0
    else:
        correct = _distances_are_correct(results, packed, queries)
        recall = float(np.mean((results[0] >= 0) & (results[1] <= reference[1][:, -1:])))
        if engine.exact:
            correct &= np.array_equal(results[1], reference[1])
    if not correct:
        raise ValueError(f"{engine.name} returns wrong results for {task}")
    return recall


def _distances_are_correct(results: Nearest, packed: Packed, queries: Packed) -> bool:
    """Return whether the positions are distinct and the distances correct."""
    words = as_words(queries)
    for query, positions, distances in zip(words, *results, strict=True):
        found = np.asarray(positions)[np.asarray(positions) >= 0].astype(np.int64)
        ones = np.bitwise_count(as_words(packed[found]) ^ query).sum(axis=1)
        if len(np.unique(found)) < len(found) or np.any(ones != distances[: len(found)]):
            return False
    return True


def _same_within(results: Within, reference: Within) -> bool:
    """Return whether both engines found the same codes for every query, in any order."""
    if not np.array_equal(results[0], reference[0]):
        return False
    lengths = (reference[0][1:] - reference[0][:-1]).astype(np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    expected, found = (
        np.column_stack([rows, each[1], each[2]]).astype(np.int64)[np.lexsort([each[1], rows])]
        for each in (reference, results)
    )
    return bool(np.array_equal(expected, found))
