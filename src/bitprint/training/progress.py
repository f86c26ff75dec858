"""Progress bar of training with loss, speed and remaining time, and plain lines for logs."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_PAUSE = 30.0  # seconds


class PlainLines:
    """Progress as plain lines for a log: at most one line every 30 seconds.

    Parameters
    ----------
    write : callable
        Receives each line.

    Examples
    --------
    >>> lines = PlainLines(print)
    >>> lines.offer("reading: 1 of 1000")  # within the first 30 seconds: not printed
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._written = time.monotonic()

    def offer(self, line: str) -> None:
        """Write the line if the last one is at least 30 seconds old."""
        if time.monotonic() - self._written >= _PAUSE:
            self._write(line)
            self._written = time.monotonic()


class Pace:
    """Rate and remaining time of a task, measured from its first report.

    Examples
    --------
    >>> pace = Pace(clock=iter([10.0, 14.0]).__next__)
    >>> pace(20, 100), pace(60, 100)
    ('', ', 10.0/s, 4 s left')
    """

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._first: tuple[float, int] | None = None

    def __call__(self, done: int, total: int) -> str:
        """Return the rate and the remaining time to append to a line; empty if not known."""
        now = self._clock()
        if self._first is None:
            self._first = now, done
        begun, first = self._first
        if now <= begun or done <= first:
            return ""
        rate = (done - first) / (now - begun)
        return f", {rate:.1f}/s, {(total - done) / rate:.0f} s left"


class EpochBar:
    """Progress bar over epochs that advances with every batch; hidden if not `enabled`.

    If standard error is not a terminal, plain lines that begin with `title` replace the bar.
    """

    def __init__(
        self, epochs: int, finished: int, *, enabled: bool, title: str = "training"
    ) -> None:
        console = Console(stderr=True)
        plain = enabled and not console.is_terminal
        write = partial(console.print, markup=False, highlight=False, soft_wrap=True)
        self._lines = PlainLines(write) if plain else None
        self._title = title
        self._progress = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not enabled,
        )
        self._task = self._progress.add_task(
            "epoch", total=epochs, completed=finished, loss="-", speed=""
        )

    def advance(self, share: float) -> None:
        """Advance by a share of an epoch."""
        self._progress.advance(self._task, share)
        if self._lines:
            self._lines.offer(self._line())

    def finish_epoch(self, epochs: int, loss: float, speed: float) -> None:
        """Show the loss and the images per second after `epochs` epochs."""
        self._progress.update(
            self._task, completed=epochs, loss=f"{loss:.4f}", speed=f"{speed:,.0f} images/s"
        )

    def _line(self) -> str:
        [task] = self._progress.tasks
        figures = f", loss {task.fields['loss']}, {task.fields['speed']}"
        done = f"{self._title}: {task.completed:.1f} of {task.total:.0f} epochs"
        return done + (figures if task.fields["speed"] else "")

    def __enter__(self) -> EpochBar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
