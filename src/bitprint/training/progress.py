"""The progress bar of training: loss, speed and time left."""

from __future__ import annotations

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


class EpochBar:
    """A bar over epochs that moves with every batch; silent when not `enabled`."""

    def __init__(self, epochs: int, finished: int, *, enabled: bool) -> None:
        self._progress = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not enabled,
        )
        self._task = self._progress.add_task(
            "epoch", total=epochs, completed=finished, loss="-", speed=""
        )

    def advance(self, share: float) -> None:
        """Move by a share of an epoch."""
        self._progress.advance(self._task, share)

    def finish_epoch(self, epochs: int, loss: float, speed: float) -> None:
        """Show the loss and the images per second of the epoch that ended, the `epochs`-th."""
        self._progress.update(
            self._task, completed=epochs, loss=f"{loss:.4f}", speed=f"{speed:,.0f} images/s"
        )

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
