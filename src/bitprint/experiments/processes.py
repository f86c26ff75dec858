"""Run cells in worker processes, which end when the parent process ends."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from bitprint.data import ImageSet, open_images
from bitprint.experiments.cells import Cell, CellResult, run_cell
from bitprint.experiments.curves import save_curves
from bitprint.experiments.rows import missing_cells, save_rows

_SECOND = 1.0


def run_cells(
    cells: Sequence[Cell],
    table: Path,
    *,
    history: Path | None = None,
    workers: int = 1,
    deadline: float = float("inf"),
    progress: Callable[[Sequence[Cell]], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Run the missing cells of a table in order; yield rows as cells are completed.

    Parameters
    ----------
    cells : sequence of Cell
        Cells of one data set.
    table : path
        A CSV file. Each row is added when its cell is complete, so an interrupted table can be
        resumed.
    history : path, optional
        A CSV file for the metrics of each epoch.
    workers : int
        Number of parallel processes. Several processes can share one GPU.
    deadline : float
        Seconds after which no further cell is started.
    progress : callable, optional
        For logs without a terminal: called every second with the running cells. Training also
        prints its progress to standard error then.

    Yields
    ------
    dict
        A row of the table.
    """
    todo = missing_cells(cells, table)
    if not todo:
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as in multiprocessing
        raise ValueError(
            "worker processes import the main script: put this call under "
            '`if __name__ == "__main__":`'
        )
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    with (
        ProcessPoolExecutor(workers, context, _initialize, (todo[0], threads)) as pool,
        _terminate_on_error(),
    ):
        running: dict[Future[CellResult], Cell] = {}
        waiting = iter(todo)
        while True:
            in_time = time.monotonic() - started < deadline
            while in_time and len(running) < workers and (cell := next(waiting, None)):
                running[pool.submit(_run, cell, progress is not None)] = cell
            if not running:
                return
            while not (ended := wait(running, _SECOND, FIRST_COMPLETED).done):
                if progress is not None:
                    progress(list(running.values()))
            completed = ended.pop()
            row, epochs, report = completed.result()
            # The row is saved last, so that complete cells always have curves and epochs.
            save_curves(running.pop(completed), report, table)
            if history is not None and epochs:
                save_rows(history, epochs)
            save_rows(table, [row])
            yield row


@contextmanager
def _terminate_on_error() -> Iterator[None]:
    """Terminate the processes started in this context after an error or interruption.

    The pool would wait for their cells to complete, possibly for hours.
    """
    earlier = multiprocessing.active_children()
    try:
        yield
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a worker process ended before its cell was complete; if no error is shown above, it "
            "was killed, possibly for using too much memory: use fewer --workers"
        ) from error
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in earlier:
                process.terminate()
        raise


_images: ImageSet | None = None


def _initialize(cell: Cell, threads: int) -> None:
    """Load the images once in each worker, and limit the number of its threads."""
    global _images
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    _images = open_images(cell.dataset, labels=cell.labels)


def _exit_with_parent() -> None:
    """End this process when its parent ends, even if the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(cell: Cell, progress: bool) -> CellResult:
    assert _images is not None
    return run_cell(cell, _images, progress=progress)
