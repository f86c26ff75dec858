"""What the commands on photographs print: hits, counts, what was skipped, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task
from rich.progress import TimeRemainingColumn as TimeLeftColumn
from rich.text import Text

from bitprint.cli._shared import errors, output

if TYPE_CHECKING:
    from bitprint.photos.files import Skipped


def print_about(about: dict[str, Any], as_json: bool) -> None:
    """Say what was done to an index, or what it holds."""
    from bitprint.photos.files import printable

    if as_json:
        output.print_json(data=about, ensure_ascii=True)
        return
    counts = ("new", "unchanged", "skipped", "moved", "removed", "held")
    parts = [
        f"{value if isinstance(value, int) else len(value)} {name}"
        for name in counts
        if (value := about.get(name)) is not None
    ]
    say(", ".join(parts))
    for name in ("bits", "model", "bytes"):
        if about.get(name) is not None:
            say(f"{name}: {about[name]}")
    for name in ("folders", "labels"):
        if about.get(name):
            say(f"{name}: {', '.join(printable(entry) for entry in about[name])}")


def print_found(found: Iterable[tuple[str, list[dict[str, Any]]]], as_json: bool) -> None:
    """Print the hits of several queries, each with its name."""
    if as_json:
        rows = [{"query": query, "results": hits} for query, hits in found]
        output.print_json(data=rows, ensure_ascii=True)
        return
    for query, hits in found:
        say(f"{query}:")
        print_hits(hits)


def print_hits(hits: list[dict[str, Any]]) -> None:
    """Print distance and path of every hit."""
    from bitprint.photos.files import printable

    for hit in hits:
        say(f"{hit['distance']:4d}  {printable(hit['path'] or str(hit['id']))}")


def list_skipped(skipped: Skipped) -> None:
    """Say which files were skipped, and why."""
    from bitprint.photos.files import printable

    for name, reason in skipped:
        note(f"skipped {printable(name)}: {printable(reason)}", style="yellow")


def say(line: str) -> None:
    """Print a line of results as it is."""
    output.print(line, markup=False, highlight=False, soft_wrap=True)


def note(line: str, style: str | None = None) -> None:
    """Print a line beside the results as it is."""
    errors.print(line, style=style, markup=False, highlight=False, soft_wrap=True)


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.1f}/s" if task.speed else "")


@contextmanager
def pictures_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left that appears with the first call of the function it gives."""
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), _RateColumn())
    hidden = not errors.is_terminal
    with Progress(
        *columns, TimeLeftColumn(), console=errors, transient=True, disable=hidden
    ) as bar:
        task = bar.add_task(title, visible=False)
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)
