"""Running compiled loops that release the GIL on every core."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


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
    cores = torch.get_num_threads()
    size = max(1, min(most, -(-count // cores)))
    slices = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    if len(slices) <= 1:
        return [work(rows) for rows in slices]
    with ThreadPoolExecutor(cores) as pool:
        return list(pool.map(work, slices))
