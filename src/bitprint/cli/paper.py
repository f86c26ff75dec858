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
    note,
    only_labelled,
    open_set,
    output,
    parse_options,
    progress_bar,
    resume_hint,
    say,
)
from bitprint.training.progress import PlainLines

if TYPE_CHECKING:
    from bitprint.data import ImageSet
    from bitprint.experiments.cells import Cell
    from bitprint.experiments.reproducing import Written

_DATA, _ROWS = "Data", "Methods"


def demo(
    out: Annotated[Path, typer.Option(help="folder for plots, model and images")] = Path("demo"),
) -> None:
    """Train, evaluate, save and search on built-in images, with plots."""
    from bitprint.demo import run_demo

    run_demo(out, output)


def reproduce(
    table: Annotated[str, typer.Argument(help="table1, table2, table3 or figure1")],
    dataset: Annotated[
        str | None,
        typer.Option(
            help="digits, shapes, cifar10 (default), nuswide, or a folder", rich_help_panel=_DATA
        ),
    ] = None,
    labels: LabelsOption = None,
    methods: Annotated[
        str, typer.Option(help="all, shallow, deep, or names with commas", rich_help_panel=_ROWS)
    ] = "all",
    bits: Annotated[
        str | None,
        typer.Option(
            help="code lengths with commas (default: those of the table)", rich_help_panel=_ROWS
        ),
    ] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            "--splits",
            "--seeds",
            min=1,
            help="number of random splits (default: 3); of seeds, if the data has its own split",
            rich_help_panel=_DATA,
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="input of methods without a network: pixels, gist, or the name of a backbone",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="network of deep methods (default: chosen by the images)", rich_help_panel=_ROWS
        ),
    ] = None,
    validation: Annotated[
        bool,
        typer.Option(
            "--validation", help="measure on held-out training images", rich_help_panel=_DATA
        ),
    ] = False,
    unseen: Annotated[
        bool,
        typer.Option(
            "--unseen",
            help="search among classes that are not in the training images",
            rich_help_panel=_DATA,
        ),
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="an option of all deep methods, such as epochs=20",
            rich_help_panel=_ROWS,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="a short test run: digits and a small network")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="number of parallel processes")] = 1,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="start no cell after this time")
    ] = float("inf"),
    out: Annotated[
        Path | None, typer.Option(help="CSV file; run again to resume; plots are written beside it")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a table or the figure of the paper and print our MAP next to the paper's.

    Writes a CSV file, plots and a report in HTML. Run the same command again to resume.
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
    apart = {
        "workers": workers if workers > 1 else None,
        # Not with 0: the report shows this command as the one that resumes.
        "deadline": None if deadline in (0, math.inf) else f"{deadline:g}",
        "out": out,
        "json": as_json,
    }
    shown = command_line(table, chosen | apart)
    started = time.monotonic()
    if bits is not None:
        chosen["bits"] = _lengths(bits)
    chosen["set"] = parse_options(change or [])
    cells = cells_of(table, chosen)  # validates the options before loading data
    out = table_file(table, cells[0], out)
    images = _read(cells[0].dataset, labels)
    cells = cells_of(table, chosen, images)
    check_same_cells(cells, out, images)
    if deadline > 0:
        for features in missing_features(cells, out):  # the workers then read them
            items_of(images, features)
    with resume_hint(), _terminated_in_order():
        _run(cells, out, workers, deadline - (time.monotonic() - started))
    _print_report(write_report(table, cells, images, out, shown, quick=quick), as_json)


def _lengths(text: str) -> list[int]:
    try:
        return [int(length) for length in text.split(",")]
    except ValueError:
        raise ValueError(f"--bits takes numbers with commas, such as 12,48; got {text!r}") from None


def _read(dataset: str, labels: Path | None) -> ImageSet:
    with progress_bar(f"reading {dataset}") as progress:
        images: ImageSet = open_set(dataset, labels, progress)
    return images if images.labels is None else only_labelled(images)


def _run(cells: Sequence[Cell], out: Path, workers: int, deadline: float) -> None:
    """Run the missing cells of a table, with a progress bar, or plain lines without a terminal."""
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

    def tell(under_way: Sequence[Cell]) -> None:
        [task] = bar.tasks
        done = f"{task.completed:.0f} of {len(cells)} after {time.monotonic() - started:.0f} s"
        lines.offer(f"cells: {done}, under way {'; '.join(cell.title for cell in under_way)}")

    with bar:
        task = bar.add_task("cells", total=len(cells), completed=len(rows_of(cells, out)))
        for row in run_cells(
            cells,
            out,
            history=out.with_name(f"{out.stem}_epochs.csv"),
            workers=workers,
            deadline=deadline,
            progress=None if errors.is_terminal else tell,
        ):
            bar.advance(task)
            figures = f"MAP {row['map']:.4f}, {row['train_seconds']} s"
            note(f"{row['variant']}, {counted(row['bits'], 'bit')}, split {row['seed']}: {figures}")


@contextmanager
def _terminated_in_order() -> Iterator[None]:
    """Treat SIGTERM, which `kill` and `timeout` send, as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_report(report: Written, as_json: bool) -> None:
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
