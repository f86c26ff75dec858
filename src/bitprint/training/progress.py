"""Progress: the bar of training with loss, speed and time left, and lines for a log."""

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
    """Lines of progress in place of a bar, for a log: at most one in half a minute.

    Parameters
    ----------
    write : callable
        Takes each line that is due.

    Examples
    --------
    >>> lines = PlainLines(print)
    >>> lines.offer("reading: 1 of 1000")  # too early to be told
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._written = time.monotonic()

    def offer(self, line: str) -> None:
        """Write a line unless another one was written a moment ago."""
        if time.monotonic() - self._written >= _PAUSE:
            self._write(line)
            self._written = time.monotonic()


class EpochBar:
    """A bar over epochs that moves with every batch; silent when not `enabled`.

    Where standard error is no terminal, plain lines come in its place, which begin with `title`.
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
        """Move by a share of an epoch."""
        self._progress.advance(self._task, share)
        if self._lines:
            self._lines.offer(self._line())

    def finish_epoch(self, epochs: int, loss: float, speed: float) -> None:
        """Show the loss and the images per second of the epoch that ended, the `epochs`-th."""
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
