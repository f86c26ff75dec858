"""`bitprint demo | reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import (
    LabelsOption,
    errors,
    items_of,
    open_set,
    output,
    progress_bar,
)


def demo(
    out: Annotated[Path, typer.Option(help="folder for plots, model and pictures")] = Path("demo"),
) -> None:
    """Show the whole loop on embedded data: train, compare, plot, save, search."""
    from bitprint.demo import run_demo

    run_demo(out, output)


def reproduce(
    table: Annotated[str, typer.Argument(help="table1 (GIST features) or table3 (a network's)")],
    dataset: Annotated[
        str, typer.Option(help="cifar10, nuswide, or any other set: a name or a folder")
    ] = "cifar10",
    labels: LabelsOption = None,
    methods: Annotated[str, typer.Option(help="shallow, or names with commas")] = "shallow",
    bits: Annotated[str | None, typer.Option(help="lengths with commas; the table's")] = None,
    splits: Annotated[
        int, typer.Option(help="how many random splits; seeds only, if the set has its own split")
    ] = 3,
    features: Annotated[
        str | None, typer.Option(help="for table3: the network whose features are used")
    ] = None,
    validation: Annotated[
        bool, typer.Option("--validation", help="measure on held-out training images")
    ] = False,
    workers: Annotated[int, typer.Option(help="processes at a time")] = 1,
    out: Annotated[Path | None, typer.Option(help="CSV file; an unfinished one goes on")] = None,
) -> None:
    """Run a table of the paper and print ours beside theirs; can be interrupted and goes on."""
    from bitprint.experiments.cells import read_table, run_cells
    from bitprint.experiments.tables import SHALLOW, compare, shallow_cells

    if table not in ("table1", "table3"):
        raise ValueError(f"there is no {table!r}: choose table1 or table3")
    source = (features or "efficientnet-lite0") if table == "table3" else "gist"
    measured_on = "_validation" if validation else ""
    title = _prepare(dataset, labels, source)
    out = (
        out or Path("results") / f"{table}_{Path(dataset).resolve().name}_shallow{measured_on}.csv"
    )
    cells = shallow_cells(
        dataset,
        SHALLOW if methods == "shallow" else methods.split(","),
        features=source,
        bits=[int(length) for length in bits.split(",")] if bits else None,
        splits=splits,
        validation=validation,
        labels=None if labels is None else str(labels),
    )
    with progress_bar(f"{len(cells)} cells") as progress:
        for done, row in enumerate(run_cells(cells, out, workers=workers), start=1):
            progress(done, len(cells))
            figures = f"MAP {row['map']:.4f}, {row['train_seconds']} s"
            errors.print(f"{row['variant']}, {row['bits']} bits, split {row['seed']}: {figures}")
    wanted = {cell.key for cell in cells}
    rows = [row for row in read_table(out) if _key(row) in wanted]
    output.print(compare(rows, title))


def _prepare(dataset: str, labels: Path | None, features: str) -> str:
    """Check the images and compute their features, which the workers then find; say what is run."""
    from bitprint.data import split_for

    with progress_bar(f"reading {dataset}") as progress:
        images = open_set(dataset, labels, progress)
    split = split_for(images, 1)
    items_of(images, features)
    measure = f"MAP@{split.map_at}" if split.map_at else "MAP"
    setting = "setting 1" if images.split is None else "its own split"
    return f"{measure} on {images.name}, {setting}, {features} features"


def _key(row: dict[str, str]) -> tuple[str, ...]:
    from bitprint.experiments.cells import KEY

    return tuple(row[name] for name in KEY)
