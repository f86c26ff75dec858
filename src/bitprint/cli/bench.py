"""`bitprint bench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import OUTPUT, JsonOption, errors, output


def bench(
    what: Annotated[str, typer.Argument(metavar="BENCHMARK", help="name of the benchmark: search")],
    codes: Annotated[
        str, typer.Option(help="numbers of codes, separated by commas")
    ] = "59000,1000000",
    bits: Annotated[int, typer.Option(help="code length")] = 64,
    queries: Annotated[str, typer.Option(help="numbers of queries, separated by commas")] = "1,128",
    k: Annotated[str, typer.Option(help="numbers of neighbors, separated by commas")] = "10,100",
    radius: Annotated[int, typer.Option(help="radius of the search within a distance")] = 2,
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
    """Measure search speed on this machine, compared with NumPy and, if installed, faiss."""
    if what != "search":
        raise typer.BadParameter(f"there is no benchmark {what!r}; choose search")
    from bitprint.search import bench_report
    from bitprint.search.bench import Task
    from bitprint.search.engines import set_threads

    threads = threads or os.cpu_count() or 1
    set_threads(threads)
    counts = _numbers("--queries", queries)
    tasks = [Task(count, neighbours) for count in counts for neighbours in _numbers("--k", k)]
    tasks += [Task(count, radius=radius) for count in counts]
    rows = []
    for size in _numbers("--codes", codes):
        rows += bench_report.run_bench(
            size, bits, tasks, repeats=3, cap=5.0, progress=lambda line: errors.print(line)
        )
    if csv:
        bench_report.write_csv(rows, csv)
    if plot:
        bench_report.plot(rows, plot, bits)
    found = bench_report.budgets(rows)
    if as_json:
        verdicts = [budget.as_dict() for budget in found]
        output.print_json(data={"threads": threads, "rows": rows, "budgets": verdicts})
        return
    output.print(bench_report.file_table(rows), bench_report.search_table(rows))
    output.print("; ".join(map(str, found)), highlight=False, soft_wrap=True)


def _numbers(option: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{option} takes integers >= 1 separated by commas, got {text!r}")
    return numbers
