"""BatchNorm: batch norm over the outputs of a hash layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class BatchNorm(nn.BatchNorm1d):
    """Batch norm of (n, d) that also trains on a batch of one item.

    One item has no variance: it is normalized by the running statistics, which stay unchanged. The
    last batch of an epoch can have one item.

    Examples
    --------
    >>> import torch
    >>> BatchNorm(2, affine=False)(torch.tensor([[1.0, 5.0]])).round(decimals=3)
    tensor([[1., 5.]])
    """

    def forward(self, inputs: Tensor) -> Tensor:
        """(n, d) -> (n, d)."""
        if self.training and len(inputs) == 1:
            averages = self.running_mean, self.running_var
            return functional.batch_norm(inputs, *averages, self.weight, self.bias, eps=self.eps)
        return super().forward(inputs)


def normalized_linear(features: int, bits: int) -> nn.Sequential:
    """Return a linear layer with weights from N(0, 0.01^2), and a batch norm of its outputs."""
    linear = nn.Linear(features, bits, bias=False)  # the batch norm has a bias
    nn.init.normal_(linear.weight, std=0.01)
    return nn.Sequential(linear, BatchNorm(bits))
