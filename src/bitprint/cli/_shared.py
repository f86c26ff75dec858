"""What the commands share: consoles, progress bars, arguments, opening image sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

output = Console()
"""Where results go."""
errors = Console(stderr=True)
"""Where everything else goes: progress, warnings, what was skipped."""

DataArgument = Annotated[
    str, typer.Argument(help="digits, shapes, cifar10, nuswide, or a folder of images")
]
LabelsOption = Annotated[
    Path | None, typer.Option("--labels", help="CSV file with columns file and label")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda")]

NAMED = ("digits", "shapes", "cifar10", "nuswide")
"""Image sets that are known by name."""


def open_set(name: str, labels: Path | None, progress: Callable[[int, int], None]) -> Any:
    """Open an image set; say which files were left out."""
    from bitprint.data import open_images

    images = open_images(name, labels=labels, progress=progress)
    for file, reason in images.skipped:
        errors.print(f"skipped {file}: {reason}", style="yellow", markup=False, soft_wrap=True)
    if images.skipped:
        errors.print(f"{len(images.skipped)} files skipped, {len(images)} images read")
    return images


def items_of(images: Any, features: str | None) -> Callable[[Any], Any]:
    """Return what gives rows of the images: as images, or as the features of this name."""
    from bitprint.features import extract

    if features is None:
        return lambda rows: images.subset(rows)
    with progress_bar(f"computing {features}") as progress:
        vectors = extract(images, features, progress=progress)
    return lambda rows: vectors[rows]


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar that appears with the first call of the function it gives."""
    with Progress(console=errors, transient=True) as bar:
        task = bar.add_task(title, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON where they can be, and text otherwise."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise typer.BadParameter(f"--set takes NAME=VALUE, got {pair!r}")
        try:
            options[name] = json.loads(value)
        except json.JSONDecodeError:
            options[name] = value
    return options
