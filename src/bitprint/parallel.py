"""Running compiled loops that release the GIL on every core."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def thread_count() -> int:
    """Return the number of threads that loops use: torch's number, without importing torch.

    If torch is not imported, this is OMP_NUM_THREADS or else the number of cores that the process
    may use.

    Examples
    --------
    >>> thread_count() >= 1
    True
    """
    of_torch = getattr(sys.modules.get("torch"), "get_num_threads", None)
    if of_torch is not None:
        return int(of_torch())
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def on_every_core(work: Callable[[slice], Result], count: int, most: int) -> list[Result]:
    """Run `work` on slices of `range(count)`, in as many threads as torch uses.

    Parameters
    ----------
    work : callable
        Takes a slice; releases the GIL while it computes.
    count : int
        How many items there are.
    most : int
        How many items a slice may have; fewer where cores would stay idle.

    Returns
    -------
    list
        The results, in the order of the slices.

    Examples
    --------
    >>> sum(on_every_core(lambda rows: rows.stop - rows.start, count=1000, most=64))
    1000
    """
    cores = thread_count()
    size = max(1, min(most, -(-count // cores)))
    slices = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    if len(slices) <= 1:
        return [work(rows) for rows in slices]
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(work, slices))
