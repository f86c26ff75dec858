"""`bitprint demo | reproduce`."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from bitprint.cli._shared import (
    JsonOption,
    LabelsOption,
    counted,
    errors,
    items_of,
    labeled_images,
    note,
    open_set,
    output,
    parse_numbers,
    parse_options,
    progress_bar,
    resume_hint,
    say,
)
from bitprint.training.progress import PlainLines

if TYPE_CHECKING:
    from bitprint.data import ImageSet
    from bitprint.experiments.cells import Cell
    from bitprint.experiments.reproducing import TableReport

_DATA, _ROWS = "Data", "Methods"


def demo(
    out: Annotated[Path, typer.Option(help="folder for plots, model and images")] = Path("demo"),
) -> None:
    """Train, evaluate, save and search on built-in images; write plots."""
    from bitprint.demo import run_demo

    run_demo(out, output)


def reproduce(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="table1, table2, table3 or figure1")
    ],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="digits, shapes, cifar10 (default), nuswide, or a folder of image files",
            rich_help_panel=_DATA,
        ),
    ] = None,
    labels: LabelsOption = None,
    methods: Annotated[
        str,
        typer.Option(help="all, shallow, deep, or comma-separated names", rich_help_panel=_ROWS),
    ] = "all",
    bits: Annotated[
        str | None,
        typer.Option(
            help="code lengths, comma-separated (default: as in the paper)", rich_help_panel=_ROWS
        ),
    ] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            "--splits",
            "--seeds",
            min=1,
            help="number of random splits, or of seeds if the data has its own split (default: 3)",
            rich_help_panel=_DATA,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="input of shallow methods: pixels, gist, or the name of a backbone (default: gist "
            "for table1, otherwise the network of --backbone)",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="network of deep methods (default: suggested by the data, or efficientnet-lite0)",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    validation: Annotated[
        bool,
        typer.Option(
            "--validation",
            help="evaluate on held-out training images instead of queries",
            rich_help_panel=_DATA,
        ),
    ] = False,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen",
            help="evaluate on classes that are not in the training images",
            rich_help_panel=_DATA,
        ),
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="an option of all deep methods, such as epochs=20; can be repeated",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="short test run on digits with a small network")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="number of parallel processes")] = 1,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="start no new model after this time")
    ] = float("inf"),
    out: Annotated[
        Path | None,
        typer.Option(
            help="CSV file for the results; run again to resume; plots are written to its folder"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a table or figure of the DSDH paper and compare MAP with the paper.

    Trains and evaluates one model for each cell of the table: method, code length and split.
    Writes a CSV file, plots and an HTML report. Run the same command again to resume.
    """
    from bitprint.experiments.reproducing import (
        cells_of,
        command_line,
        missing_features,
        table_file,
        write_report,
    )
    from bitprint.experiments.rows import check_same_cells

    chosen: dict[str, Any] = {
        "dataset": dataset,
        "labels": None if labels is None else str(labels),
        "methods": methods,
        "bits": bits,
        "splits": splits,
        "features": features,
        "backbone": backbone,
        "validation": validation,
        "unseen": unseen,
        "set": change,
        "quick": quick,
    }
    run_options = {
        "workers": workers if workers > 1 else None,
        # The report shows this command for resuming, which a deadline of 0 would prevent.
        "deadline": None if deadline in (0, math.inf) else f"{deadline:g}",
        "out": out,
        "json": as_json,
    }
    shown = command_line(table, chosen | run_options)
    started = time.monotonic()
    if bits is not None:
        chosen["bits"] = parse_numbers("--bits", bits)
    chosen["set"] = parse_options(change or [])
    cells = cells_of(table, chosen)  # validate options before loading data
    out = table_file(table, cells[0], out)
    images = _read(cells[0].dataset, labels)
    cells = cells_of(table, chosen, images)
    check_same_cells(cells, out, images)
    if deadline > 0:
        for features in missing_features(cells, out):  # workers read them from the cache
            items_of(images, features)
    with resume_hint(), _sigterm_as_interrupt():
        _run(cells, out, workers, deadline - (time.monotonic() - started))
    _print_report(write_report(table, cells, images, out, shown, quick=quick), as_json)


def _read(dataset: str, labels: Path | None) -> ImageSet:
    with progress_bar(f"reading {dataset}") as progress:
        images: ImageSet = open_set(dataset, labels, progress)
    return images if images.labels is None else labeled_images(images)


def _run(cells: Sequence[Cell], out: Path, workers: int, deadline: float) -> None:
    """Run the missing cells of a table; show progress as a bar, or as lines without a terminal."""
    from bitprint.experiments.processes import run_cells
    from bitprint.experiments.reproducing import rows_of

    bar = Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
    lines, started = PlainLines(note), time.monotonic()

    def print_running(running: Sequence[Cell]) -> None:
        [task] = bar.tasks
        done = f"{task.completed:.0f} of {len(cells)} after {time.monotonic() - started:.0f} s"
        lines.offer(f"cells: {done}, running {'; '.join(cell.title for cell in running)}")

    with bar:
        task = bar.add_task("cells", total=len(cells), completed=len(rows_of(cells, out)))
        for row in run_cells(
            cells,
            out,
            history=out.with_name(f"{out.stem}_epochs.csv"),
            workers=workers,
            deadline=deadline,
            progress=None if errors.is_terminal else print_running,
        ):
            bar.advance(task)
            cell = f"{row['variant']}, {counted(row['bits'], 'bit')}, split {row['seed']}"
            note(f"{cell}: MAP {row['map']:.4f}, {row['train_seconds']} s")


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Handle SIGTERM, the signal of `kill` and `timeout`, like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_report(report: TableReport, as_json: bool) -> None:
    from bitprint.experiments.tables import compare

    if report.missing:
        note(
            f"{report.missing} of {report.cells} cells are missing; run the same command to resume"
        )
    if as_json:
        output.print_json(data=report.as_dict())
        return
    output.print(compare(report.rows, escape(report.title)))
    for line in [*report.standings, *report.notes]:
        say(line)
    say(f"report: {report.page}")
