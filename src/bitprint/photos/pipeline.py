"""Decode image files and compute their codes or features on all cores."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bitprint.data.decoding import decode_ahead, try_decode
from bitprint.utils.devices import one_thread_per_worker

BATCH = 4
"""Images that a thread decodes and computes at a time: few, so that they stay in its cache."""
GPU_BATCH = 64
"""Images that a GPU computes at a time."""
_AHEAD = 4
"""Batches per thread that wait while finished ones are stored."""

Result = TypeVar("Result")
Compute = Callable[[NDArray[np.uint8]], Result]


class Computed(NamedTuple, Generic[Result]):
    """A batch of files."""

    rows: list[int]
    """Positions of the files that could be read."""
    result: Result | None
    """What was computed from their pixels; None if no file could be read."""
    skipped: dict[int, str]
    """Positions of the other files, each with the reason."""


def compute_ahead(
    paths: Sequence[str], size: int, compute: Compute[Result], batch_size: int = BATCH
) -> Iterator[Computed[Result]]:
    """Decode files and call a function with their pixels, in batches, on all cores.

    Each thread decodes a batch and then calls the function, with one thread of torch. So all cores
    are busy although decoding an image uses only one. With a GPU, threads decode the next batch of
    `GPU_BATCH` files while the GPU computes.

    Parameters
    ----------
    paths : sequence of str
    size : int
        Height and width of every image, see `bitprint.data.decode_image`.
    compute : callable
        Takes pixels (n, size, size, 3). It is called by several threads at the same time.
    batch_size : int
        Number of files per batch without a GPU.

    Yields
    ------
    Computed
        In the order of the files.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for gray in (0, 128, 255):
    ...         Image.new("L", (40, 30), gray).save(f"{folder}/{gray}.png")
    ...     paths = [f"{folder}/{name}.png" for name in ("0", "128", "64", "255")]
    ...     for batch in compute_ahead(paths, 8, lambda pixels: int(pixels.max()), batch_size=3):
    ...         print(batch.rows, batch.result, batch.skipped)
    [0, 1] 128 {2: 'no such file'}
    [3] 255 {}
    """
    if torch.cuda.is_available():
        for batch in decode_ahead(paths, size, GPU_BATCH):
            result = compute(batch.pixels) if batch.rows else None
            yield Computed(batch.rows, result, batch.skipped)
        return

    def work(rows: range) -> Computed[Result]:
        found = {row: try_decode(paths[row], size) for row in rows}
        images = {row: each for row, each in found.items() if not isinstance(each, str)}
        skipped = {row: each for row, each in found.items() if isinstance(each, str)}
        result = compute(np.stack(list(images.values()))) if images else None
        return Computed(list(images), result, skipped)

    waiting: deque[Future[Computed[Result]]] = deque()
    with one_thread_per_worker() as workers:
        pool = ThreadPoolExecutor(workers)
        try:
            for start in range(0, len(paths), batch_size):
                rows = range(start, min(start + batch_size, len(paths)))
                waiting.append(pool.submit(work, rows))
                if len(waiting) > _AHEAD * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
