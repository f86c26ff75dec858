"""Layers that draw random numbers in training."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class RandomLayer(nn.Module):
    """Base class of layers that draw random numbers for their inputs in training.

    Subclasses call ``self.sample(inputs)``. With several processes it is replaced, so that all
    processes draw the same numbers, see `bitprint.training.whole_batch`.

    Parameters
    ----------
    sample : callable
        Returns random numbers of the shape, type and device of its argument.
    """

    def __init__(self, sample: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.sample = sample


class GaussianNoise(RandomLayer):
    """Add normal noise with standard deviation `std` in training; do nothing in evaluation.

    Examples
    --------
    >>> noise = GaussianNoise()
    >>> noise.std = 0.5
    >>> noise.eval()(torch.zeros(2)).tolist()
    [0.0, 0.0]
    """

    def __init__(self) -> None:
        super().__init__(torch.randn_like)
        self.std = 0.0

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, d)."""
        if not self.training or self.std == 0:
            return inputs
        return inputs + self.std * self.sample(inputs)
