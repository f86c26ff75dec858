"""What the commands share: where and how they print, their arguments, opening image sets."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

from bitprint.training.progress import PlainLines

output = Console()
"""Where results go."""
errors = Console(stderr=True)
"""Where everything else goes: progress, warnings, what was skipped."""

DATA, TRAINING, OUTPUT = "Data", "Training", "Output"
"""Groups of options in the help of the commands."""

DataArgument = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="digits, shapes, cifar10, nuswide, or a folder of image files"
    ),
]
LabelsOption = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        help="CSV file with columns file and label (default: each sub-folder is a class)",
        rich_help_panel=DATA,
    ),
]
IndexArgument = Annotated[
    str,
    typer.Argument(
        metavar="INDEX",
        help="index file, such as photos.bp, or database address: postgresql://... or milvus://...",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="print results as JSON", rich_help_panel=OUTPUT)
]
DeviceOption = Annotated[
    str, typer.Option(help="auto, cpu or cuda (auto: cuda if available)", rich_help_panel=TRAINING)
]


def say(line: str) -> None:
    """Print a line of results as it is."""
    output.print(line, markup=False, highlight=False, soft_wrap=True)


def note(line: str, style: str | None = None) -> None:
    """Print a line beside the results as it is."""
    errors.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


def counted(count: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "file"), counted(2, "file"), counted(0, "class")
    ('1 file', '2 files', '0 classes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def list_skipped(skipped: Iterable[tuple[str, str]]) -> None:
    """Say which files were skipped, and why."""
    from bitprint.photos.files import printable

    for name, reason in skipped:
        note(f"skipped {printable(name)}: {printable(reason)}", style="yellow")


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left, from the first call of the yielded function to the last.

    Where standard error is no terminal, plain lines replace it.
    """
    if not errors.is_terminal:
        lines = PlainLines(note)
        yield lambda done, total: lines.offer(f"{title}: {done} of {total}")
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), _RateColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=errors, transient=True)
    task = bar.add_task(escape(title))

    def show(done: int, total: int) -> None:
        bar.start()
        bar.update(task, completed=done, total=total)
        if done >= total:  # another bar may follow
            bar.stop()

    try:
        yield show
    finally:
        bar.stop()


_INTERRUPTED = 130  # which shells know as the end by Ctrl-C, and typer's own


@contextmanager
def resume_hint() -> Iterator[None]:
    """End a command that is interrupted with the advice to run it again."""
    try:
        yield
    except KeyboardInterrupt:
        note("interrupted; run the same command again to resume", style="yellow")
        sys.exit(_INTERRUPTED)


def open_set(
    name: str, labels: Path | None, progress: Callable[[int, int], None], size: int = 256
) -> Any:
    """Open an image set; say which files were left out."""
    from bitprint.data import open_images

    images = open_images(name, labels=labels, size=size, progress=progress)
    tell_unread(images)
    return images


def tell_unread(images: Any) -> None:
    """Say which files of an image set were skipped, and how many are in other formats."""
    list_skipped(images.skipped)
    if images.skipped:
        skipped = counted(len(images.skipped), "file")
        note(f"{skipped} skipped, {counted(len(images), 'image')} read")
    tell_left_out(images.left_out)


def only_labelled(images: Any) -> Any:
    """Return the images that have a label; note how many have none, if any have not."""
    part = images.labelled()
    tell_unlabelled(len(images) - len(part))
    return part


def tell_unlabelled(count: int) -> None:
    """Note how many images have no label and are left out, if there are any."""
    if count:
        are = "is" if count == 1 else "are"
        note(f"{counted(count, 'image')} without a label {are} left out", style="yellow")


def tell_left_out(names: Sequence[str]) -> None:
    """Say how many pictures are in formats that are not read, if any are."""
    from bitprint.data.formats import say_left_out

    if names:
        note(say_left_out(names), style="yellow")


def items_of(images: Any, features: str | None) -> Callable[[Any], Any]:
    """Return a row accessor of the images, or of their features; show a progress bar."""
    from bitprint import workflows

    with progress_bar(f"computing {features}") as progress:
        return workflows.items_of(images, features, progress)


_NOT_BY_SET = {
    "bits": "use --bits",
    "name": "use --method",
    "training": "set its fields one by one",
}


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; values are JSON where they can be, and text otherwise."""
    options = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"--set takes NAME=VALUE, got {pair!r}")
        if name in _NOT_BY_SET:
            raise typer.BadParameter(f"--set does not take {name}; {_NOT_BY_SET[name]}")
        try:
            options[name] = json.loads(value)
        except (ValueError, RecursionError):
            options[name] = value
    return options
