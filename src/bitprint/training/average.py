"""Averaged weights: an exponential moving average that replaces the weights after training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from bitprint.training.state import State

_PREFIX = "average."


def start_average(net: nn.Module, state: State) -> None:
    """Copy the network's weights and running statistics into the state, which checkpoints save."""
    for name, value in _followed(net).items():
        state.tensors[_PREFIX + name] = value.detach().clone()


def without_average(state: State) -> State:
    """Return a copy of the state, without the averaged weights."""
    kept = {name: value for name, value in state.tensors.items() if not name.startswith(_PREFIX)}
    return replace(state, tensors={name: value.clone() for name, value in kept.items()})


def follow(net: nn.Module, state: State, decay: float, steps: int) -> None:
    """Update the average with the current weights.

    Parameters
    ----------
    net : Module
    state : State
        Contains the average.
    decay : float
        Highest decay of the average.
    steps : int
        Steps done. The decay starts low and rises, so that the initial weights soon lose their
        influence.
    """
    share = 1 - min(decay, (1 + steps) / (10 + steps))
    followed = _followed(net)
    averages = [state.tensors[_PREFIX + name] for name in followed]
    torch._foreach_lerp_(averages, [value.detach() for value in followed.values()], share)


def finish_average(net: nn.Module, state: State) -> None:
    """Load the averaged weights into the network and remove them from the state."""
    with torch.no_grad():
        for name, value in _followed(net).items():
            value.copy_(state.tensors.pop(_PREFIX + name))


@contextmanager
def averaged(net: nn.Module, state: State, average: float) -> Iterator[None]:
    """Use the averaged weights inside the context; do nothing if `average` is 0.

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
    current = {name: value.detach().clone() for name, value in followed.items()}
    try:
        with torch.no_grad():
            for name, value in followed.items():
                value.copy_(state.tensors[_PREFIX + name])
        yield
    finally:
        with torch.no_grad():
            for name, value in followed.items():
                value.copy_(current[name])


def _followed(net: nn.Module) -> dict[str, Tensor]:
    """Return all floating-point parameters and buffers."""
    return {name: value for name, value in net.state_dict().items() if value.is_floating_point()}
