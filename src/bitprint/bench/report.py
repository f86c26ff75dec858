"""The search benchmark: run, tables, plot and performance budgets."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from rich import box
from rich.table import Table

from bitprint.bench.engines import Engine, Packed, faiss_flat, flat, indexed, numpy_scan
from bitprint.bench.files import MACHINE, file_rows, memory_row, tables_row
from bitprint.bench.measuring import BenchTask, Row, measure, random_codes

FASTER = {59_000: 2.0, 1_000_000: 3.0, 10_000_000: 4.0}
"""Required speed of the scan relative to faiss, by number of codes."""
LARGE = 10_000_000
READING, OPENING, OVERHEAD = 1.5, 3.0, 16
"""Limits: scan time / time to read memory, time to open / time to read the file, bytes per code
besides the code itself."""

FAISS_FLAT = ("faiss flat, heap", "faiss flat, counting")
_COLORS = ("#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#009E73", "#CC79A7", "#000000", "#999999")

Rivals = Callable[[Packed, int], Iterable[Engine]]


def installed_rivals(packed: Packed, bits: int) -> list[Engine]:
    """Return the engines of NumPy, and of faiss if it is installed."""
    return [*(faiss_flat(packed) if find_spec("faiss") else []), numpy_scan(packed)]


def run_bench(
    size: int,
    bits: int,
    tasks: Sequence[BenchTask],
    rivals: Rivals = installed_rivals,
    *,
    repeats: int = 5,
    cap: float = 60.0,
    progress: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Measure an index file of random codes, and all tasks on it.

    Parameters
    ----------
    size : int
        Number of codes.
    bits : int
    tasks : sequence of BenchTask
    rivals : callable
        Called with the packed codes and their bits; returns the engines to compare with.
    repeats, cap
        As in `bitprint.bench.measuring.measure`.
    progress : callable
        Called with a description of the next step.

    Returns
    -------
    list of dict
    """
    packed = random_codes(size, bits)
    about = f"{size:,} codes of {bits} bits"
    with tempfile.TemporaryDirectory() as folder:
        progress(f"{about}: creating an index")
        rows, index = file_rows(Path(folder) / "bench.bp", packed, bits)
        rows.append(memory_row(packed, bits))
        with index:
            # This builds the tables of the index, as in an index in use.
            rows.append(tables_row(index, packed, bits))
            engines = [flat(packed), indexed(index), *rivals(packed, bits)]
            for task in tasks:
                progress(f"{about}: {task}, {task.queries} queries")
                rows += measure(engines, task, packed, bits, repeats=repeats, cap=cap)
    return rows


def search_table(rows: Iterable[Row]) -> Table:
    """Return a table with a section for each task; ratios are relative to its first engine."""
    rows = [row for row in rows if row["queries"]]
    notes = dict.fromkeys(
        f"{row['engine']}, {row['codes']:,} x {row['bits']} bits: {row['note']}"
        for row in rows
        if row["note"]
    )
    table = Table(box=box.SIMPLE_HEAD, padding=0, caption="\n".join(notes), caption_justify="left")
    table.add_column("")
    for name in ("ms", "Mcodes/s", "ratio", "recall"):
        table.add_column(name, justify="right")
    section, first = "", float("nan")
    for row in rows:
        title = f"{row['codes']:,} x {row['bits']} bits, {row['queries']} x {row['task']}"
        if title != section:
            table.add_section()
            table.add_row(title, style="bold")
            section, first = title, row["seconds"] or float("nan")
        table.add_row(
            f"  {row['engine']}",
            _format(row["seconds"], 1e3, ",.2f"),
            _format(row["codes_per_second"], 1e-6, ",.0f"),
            _format(row["seconds"], 1 / first, ",.3f"),
            _format(row["recall"], 1, ".3f"),
        )
    return table


def file_table(rows: Iterable[Row]) -> Table:
    """Return a table of the time and memory for creating, reading and opening index files."""
    table = Table("codes", "bits", "", "", "ms", "codes/s", "bytes/code", box=box.SIMPLE_HEAD)
    for row in rows:
        if not row["queries"]:
            table.add_row(
                f"{row['codes']:,}",
                str(row["bits"]),
                row["task"],
                row["engine"],
                _format(row["seconds"], 1e3, ",.2f"),
                _format(row["codes_per_second"], 1, ",.0f"),
                _format(row["bytes_per_code"], 1, ".1f"),
            )
    return table


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write rows to a CSV file; missing values are empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _format(value: float | None, scale: float, form: str) -> str:
    return "-" if value is None else format(value * scale, form)


def plot(rows: Iterable[Row], path: Path, bits: int = 64) -> None:
    """Plot codes compared per second by number of codes, with a panel for each number of queries.

    The plot shows the task with the most neighbors, and only codes of `bits` bits.
    """
    rows = [r for r in rows if r["queries"] and r["seconds"] and r["bits"] == bits]
    if not rows:
        raise ValueError(f"nothing to plot: no codes of {bits} bits were measured")
    tasks = sorted({row["task"] for row in rows}, key=lambda task: int(task.split()[1]))
    rows = [row for row in rows if row["task"] == tasks[-1]]
    counts = sorted({row["queries"] for row in rows})
    figure = Figure(figsize=(1.5 + 3 * len(counts), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    rough = {row["engine"] for row in rows if row["recall"] < 1}
    for panel, count in zip(panels, counts, strict=True):
        for number, engine in enumerate(engines):
            found = [r for r in rows if r["engine"] == engine and r["queries"] == count]
            panel.plot(
                [row["codes"] for row in found],
                [row["codes_per_second"] for row in found],
                "o-" if engine.startswith("bitprint") else "s--",
                color=_COLORS[number % len(_COLORS)],
                label=f"{engine} (not exact)" if engine in rough else engine,
            )
        panel.set(title=f"{count} {'query' if count == 1 else 'queries'}", xlabel="codes")
        panel.set(xscale="log", yscale="log")
        panel.set_xticks(sorted({row["codes"] for row in rows}), minor=False)
        panel.set_xticks([], minor=True)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.tick_params(axis="x", rotation=45)
        panel.yaxis.set_major_formatter(EngFormatter())
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("codes compared per second")
    figure.suptitle(f"{tasks[-1]}, {bits} bits, random codes")
    figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside right center")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


@dataclass(frozen=True)
class Budget:
    """A measured ratio and its limit."""

    name: str
    measured: float
    promised: float
    at_least: bool

    @property
    def kept(self) -> bool:
        """Whether the limit is met."""
        if self.at_least:
            return self.measured >= self.promised
        return self.measured <= self.promised

    def as_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self) | {"kept": self.kept}

    def __str__(self) -> str:
        relation = ">=" if self.at_least else "<="
        result = "pass" if self.kept else "MISS"
        return f"{self.name}: {self.measured:.2f} ({relation} {self.promised:g}, {result})"


def budgets(rows: Iterable[Row]) -> list[Budget]:
    """Return the budgets of 64-bit codes that can be computed from these rows."""
    rows = list(rows)
    times: dict[tuple[Any, ...], float] = {
        (row["codes"], row["task"], row["queries"], row["engine"]): row["seconds"]
        for row in rows
        if row["bits"] == 64 and row["seconds"] is not None
    }
    found = []
    for size, minimum in FASTER.items():
        scan = times.get((size, "top 100", 128, "bitprint scan"))
        faiss = [times.get((size, "top 100", 128, name)) for name in FAISS_FLAT]
        known = [time for time in faiss if time is not None]
        if scan is not None and known:
            found.append(Budget(f"faiss / scan, {size:,}", min(known) / scan, minimum, True))
    for name, ours, machine, maximum in (
        (
            "scan for one query / reading memory",
            times.get((LARGE, "top 100", 1, "bitprint scan")),
            times.get((LARGE, "read memory", None, MACHINE)),
            READING,
        ),
        (
            "opening / reading the file",
            times.get((LARGE, "open", None, "bitprint index")),
            times.get((LARGE, "read file", None, MACHINE)),
            OPENING,
        ),
    ):
        if ours is not None and machine is not None:
            found.append(Budget(f"{name}, {LARGE:,}", ours / machine, maximum, False))
    for row in rows:
        if row["task"] == "open":
            overhead = row["bytes_per_code"] - row["bits"] / 8
            name = f"overhead bytes per code, {row['codes']:,} x {row['bits']}"
            found.append(Budget(name, overhead, OVERHEAD, False))
    return found
