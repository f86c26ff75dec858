"""`bitprint demo | reproduce`."""

from __future__ import annotations

import math
import shlex
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
    goes_on,
    items_of,
    note,
    only_labelled,
    open_set,
    output,
    parse_options,
    progress_bar,
    say,
)
from bitprint.files import no_part_left
from bitprint.training.progress import PlainLines

if TYPE_CHECKING:
    from bitprint.data import ImageSet
    from bitprint.experiments.cells import Cell


def demo(
    out: Annotated[Path, typer.Option(help="folder for plots, model and pictures")] = Path("demo"),
) -> None:
    """Show the whole loop on embedded data: train, compare, plot, save, search."""
    from bitprint.demo import run_demo

    run_demo(out, output)


def reproduce(
    table: Annotated[str, typer.Argument(help="table1, table2, table3 or figure1")],
    dataset: Annotated[
        str | None,
        typer.Option(help="cifar10 (default), nuswide, or any other: a name or a folder"),
    ] = None,
    labels: LabelsOption = None,
    methods: Annotated[
        str, typer.Option(help="all, shallow or deep rows, or names with commas")
    ] = "all",
    bits: Annotated[str | None, typer.Option(help="lengths with commas; the table's")] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            "--splits",
            "--seeds",
            min=1,
            help="how many random splits, 3 by default; seeds only, if the set has its own split",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="what methods without a network learn from: gist, or a network's name"),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="network of deep methods (default: the one that suits the images)"),
    ] = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="measure on held-out training images")
    ] = False,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="search among classes that are kept from training")
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="change an option of all deep methods"),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="the whole path in seconds: digits, a small network")
    ] = False,
    workers: Annotated[int, typer.Option(min=1, help="processes at a time")] = 1,
    deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="start no further cell after so long")
    ] = float("inf"),
    out: Annotated[
        Path | None, typer.Option(help="CSV file; an unfinished one goes on, plots lie beside it")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a table or the figure of the paper and print ours beside theirs.

    Writes a CSV file, plots and a report in HTML. Can be interrupted and goes on.
    """
    from bitprint.experiments.rows import check_same_cells

    chosen = {
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
        # With 0 the command would not go on, as the report says that it does.
        "deadline": None if deadline in (0, math.inf) else f"{deadline:g}",
        "out": out,
        "json": as_json,
    }
    if out is not None and out.suffix.lower() != ".csv":
        raise ValueError(
            f"--out names a CSV file, beside which page and plots lie, such as {table}.csv; "
            f"got {str(out)!r}"
        )
    command = _command(table, chosen | apart)
    started = time.monotonic()
    cells = _cells(table, chosen)
    images = _read(cells)
    if backbone is None and images.backbone is not None and not quick:
        cells = _cells(table, chosen | {"backbone": images.backbone})
    if out is None:
        out = Path("results") / f"{table}_{_name(cells[0])}{_kind(cells[0])}.csv"
    check_same_cells(cells, out, images)
    if deadline > 0:
        _compute_features(cells, images, out)
    with goes_on(), _terminated_in_order():
        _run(cells, out, workers, deadline - (time.monotonic() - started))
    _report(table, cells, images, out, command, quick, as_json)


def _cells(table: str, chosen: dict[str, Any]) -> list[Cell]:
    from bitprint.experiments.cells import check_cells
    from bitprint.experiments.quick import quick_cells
    from bitprint.experiments.tables import EXPERIMENTS, experiment_cells

    if table not in EXPERIMENTS:
        raise ValueError(f"there is no {table!r}: choose {', '.join(EXPERIMENTS)}")
    given = {name: value for name, value in chosen.items() if value}
    quick = given.pop("quick", False)
    refused = [f"--{name}" for name in given if name not in ("methods", "bits", "splits")]
    if quick and refused:
        raise ValueError(
            f"--quick brings its own images and network; leave out {', '.join(refused)}"
        )
    if "bits" in given:
        given["bits"] = _lengths(given["bits"])
    if "set" in given:
        given["changes"] = parse_options(given.pop("set"))
    cells = quick_cells(table, **given) if quick else experiment_cells(table, **given)
    check_cells(cells)  # before a long read
    return cells


def _lengths(text: str) -> list[int]:
    try:
        return [int(length) for length in text.split(",")]
    except ValueError:
        raise ValueError(f"--bits takes numbers with commas, such as 12,48; got {text!r}") from None


_PRINTED = {"cifar10": "CIFAR-10", "nuswide": "NUS-WIDE"}


def _read(cells: Sequence[Cell]) -> ImageSet:
    """Read the images, and check that every cell can be run with them."""
    from bitprint.experiments.cells import check_cells

    first = cells[0]
    if first.dataset == "nuswide":
        _check_nuswide()
    labels = None if first.labels is None else Path(first.labels)
    with progress_bar(f"reading {first.dataset}") as progress:
        images: ImageSet = open_set(first.dataset, labels, progress)
    if images.labels is not None:
        images = only_labelled(images)
    check_cells(cells, images)
    return images


def _compute_features(cells: Sequence[Cell], images: ImageSet, out: Path) -> None:
    """Compute the features that cells yet to be run learn from; the workers then find them."""
    from bitprint.experiments.rows import missing_cells
    from bitprint.methods import DeepHasher, method

    missing = missing_cells(cells, out)
    sources = (cell.backbone for cell in missing if not issubclass(method(cell.method), DeepHasher))
    for features in dict.fromkeys(sources):
        items_of(images, features)


def _titles(table: str, cell: Cell, images: ImageSet) -> tuple[str, str]:
    """Return the title of the report, and what of it the plots say."""
    from bitprint.experiments.cells import split_of
    from bitprint.experiments.tables import EXPERIMENTS

    map_at = split_of(cell, images).map_at
    measure = f"MAP@{map_at}" if map_at else "MAP"
    # Classes that are kept from training are drawn, whatever split the set has.
    own = images.split is not None and not cell.unseen
    setting = "its own split" if own else f"setting {cell.protocol}"
    kinds = {", unseen classes": cell.unseen, ", held-out training images": cell.validation}
    name = _PRINTED.get(images.name, images.name)
    about = f"{name}, {setting}" + "".join(kind for kind, holds in kinds.items() if holds)
    return f"{EXPERIMENTS[table].title}: {measure} on {about}", about


def _name(cell: Cell) -> str:
    """Return the name of the images, of a folder its own."""
    return Path(cell.dataset).resolve().name


def _kind(cell: Cell) -> str:
    """Return what the names of files say of how a table is measured."""
    kinds = {"_validation": cell.validation, "_unseen": cell.unseen, "_quick": cell.quick}
    return "".join(kind for kind, holds in kinds.items() if holds)


def _stem(table: str, cell: Cell, out: Path) -> str:
    """Return the name of page and plots: tables that share a file have each their own.

    What the file's name says already is not repeated, and CIFAR-10, the default, is not said.
    """
    stem = out.stem if table in out.stem else f"{out.stem}_{table}"
    name, kind = _name(cell), _kind(cell)
    if name != "cifar10" and f"_{name}_" not in f"_{stem}_":
        stem += f"_{name}"
    return stem if stem.endswith(kind) else stem + kind


def _check_nuswide() -> None:
    from bitprint.data import data_home
    from bitprint.data.nuswide_check import check_nuswide

    folder = data_home() / "nuswide"
    problems = check_nuswide(folder).problems
    if problems:
        raise ValueError(
            f"{folder}: {problems[0]}; `bitprint data nuswide --check {folder}` says all that is"
        )


def _run(cells: Sequence[Cell], out: Path, workers: int, deadline: float) -> None:
    """Run the cells that the table lacks, with a bar that counts those that it has.

    Where standard error is no terminal, plain lines come in its place.
    """
    from bitprint.experiments.processes import run_cells

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
        task = bar.add_task("cells", total=len(cells), completed=len(_rows_of(cells, out)))
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
    """Let SIGTERM, by which `kill` and `timeout` end a command, interrupt it as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(
    table: str,
    cells: Sequence[Cell],
    images: ImageSet,
    out: Path,
    command: str,
    quick: bool,
    as_json: bool,
) -> None:
    """Print what the table holds of these cells, and write plots and page beside it."""
    from bitprint.experiments.figures import draw_figures
    from bitprint.experiments.html import html_report, remarks
    from bitprint.experiments.standings import standings
    from bitprint.experiments.tables import compare, summarise

    rows = _rows_of(cells, out)
    title, about = _titles(table, cells[0], images)
    several = images.labels is not None and images.labels.ndim == 2
    verdicts = [] if quick else standings(rows)
    notes = remarks(rows, quick=quick, several_labels=several)
    missing = len(cells) - len(rows)
    stem = _stem(table, cells[0], out)
    plots = draw_figures(rows, out, out.with_name(f"{stem}_plots"), about)
    page = out.with_name(f"{stem}.html")
    page.parent.mkdir(parents=True, exist_ok=True)
    text = html_report(
        title,
        rows,
        command=command,
        plots=plots,
        missing=missing,
        quick=quick,
        several_labels=several,
    )
    with no_part_left(page):
        page.write_text(text, "utf-8")
    if missing:
        note(f"{missing} of {len(cells)} cells are missing; the same command goes on")
    if as_json:
        found = {
            "title": title,
            "missing": missing,
            "notes": notes,
            "standings": verdicts,
            "files": [str(path) for path in (out, page, *plots)],
            "entries": [
                entry.as_dict() for line in summarise(rows).values() for entry in line.values()
            ],
        }
        output.print_json(data=found)
        return
    output.print(compare(rows, escape(title)))
    for line in [*verdicts, *notes]:
        say(line)
    say(f"report: {page}")


def _rows_of(cells: Sequence[Cell], out: Path) -> list[dict[str, str]]:
    """Rows of a table that are of these cells, in their order."""
    from bitprint.experiments.cells import KEY
    from bitprint.experiments.rows import read_table

    held = {tuple(row[name] for name in KEY): row for row in read_table(out)}
    return [held[cell.key] for cell in cells if cell.key in held]


def _command(table: str, chosen: dict[str, Any]) -> str:
    words = ["bitprint", "reproduce", table]
    for name, value in chosen.items():
        for each in value if isinstance(value, list) else [value] if value else []:
            words += [f"--{name}"] if each is True else [f"--{name}", str(each)]
    return shlex.join(words)
