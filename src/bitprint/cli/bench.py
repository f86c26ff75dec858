"""`bitprint bench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import JsonOption, errors, output


def bench(
    what: Annotated[str, typer.Argument(help="search")],
    codes: Annotated[str, typer.Option(help="numbers of codes, with commas")] = "59000,1000000",
    bits: Annotated[int, typer.Option(help="length of the codes")] = 64,
    queries: Annotated[str, typer.Option(help="numbers of queries, with commas")] = "1,128",
    k: Annotated[str, typer.Option(help="numbers of neighbours, with commas")] = "10,100",
    radius: Annotated[int, typer.Option(help="also find all codes this near")] = 2,
    threads: Annotated[int | None, typer.Option(min=1, help="by default one for each core")] = None,
    csv: Annotated[Path | None, typer.Option(help="CSV file for the figures")] = None,
    plot: Annotated[Path | None, typer.Option(help="PNG file for a plot")] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure search on this machine: ours, NumPy's and, if it is installed, that of faiss."""
    from bitprint.search import bench_report
    from bitprint.search.bench import Task
    from bitprint.search.engines import set_threads

    if what != "search":
        raise ValueError(f"there is no benchmark {what!r}: choose search")
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
        raise typer.BadParameter(f"{option} takes whole numbers with commas, got {text!r}")
    return numbers
