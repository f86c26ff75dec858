"""CUDA graphs: launch the forward and the backward pass of a network as one graph each."""

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

# Warnings that torch emits once per process while it captures a graph; both are harmless.
_FALSE_ALARMS = (
    "The AccumulateGrad node's stream does not match",
    "Attempting to run cuBLAS, but there was no current CUDA context",
)


class Captured:
    """A network whose passes over a whole batch are captured on a GPU and then replayed.

    A small network runs hundreds of kernels that take less time than Python takes to launch them;
    a captured graph launches all of them at once. A smaller batch is padded. If the network has
    batch norms in training mode, a smaller batch runs without a graph, as does every batch on a
    CPU. The outputs of a batch are overwritten by the next call.

    Parameters
    ----------
    net : Module
        Its mode (training or evaluation) and its tensors must not be replaced afterwards.
    batch_size : int
        Size of a whole batch.
    """

    def __init__(self, net: nn.Module, batch_size: int) -> None:
        self._net = net
        self._batch_size = batch_size
        self._recorded: Callable[[Tensor], Tensor] | None = None

    def __call__(self, items: Tensor) -> Tensor:
        """Return the outputs of the network for a batch."""
        whole = len(items) == self._batch_size
        if not items.is_cuda or not (whole or _items_are_independent(self._net)):
            outputs: Tensor = self._net(items)
            return outputs
        batch = fill_up(items, self._batch_size)
        if self._recorded is None:
            self._recorded = _record(self._net, batch)
        return self._recorded(batch)[: len(items)]


def _items_are_independent(net: nn.Module) -> bool:
    """Return whether no layer mixes the items of a batch, as a training batch norm does."""
    return not any(each.training for each in net.modules() if isinstance(each, BATCH_NORMS))


def _record(net: nn.Module, example: Tensor) -> Callable[[Tensor], Tensor]:
    """Capture the network as a graph and restore its buffers and the RNG state."""
    before = [buffer.clone() for buffer in net.buffers()]
    with torch.random.fork_rng([example.device]), _gc_paused():
        recorded = torch.cuda.make_graphed_callables(
            _Wrapper(net), (example,), allow_unused_input=True
        )
    for buffer, value in zip(net.buffers(), before, strict=True):
        buffer.copy_(value)
    return cast(Callable[[Tensor], Tensor], recorded)


@contextmanager
def silence_false_alarms() -> Iterator[None]:
    """Suppress harmless warnings of torch while graphs are captured and replayed."""
    with warnings.catch_warnings():
        for beginning in _FALSE_ALARMS:
            warnings.filterwarnings("ignore", beginning)
        yield


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Collect garbage now and pause the collector: freeing an old graph breaks a capture."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Wrapper(nn.Module):
    """Wrap the network, because capturing replaces the forward method of its module."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, items: Tensor) -> Tensor:
        outputs: Tensor = self.net(items)
        return outputs
