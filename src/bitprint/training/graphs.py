"""CUDA graphs: the forward and the backward pass of a network, each launched as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn


class Captured:
    """A network that records on a GPU what it does with a whole batch, and then plays it back.

    A small network has hundreds of kernels that take a GPU less time than Python takes to ask for
    them; recorded, they are asked for at once. Smaller batches go through the network itself, and
    so does everything on a CPU. The outputs of a batch are overwritten by those of the next.

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
        if not items.is_cuda or len(items) != self._batch_size:
            outputs: Tensor = self._net(items)
            return outputs
        if self._recorded is None:
            self._recorded = _record(self._net, items)
        return self._recorded(items)


def _record(net: nn.Module, example: Tensor) -> Callable[[Tensor], Tensor]:
    """Run the network a few times, leaving no trace of that in it, and keep the last time."""
    before = [buffer.clone() for buffer in net.buffers()]
    with torch.random.fork_rng([example.device]):
        recorded = torch.cuda.make_graphed_callables(
            _Whole(net), (example,), allow_unused_input=True
        )
    for buffer, value in zip(net.buffers(), before, strict=True):
        buffer.copy_(value)
    return cast(Callable[[Tensor], Tensor], recorded)


class _Whole(nn.Module):
    """The network once more: recording replaces the forward pass of the module it is given."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, items: Tensor) -> Tensor:
        outputs: Tensor = self.net(items)
        return outputs
