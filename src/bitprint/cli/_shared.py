"""Shared by the commands: consoles, argument types, progress bars and opening image sets."""

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

from bitprint.training.progress import Pace, PlainLines
from bitprint.utils.text import printable

output = Console()
"""Results: standard output."""
errors = Console(stderr=True)
"""Progress, warnings and notes: standard error."""

DATA, TRAINING, OUTPUT = "Data", "Training", "Output"
"""Panels of options in the help."""

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
        help="index file such as photos.bp, or database address: postgresql://... or milvus://...",
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="print results as JSON", rich_help_panel=OUTPUT)
]
DeviceOption = Annotated[
    str, typer.Option(help="auto, cpu or cuda (auto: cuda if available)", rich_help_panel=TRAINING)
]


def say(line: str) -> None:
    """Print a line of results without markup; control characters are escaped."""
    output.print(_escaped(line), markup=False, highlight=False, soft_wrap=True)


def note(line: str, style: str | None = None) -> None:
    """Print a line to standard error without markup; control characters are escaped."""
    errors.print(_escaped(line), style=style, markup=False, highlight=False, soft_wrap=True)


def _escaped(text: str) -> str:
    """Escape control characters, except line breaks, which some texts of our own contain."""
    return "\n".join(printable(line) for line in text.split("\n"))


def counted(count: int, noun: str) -> str:
    """Return a number and a noun, in the plural unless the number is 1.

    Examples
    --------
    >>> counted(1, "file"), counted(2, "file"), counted(0, "class")
    ('1 file', '2 files', '0 classes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{ending}"


def list_skipped(skipped: Iterable[tuple[str, str]]) -> None:
    """Print the skipped files and the reasons."""
    for name, reason in skipped:
        note(f"skipped {printable(name)}: {printable(reason)}", style="yellow")


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield a function that takes the number of items done and in total.

    If standard error is not a terminal, plain lines are printed instead.
    """
    if not errors.is_terminal:
        lines, pace = PlainLines(note), Pace()
        yield lambda done, total: lines.offer(f"{title}: {done} of {total}{pace(done, total)}")
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


_INTERRUPTED = 130  # the exit code of a process ended by Ctrl-C


@contextmanager
def resume_hint() -> Iterator[None]:
    """On Ctrl-C print how to resume the command, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        note("interrupted; run the same command again to resume", style="yellow")
        sys.exit(_INTERRUPTED)


def open_set(
    name: str, labels: Path | None, progress: Callable[[int, int], None], size: int = 256
) -> Any:
    """Open an image set; print which files were left out."""
    from bitprint.data import open_images

    images = open_images(name, labels=labels, size=size, progress=progress)
    note_skipped(images)
    return images


def note_skipped(images: Any) -> None:
    """Print the skipped files of an image set and the number of files in other formats."""
    list_skipped(images.skipped)
    if images.skipped:
        skipped = counted(len(images.skipped), "file")
        note(f"{skipped} skipped, {counted(len(images), 'image')} read")
    note_left_out(images.left_out)


def labeled_images(images: Any) -> Any:
    """Return the images that have a label; print how many have none."""
    part = images.labelled()
    note_unlabeled(len(images) - len(part))
    return part


def note_unlabeled(count: int) -> None:
    """Print how many images are left out because they have no label."""
    if count:
        are = "is" if count == 1 else "are"
        note(f"{counted(count, 'image')} without a label {are} left out", style="yellow")


def note_left_out(names: Sequence[str]) -> None:
    """Print how many images are in unsupported formats."""
    from bitprint.data.formats import describe_left_out

    if names:
        note(describe_left_out(names), style="yellow")


def items_of(images: Any, features: str | None) -> Callable[[Any], Any]:
    """Return a row accessor of the images or of their features; show a progress bar."""
    from bitprint import workflows

    with progress_bar(f"computing {features}") as progress:
        return workflows.items_of(images, features, progress)


def parse_numbers(option: str, text: str) -> list[int]:
    """Parse comma-separated integers.

    Examples
    --------
    >>> parse_numbers("--top", "10,100")
    [10, 100]
    """
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{option} takes comma-separated integers, such as 10,100; got {text!r}"
        ) from None


_NOT_BY_SET = {
    "bits": "use --bits",
    "name": "use --method",
    "training": "set its fields instead, such as --set epochs=20",
}


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs; a value that is not valid JSON is a string."""
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
