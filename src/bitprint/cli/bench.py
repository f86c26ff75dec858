"""`bitprint bench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import OUTPUT, JsonOption, errors, output


def bench(
    name: Annotated[str, typer.Argument(metavar="BENCHMARK", help="name of the benchmark: search")],
    codes: Annotated[str, typer.Option(help="database sizes, comma-separated")] = "59000,1000000",
    bits: Annotated[int, typer.Option(help="code length")] = 64,
    queries: Annotated[
        str, typer.Option(help="numbers of queries per search, comma-separated")
    ] = "1,128",
    k: Annotated[
        str, typer.Option(help="numbers of nearest neighbors, comma-separated")
    ] = "10,100",
    radius: Annotated[int, typer.Option(help="Hamming radius of the range search")] = 2,
    threads: Annotated[
        int | None, typer.Option(min=1, help="number of threads (default: one per core)")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="write results to this CSV file", rich_help_panel=OUTPUT)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="write a plot to this PNG file", rich_help_panel=OUTPUT)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the search speed of Bitprint with NumPy and, if installed, faiss."""
    if name != "search":
        raise typer.BadParameter(f"unknown benchmark {name!r}; choose search")
    from bitprint.bench import report
    from bitprint.bench.engines import set_threads
    from bitprint.bench.measuring import BenchTask

    threads = threads or os.cpu_count() or 1
    set_threads(threads)
    counts = _numbers("--queries", queries)
    tasks = [BenchTask(count, nearest) for count in counts for nearest in _numbers("--k", k)]
    tasks += [BenchTask(count, radius=radius) for count in counts]
    rows = []
    for size in _numbers("--codes", codes):
        rows += report.run_bench(
            size, bits, tasks, repeats=3, cap=5.0, progress=lambda line: errors.print(line)
        )
    if csv:
        report.write_csv(rows, csv)
    if plot:
        report.plot(rows, plot, bits)
    found = report.budgets(rows)
    if as_json:
        targets = [budget.as_dict() for budget in found]
        output.print_json(data={"threads": threads, "rows": rows, "budgets": targets})
        return
    output.print(report.file_table(rows), report.search_table(rows))
    output.print("; ".join(map(str, found)), highlight=False, soft_wrap=True)


def _numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{option} takes comma-separated integers >= 1, got {text!r}")
    return numbers
