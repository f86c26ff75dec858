"""Averaged weights: a running mean of the network that training ends with in place of the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from bitprint.training.state import State

_PREFIX = "average."


def start_average(net: nn.Module, state: State) -> None:
    """Put a copy of the network's weights and running averages into the state.

    There a checkpoint finds it.
    """
    for name, value in _followed(net).items():
        state.tensors[_PREFIX + name] = value.detach().clone()


def without_average(state: State) -> State:
    """A state whose buffers are copies of the method's own."""
    own = {name: value for name, value in state.tensors.items() if not name.startswith(_PREFIX)}
    return replace(state, tensors={name: value.clone() for name, value in own.items()})


def follow(net: nn.Module, state: State, decay: float, steps: int) -> None:
    """Move the average towards the network.

    Parameters
    ----------
    net : Module
    state : State
        Holds the average.
    decay : float
        How much of the average stays, once training is long enough.
    steps : int
        Steps done: after few, less stays, so that the first weights are soon forgotten.
    """
    share = 1 - min(decay, (1 + steps) / (10 + steps))
    followed = _followed(net)
    averages = [state.tensors[_PREFIX + name] for name in followed]
    torch._foreach_lerp_(averages, [value.detach() for value in followed.values()], share)


def finish_average(net: nn.Module, state: State) -> None:
    """Give the network the averaged weights, and take them out of the state."""
    with torch.no_grad():
        for name, value in _followed(net).items():
            value.copy_(state.tensors.pop(_PREFIX + name))


@contextmanager
def averaged(net: nn.Module, state: State, average: float) -> Iterator[None]:
    """Give the network its averaged weights for a while; where `average` is 0 there are none.

    Examples
    --------
    >>> net, state = nn.Linear(1, 1, bias=False), State(torch.zeros(1), torch.zeros(1, 1), 1)
    >>> start_average(net, state)
    >>> before = net.weight.item()
    >>> with torch.no_grad():
    ...     _ = net.weight.add_(1.0)
    >>> with averaged(net, state, 0.99):
    ...     net.weight.item() == before
    True
    >>> net.weight.item() == before + 1.0
    True
    """
    if not average:
        yield
        return
    followed = _followed(net)
    own = {name: value.detach().clone() for name, value in followed.items()}
    try:
        with torch.no_grad():
            for name, value in followed.items():
                value.copy_(state.tensors[_PREFIX + name])
        yield
    finally:
        with torch.no_grad():
            for name, value in followed.items():
                value.copy_(own[name])


def _followed(net: nn.Module) -> dict[str, Tensor]:
    """Everything of the network but counters."""
    return {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
