"""StochasticDepth: randomly skip residual blocks in training."""

from __future__ import annotations

from torch import Tensor, nn


class StochasticDepth(nn.Module):
    """Multiply a residual branch by 0 for some images and by 1 / (1 - p) for the others.

    Huang, Sun, Liu, Sedra and Weinberger, "Deep Networks with Stochastic Depth", ECCV 2016. The
    probability p is `dropout.p`, initially 0. In evaluation mode nothing is skipped.

    Examples
    --------
    >>> import torch
    >>> depth = StochasticDepth()
    >>> depth.dropout.p = 0.5
    >>> sorted(set(depth(torch.ones(100, 3, 2, 2)).mean(dim=(1, 2, 3)).tolist()))
    [0.0, 2.0]
    """

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)

    def forward(self, branch: Tensor) -> Tensor:
        """(n, channels, height, width) -> the same shape, with some of the n images zero."""
        if not self.training or self.dropout.p == 0:
            return branch
        kept: Tensor = self.dropout(branch.new_ones(len(branch), 1, 1, 1))
        return branch * kept
