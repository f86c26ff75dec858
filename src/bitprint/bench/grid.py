"""The search grid: one query to large batches, for many sizes and lengths, in resumable cells."""

from __future__ import annotations

import csv
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from bitprint.bench.engines import Engine, Packed
from bitprint.bench.measuring import BenchTask, near_queries, random_codes
from bitprint.utils.commit import source_commit

SIZES = (10_000, 59_000, 1_000_000, 10_000_000)
BITS = (32, 48, 64, 128, 256, 512)
QUERIES = (1, 16, 128, 1024)
KINDS = ("uniform", "clustered")
CLUSTERS = 100
OURS, RIVAL = "bitprint index", "faiss flat"
"""Our engine, and the start of the names of the engines that the ratios compare it with."""

_MOST_MATCHES = 100_000_000  # per search; cells with more have fewer queries
_SAMPLE = 0.005  # seconds; calls that take less are repeated within a measurement
_FIRST = 1.0  # seconds; a first run that takes longer is also measured
_SLOWER = 1.3  # engines of a group that take longer by this factor for few queries are skipped
_PILOT = 16  # queries


@dataclass(frozen=True)
class Cell:
    """A search of one task with a number of queries in one database.

    Examples
    --------
    >>> cell = Cell(10_000, 64, "uniform", 1, "radius K/8")
    >>> cell.bench_task()
    BenchTask(queries=1, k=None, radius=8)
    """

    codes: int
    bits: int
    kind: str
    queries: int
    task: str

    def bench_task(self, queries: int | None = None) -> BenchTask:
        """Return the task, with another number of queries if given."""
        what, number = self.task.split()
        queries = self.queries if queries is None else queries
        if what == "top":
            return BenchTask(queries, k=int(number))
        return BenchTask(queries, radius=self.bits // 8 if number == "K/8" else int(number))


TASKS = ("top 10", "top 100", "radius 2", "radius K/8")
FIELDS = (
    *Cell.__annotations__,
    *("engine", "seconds", "repeats", "measured_queries", "matches", "recall", "setting", "note"),
    *("threads", "seed", "commit", "hardware"),
)


def cells(
    sizes: Iterable[int], bits: Iterable[int], queries: Iterable[int], kinds: Iterable[str]
) -> list[Cell]:
    """Return all cells, those of the same database one after the other."""
    return [Cell(*each) for each in product(sizes, bits, kinds, queries, TASKS)]


def grid_codes(count: int, bits: int, kind: str, seed: int = 0) -> Packed:
    """Return codes, uniform or in `CLUSTERS` clusters; in these each bit flips by chance 1 / 16.

    Examples
    --------
    >>> grid_codes(1000, 48, "clustered").shape
    (1000, 6)
    """
    codes = random_codes(count, bits, seed)
    if kind == "clustered":
        rng = np.random.default_rng([seed, 1])
        centers = random_codes(CLUSTERS, bits, seed + 1)
        for start in range(0, count, 1_000_000):
            part = codes[start : start + 1_000_000]
            for _ in range(3):
                part &= rng.integers(0, 256, part.shape, np.uint8)
            part ^= centers[rng.integers(0, CLUSTERS, len(part))]
    return codes


def done_cells(path: Path) -> set[Cell]:
    """Return the cells that a CSV file contains."""
    return {
        Cell(int(r["codes"]), int(r["bits"]), r["kind"], int(r["queries"]), r["task"])
        for r in read_rows(path)
        if r["engine"] == OURS
    }


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Append the rows of a cell to a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def measure_cell(
    cell: Cell, packed: Packed, engines: Sequence[Engine], *, cap: float, threads: int, seed: int
) -> list[dict[str, Any]]:
    """Compare the results of all engines, then time them in turn; return a row for each.

    The first engine is the reference. All engines have run before they are timed. Of the engines
    of `RIVAL`, the slower ones for few queries are skipped in large cells. Each engine has
    repetitions until `cap` seconds, at least one and at most 5.
    """
    queries, note = cell.queries, ""
    pilot = near_queries(packed, cell.bits, min(queries, _PILOT), seed + 2)
    engines = [engine for engine in engines if cell.bench_task().search_of(engine)]
    spent = [_seconds(_call(cell, engine, pilot)) for engine in engines]
    if cell.bench_task().k is None:
        each = len(_call(cell, engines[0], pilot)()[1]) / len(pilot)
        if each * queries > _MOST_MATCHES:
            queries = max(1, int(_MOST_MATCHES / each))
            note = f"capped: {each:.0f} matches per query"
    if queries > _PILOT:
        flat = [t for e, t in zip(engines, spent, strict=True) if e.name.startswith(RIVAL)]
        engines = [
            engine
            for engine, t in zip(engines, spent, strict=True)
            if not engine.name.startswith(RIVAL) or t <= _SLOWER * min(flat)
        ]
    given = near_queries(packed, cell.bits, queries, seed + 2)
    runs = [_call(cell, engine, given) for engine in engines]
    results, first = zip(*(_timed(run) for run in runs), strict=True)
    rows = []
    for engine, result in zip(engines, results, strict=True):
        matches, recall = _compare(cell, engine, result, results[0])
        row = asdict(cell) | {"engine": engine.name, "measured_queries": queries, "note": note}
        row |= {"matches": matches, "recall": recall, "setting": engine.setting}
        row |= {"threads": threads, "seed": seed, "commit": source_commit(), "hardware": hardware()}
        rows.append(row)
    del results
    times = [[t] if t > _FIRST else [] for t in first]
    for _ in range(5):
        for run, t, taken in zip(runs, first, times, strict=True):
            if len(taken) < 5 and (not taken or sum(taken) + t < cap):
                number = max(1, min(1000, int(_SAMPLE / t)))
                taken.append(_seconds(run, number) / number)
    for row, taken in zip(rows, times, strict=True):
        row |= {"seconds": f"{median(taken):.4g}", "repeats": len(taken)}
    return rows


def _call(cell: Cell, engine: Engine, queries: Packed) -> Callable[[], Any]:
    given = engine.prepare(queries)
    task = cell.bench_task()
    search, argument = (engine.within, task.radius) if task.k is None else (engine.nearest, task.k)
    assert search is not None
    return lambda: search(given, argument)


def _timed(run: Callable[[], Any]) -> tuple[Any, float]:
    started = time.perf_counter()
    result = run()
    return result, time.perf_counter() - started


def _seconds(run: Callable[[], Any], number: int = 1) -> float:
    started = time.perf_counter()
    for _ in range(number):
        run()
    return time.perf_counter() - started


def _compare(cell: Cell, engine: Engine, result: Any, reference: Any) -> tuple[int, float]:
    """Return the number of matches and the recall; raise ValueError for wrong results."""
    if cell.bench_task().k is None:
        (counts, sums), (all_counts, all_sums) = _flattened(result), _flattened(reference)
        same = np.array_equal(counts, all_counts) and np.array_equal(sums, all_sums)
        if engine.exact and not same:
            raise ValueError(f"{engine.name} returns wrong results for {cell}")
        return int(counts.sum()), float(counts.sum() / max(1, all_counts.sum()))
    found, expected = (np.asarray(each[1], np.int64) for each in (result, reference))
    if engine.exact and not np.array_equal(found, expected):
        raise ValueError(f"{engine.name} returns wrong results for {cell}")
    return found.size, float(np.mean((found >= 0) & (found <= expected[:, -1:])))


def _flattened(result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of matches and the sums of distances of the queries."""
    if len(result) == 2:  # lists of arrays
        lengths = np.array([len(each) for each in result[1]], np.int64)
        return lengths, np.array([each.sum(dtype=np.int64) for each in result[1]])
    offsets, _, distances = result
    sums = np.concatenate([[0], np.cumsum(distances, dtype=np.int64)])
    return np.diff(offsets).astype(np.int64), np.diff(sums[offsets.astype(np.int64)])


def hardware() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    get = {key.strip(): value.strip() for key, value in found.items()}.get
    return f"{get('model name')} family {get('cpu family')} model {get('model')}"


def ratios(rows: Iterable[dict[str, str]]) -> dict[Cell, float]:
    """Return the time of the best engine of `RIVAL` relative to ours, by cell."""
    times: dict[Cell, dict[str, float]] = {}
    for r in rows:
        cell = Cell(int(r["codes"]), int(r["bits"]), r["kind"], int(r["queries"]), r["task"])
        times.setdefault(cell, {})[r["engine"]] = float(r["seconds"])
    found = {}
    for cell, known in times.items():
        rivals = [t for name, t in known.items() if name.startswith(RIVAL)]
        if OURS in known and rivals:
            found[cell] = min(rivals) / known[OURS]
    return found


def plot_grid(rows: Iterable[dict[str, str]], path: Path) -> None:
    """Draw the ratios of all cells as a heat map."""
    found = ratios(rows)
    across = [(queries, task) for queries in QUERIES for task in TASKS]
    down = sorted({(c.kind, c.codes, c.bits) for c in found}, key=lambda d: (d[1], d[2], d[0]))
    values = np.full((len(down), len(across)), np.nan)
    for cell, ratio in found.items():
        if (cell.queries, cell.task) in across:
            place = down.index((cell.kind, cell.codes, cell.bits))
            values[place, across.index((cell.queries, cell.task))] = ratio
    figure = Figure(figsize=(12, 1.5 + 0.24 * len(down)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.imshow(values, cmap="RdYlGn", norm=LogNorm(0.2, 5), aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            axes.text(column, row, f"{value:.3g}", ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(across)), [f"{q} x {task}" for q, task in across], rotation=90)
    names = [f"{count:,} x {bits}, {kind}" for kind, count, bits in down]
    axes.set_yticks(range(len(down)), names, fontsize=7)
    axes.set_title("Time of faiss relative to bitprint (better mode of faiss flat, 1 thread)")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
