"""Feed: batches of images or features on the device, without the device waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.data.images import ImageSet
from bitprint.data.inputs import Source


def item_shape(source: Source) -> tuple[int, ...]:
    """Shape of one item: (height, width, 3) of an image, or (d,) of a feature vector."""
    return (*source.size, 3) if isinstance(source, ImageSet) else source.shape[1:]


def fill_up(items: Tensor, count: int) -> Tensor:
    """Repeat the first item at the end until there are `count`.

    The first batch of each size takes a GPU seconds longer, some 8 s in training EfficientNet-Lite0
    on an H200. For a network that looks at each item by itself the last, smaller batch is better
    filled up, and the outputs of what was added left out.

    Examples
    --------
    >>> fill_up(torch.tensor([[1.0], [2.0]]), count=4).tolist()
    [[1.0], [2.0], [1.0], [1.0]]
    """
    missing = count - len(items)
    return torch.cat([items, items[:1].expand(missing, *items.shape[1:])]) if missing else items


class Feed:
    """Batches of a source on a device.

    A source that fits into a quarter of the device's free memory is copied there once; a larger
    one is read ahead by a thread while the device computes.

    Parameters
    ----------
    source : ImageSet or ndarray of float32, shape (N, d)
    device : torch.device
    part : callable, optional
        Which rows of a batch to read, where several processes share it; all of them by default.

    Examples
    --------
    >>> feed = Feed(np.eye(3, dtype=np.float32), torch.device("cpu"))
    >>> for rows, items in feed.batches(torch.tensor([2, 0, 1]), batch_size=2):
    ...     print(rows.tolist(), items.tolist())
    [2, 0] [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    [1] [[0.0, 1.0, 0.0]]
    >>> torch.cat(list(feed.outputs(lambda items: 2 * items, batch_size=2))).diag().tolist()
    [2.0, 2.0, 2.0]
    """

    def __init__(
        self,
        source: Source,
        device: torch.device,
        part: Callable[[Tensor], Tensor] = lambda rows: rows,
    ) -> None:
        self._source = source
        self._device = device
        self._part = part
        item = int(np.prod(item_shape(source))) * (1 if isinstance(source, ImageSet) else 4)
        fits = device.type == "cpu" and isinstance(source, np.ndarray)
        if device.type == "cuda":
            fits = item * len(source) <= torch.cuda.mem_get_info(device)[0] // 4
        self._resident = self._read(slice(None)).to(device) if fits else None

    def __len__(self) -> int:
        return len(self._source)

    def batches(self, order: Tensor, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (rows, items) on the device, for the rows of `order` in turn.

        Rows are those of the whole batch, items those of this process's part of it.
        """
        if self._resident is not None:
            for rows in order.to(self._device).split(batch_size):
                yield rows, self._resident[self._part(rows)]
        else:
            yield from self._read_ahead(order.split(batch_size))

    def outputs(self, net: Callable[[Tensor], Tensor], batch_size: int) -> Iterator[Tensor]:
        """Yield what a network gives for all items in their order, batch by batch.

        On a GPU all batches but that of a small source have one size, see `fill_up`.
        """
        fills = self._device.type == "cuda" and len(self) > batch_size
        for _, items in self.batches(torch.arange(len(self)), batch_size):
            batch = fill_up(items, batch_size) if fills else items
            yield net(batch)[: len(items)]

    def _read(self, rows: NDArray | slice) -> Tensor:
        source = self._source
        items = source.read(rows) if isinstance(source, ImageSet) else source[rows]
        return torch.from_numpy(np.ascontiguousarray(items))

    def _read_ahead(self, batches: tuple[Tensor, ...]) -> Iterator[tuple[Tensor, Tensor]]:
        ready: queue.Queue[Tensor | BaseException] = queue.Queue(maxsize=4)
        stopped = threading.Event()

        def read() -> None:
            try:
                for rows in batches:
                    items = self._read(self._part(rows).numpy())
                    ready.put(items.pin_memory() if self._device.type == "cuda" else items)
                    if stopped.is_set():
                        return
            except BaseException as error:  # handed to the consumer, who raises it
                ready.put(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            for rows in batches:
                items = ready.get()
                if isinstance(items, BaseException):
                    raise items
                yield (
                    rows.to(self._device, non_blocking=True),
                    items.to(self._device, non_blocking=True),
                )
        finally:
            stopped.set()
            while reader.is_alive():
                _drain(ready)
                reader.join(timeout=0.01)


def _drain(ready: queue.Queue[Tensor | BaseException]) -> None:
    while not ready.empty():
        ready.get_nowait()
