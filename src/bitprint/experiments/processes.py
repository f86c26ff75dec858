"""Cells run by processes of their own, which end with the one that started them."""

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
from bitprint.experiments.cells import Cell, Done, run_cell
from bitprint.experiments.curves import keep_curves
from bitprint.experiments.rows import keep_rows, missing_cells

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
    """Run the cells that a table lacks, in order, and yield their rows as they come.

    Parameters
    ----------
    cells : sequence of Cell
        Of one data set.
    table : path
        A CSV file; each row is added as soon as its cell is done, so that an interrupted table
        goes on where it stopped.
    history : path, optional
        A CSV file for the figures of every epoch.
    workers : int
        Processes at a time; several keep one GPU busy.
    deadline : float
        Seconds after which no further cell is started.
    progress : callable, optional
        For a log, where there is no terminal: called every second with the cells under way, whose
        networks write lines of their own to standard error.
    """
    todo = missing_cells(cells, table)
    if not todo:
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as the library asks
        raise ValueError(
            "every process that runs cells imports the script that started it, so this must stand "
            'under `if __name__ == "__main__":`'
        )
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    with (
        ProcessPoolExecutor(workers, context, _open, (todo[0], threads)) as pool,
        _ending_workers(),
    ):
        running: dict[Future[Done], Cell] = {}
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
            finished = ended.pop()
            row, epochs, report = finished.result()
            # Before the row: a cell that counts as done has its curves and epochs.
            keep_curves(running.pop(finished), report, table)
            if history is not None and epochs:
                keep_rows(history, epochs)
            keep_rows(table, [row])
            yield row


@contextmanager
def _ending_workers() -> Iterator[None]:
    """On an error or interruption end the processes that were started within, whatever they do.

    The pool would wait for their cells, hours perhaps, and nobody takes what comes of them.
    """
    others = multiprocessing.active_children()
    try:
        yield
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that runs cells ended before its cell was done; if nothing above says why, "
            "it was killed, perhaps for want of memory: use fewer --workers"
        ) from error
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise


_images: ImageSet | None = None


def _open(cell: Cell, threads: int) -> None:
    """Load the images once in each worker, and give it its share of the cores."""
    global _images
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    _images = open_images(cell.dataset, labels=cell.labels)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, which may have been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(cell: Cell, progress: bool) -> Done:
    assert _images is not None
    return run_cell(cell, _images, progress=progress)
