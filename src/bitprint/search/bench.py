"""Measuring search: answers are compared first, then engines take turns on the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from bitprint.search.engines import Engine, Nearest, Packed, Within
from bitprint.words import as_words

Row = dict[str, Any]

FLIPPED = 2
"""Bits in which a query differs from the code that it was made from."""

_BRIEF, _MORE = 0.05, 5  # seconds of a run, of which there are then so many times more
_REST = 0.02  # seconds
_BATCH_GAIN = 8  # how much faster than one by one many queries may be, so that it is worth a try


@dataclass(frozen=True)
class Task:
    """One question: the k nearest, or if `k` is None all within `radius`."""

    queries: int
    k: int | None = None
    radius: int = 2

    def __str__(self) -> str:
        return f"within {self.radius}" if self.k is None else f"top {self.k}"

    def ask(self, engine: Engine) -> Callable[[Packed], Any] | None:
        """Return what answers the question, or None if the engine cannot."""
        answer, argument = (
            (engine.within, self.radius) if self.k is None else (engine.nearest, self.k)
        )
        return None if answer is None else lambda queries: answer(queries, argument)


def make_row(count: int, bits: int, task: str, engine: str, **figures: Any) -> Row:
    """Make one line of the results; figures that are not given are None, and the note is empty."""
    blank = dict.fromkeys(("queries", "seconds", "codes_per_second", "recall", "bytes_per_code"))
    about = {"codes": count, "bits": bits, "task": task, "engine": engine}
    return {**about, **blank, "note": "", **figures}


def random_codes(count: int, bits: int, seed: int = 0) -> Packed:
    """Uniformly random codes, the hardest to search: (count, ceil(bits / 8)) packed bytes.

    Examples
    --------
    >>> random_codes(3, 12).shape
    (3, 2)
    """
    packed = np.random.default_rng(seed).integers(0, 256, (count, -(-bits // 8)), np.uint8)
    packed[:, -1] &= 0xFF << (-bits % 8) & 0xFF
    return packed


def near_queries(packed: Packed, bits: int, count: int, seed: int = 1) -> Packed:
    """Queries that each differ in a few bits from some code of the database.

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
    task: Task,
    packed: Packed,
    bits: int,
    *,
    repeats: int = 5,
    cap: float = 60.0,
) -> list[Row]:
    """Compare the answers of all engines with those of the first, then time them.

    Parameters
    ----------
    engines : sequence of Engine
        The first is exact and can answer; it is what the others are compared with.
    task : Task
    packed : ndarray of uint8, shape (N, B)
        The database.
    bits : int
    repeats : int
        Runs of each engine, of which the median counts; five times as many where they take a few
        milliseconds only. They take turns, so that a busy machine is fair to all; each
        turn begins with a rest, in which threads of the one before stop spinning, and, of brief
        engines, a run that does not count, which brings their data back into the caches.
    cap : float
        Seconds that an engine may take over all its runs. One that needs longer for a single run
        is left out, with a note; others have fewer runs.

    Returns
    -------
    list of dict
        One row for each engine that can answer: seconds, or a note why there are none.

    Examples
    --------
    >>> from bitprint.search.engines import flat, numpy_scan
    >>> packed = random_codes(1000, 64)
    >>> rows = measure([flat(packed), numpy_scan(packed)], Task(queries=4, k=10), packed, 64)
    >>> [(row["engine"], row["recall"], row["seconds"] > 0) for row in rows]
    [('bitprint scan', 1.0, True), ('NumPy', 1.0, True)]
    """
    queries = near_queries(packed, bits, task.queries)
    reference: Any = None
    rows, running = [], []
    for engine in engines:
        row = make_row(len(packed), bits, str(task), engine.name, queries=task.queries)
        answer = task.ask(engine)
        if answer is None:
            rows += [row | {"note": engine.left_out}] if engine.left_out else []
            continue
        rows.append(row)
        first = _first_run(row, answer, queries, cap)
        if first is None:
            continue
        answers, spent = first
        reference = answers if reference is None else reference
        row["recall"] = _check(engine, task, answers, reference, packed, queries)
        brief = spent < _BRIEF
        runs = min(repeats * _MORE if brief else repeats, int(cap / max(spent, 1e-9)))
        running.append((row, answer, max(1, runs), brief))
    times: list[list[float]] = [[] for _ in running]
    for turn in range(repeats * _MORE):
        for (_, answer, runs, brief), taken in zip(running, times, strict=True):
            if turn < runs:
                time.sleep(_REST)
                if brief:
                    answer(queries)
                taken.append(seconds(partial(answer, queries)))
    for (row, *_), taken in zip(running, times, strict=True):
        row["seconds"] = median(taken)
        row["codes_per_second"] = len(packed) * task.queries / row["seconds"]
    return rows


def _first_run(
    row: Row, answer: Callable[[Packed], Any], queries: Packed, cap: float
) -> tuple[Any, float] | None:
    """Answers and seconds of an engine's first run, or None and a note if it is too slow."""
    answer(queries[:1])  # whatever is compiled or built on first use
    one = seconds(partial(answer, queries[:1]))
    if one * len(queries) > _BATCH_GAIN * cap:
        row["note"] = f"{one:.2g} s a query, {one * len(queries):.0f} s for all"
        return None
    started = time.perf_counter()
    answers = answer(queries)
    spent = time.perf_counter() - started
    if spent > cap:
        row["note"] = f"{spent:.0f} s a run"
        return None
    return answers, spent


def seconds(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _check(
    engine: Engine, task: Task, answers: Any, reference: Any, packed: Packed, queries: Packed
) -> float:
    """Recall of an engine's answers; an exact one that is wrong is an error."""
    if task.k is None:
        right = _same_within(answers, reference)
        recall = 1.0
    else:
        right = _distances_hold(answers, packed, queries)
        recall = float(np.mean((answers[0] >= 0) & (answers[1] <= reference[1][:, -1:])))
        if engine.exact:
            right &= np.array_equal(answers[1], reference[1])
    if not right:
        raise ValueError(f"{engine.name} gives wrong answers to {task}, so its time means nothing")
    return recall


def _distances_hold(answers: Nearest, packed: Packed, queries: Packed) -> bool:
    """Whether the codes found are all different and as far away as the engine says."""
    words = as_words(queries)
    for query, positions, distances in zip(words, *answers, strict=True):
        found = np.asarray(positions)[np.asarray(positions) >= 0].astype(np.int64)
        ones = np.bitwise_count(as_words(packed[found]) ^ query).sum(axis=1)
        if len(np.unique(found)) < len(found) or np.any(ones != distances[: len(found)]):
            return False
    return True


def _same_within(answers: Within, reference: Within) -> bool:
    """Whether both found the same codes for every query, in whichever order."""
    if not np.array_equal(answers[0], reference[0]):
        return False
    lengths = (reference[0][1:] - reference[0][:-1]).astype(np.int64)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    ours, theirs = (
        np.column_stack([owners, found[1], found[2]]).astype(np.int64)[
            np.lexsort([found[1], owners])
        ]
        for found in (reference, answers)
    )
    return bool(np.array_equal(ours, theirs))
