"""Run compiled loops that release the GIL in parallel."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def thread_count() -> int:
    """Return the number of threads for parallel loops, without importing torch.

    This is the number of threads of torch if torch is imported. Otherwise it is OMP_NUM_THREADS if
    set, or the number of cores that this process may use.

    Examples
    --------
    >>> thread_count() >= 1
    True
    """
    torch_threads = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if torch_threads is not None:
        return int(torch_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_every_core(work: Callable[[slice], Result], count: int, most: int) -> list[Result]:
    """Run `work` on slices of `range(count)` in parallel threads.

    Parameters
    ----------
    work : callable
        Takes a slice; releases the GIL while it computes.
    count : int
        Number of items.
    most : int
        Maximum number of items in a slice. Slices are smaller if cores would be idle otherwise.

    Returns
    -------
    list
        The results, in the order of the slices.

    Examples
    --------
    >>> sum(on_every_core(lambda rows: rows.stop - rows.start, count=1000, most=64))
    1000
    """
    threads = thread_count()
    size = max(1, min(most, -(-count // threads)))
    slices = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    if threads == 1 or len(slices) <= 1:
        return [work(rows) for rows in slices]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, slices))
