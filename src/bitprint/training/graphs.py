"""CUDA graphs: the forward and the backward pass of a network, each launched as one."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn

from bitprint.data.feed import fill_up
from bitprint.nets.network import BATCH_NORMS

# Said by torch once a process, of a recording that it made itself and of what it then did right.
_FALSE_ALARMS = (
    "The AccumulateGrad node's stream does not match",
    "Attempting to run cuBLAS, but there was no current CUDA context",
)


class Captured:
    """A network that records on a GPU what it does with a whole batch, and then plays it back.

    A small network has hundreds of kernels that take a GPU less time than Python takes to ask for
    them; recorded, they are asked for at once. A smaller batch is filled up, or goes through the
    network itself if that has batch norms that learn; so does everything on a CPU. The outputs of
    a batch are overwritten by those of the next.

    Parameters
    ----------
    net : Module
        In the mode, and of the tensors, in which it will stay.
    batch_size : int
        Size of a whole batch.
    """

    def __init__(self, net: nn.Module, batch_size: int) -> None:
        self._net = net
        self._batch_size = batch_size
        self._recorded: Callable[[Tensor], Tensor] | None = None

    def __call__(self, items: Tensor) -> Tensor:
        """Outputs of the network for a batch."""
        whole = len(items) == self._batch_size
        if not items.is_cuda or not (whole or _sees_items_alone(self._net)):
            outputs: Tensor = self._net(items)
            return outputs
        batch = fill_up(items, self._batch_size)
        if self._recorded is None:
            self._recorded = _record(self._net, batch)
        return self._recorded(batch)[: len(items)]


def _sees_items_alone(net: nn.Module) -> bool:
    """Whether no layer mixes the items of a batch, as a batch norm does while it learns."""
    return not any(each.training for each in net.modules() if isinstance(each, BATCH_NORMS))


def _record(net: nn.Module, example: Tensor) -> Callable[[Tensor], Tensor]:
    """Run the network a few times, leaving no trace of that in it, and keep the last time."""
    before = [buffer.clone() for buffer in net.buffers()]
    with torch.random.fork_rng([example.device]), _garbage_kept():
        recorded = torch.cuda.make_graphed_callables(
            _Whole(net), (example,), allow_unused_input=True
        )
    for buffer, value in zip(net.buffers(), before, strict=True):
        buffer.copy_(value)
    return cast(Callable[[Tensor], Tensor], recorded)


@contextmanager
def false_alarms_unsaid() -> Iterator[None]:
    """Keep from users what torch warns of while recordings are made and played."""
    with warnings.catch_warnings():
        for beginning in _FALSE_ALARMS:
            warnings.filterwarnings("ignore", beginning)
        yield


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Collect garbage now and not inside: an older recording freed meanwhile spoils a new one."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Whole(nn.Module):
    """The network once more: recording replaces the forward pass of the module it is given."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, items: Tensor) -> Tensor:
        outputs: Tensor = self.net(items)
        return outputs
