"""Frozen networks: convolutions for inference on a CPU, each with its activation in one step."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from bitprint.nets.trunk import Trunk


class Convolution:
    """A square convolution with bias, TensorFlow's "SAME" padding and, optionally, ReLU6.

    The weights are stored in the layout that oneDNN uses, and oneDNN applies the activation. If
    torch was built without oneDNN, the steps are computed one by one.

    Parameters
    ----------
    weight : Tensor, shape (channels, channels per group, kernel, kernel)
    bias : Tensor, shape (channels,)
    stride, groups : int
    length : int
        Height and width of the input.
    relu6 : bool

    Examples
    --------
    >>> halve = Convolution(torch.ones(1, 1, 3, 3), torch.zeros(1), 2, 1, length=4, relu6=True)
    >>> halve(torch.full((1, 1, 4, 4), 0.5)).tolist()
    [[[[4.5, 3.0], [3.0, 2.0]]]]
    """

    def __init__(
        self, weight: Tensor, bias: Tensor, stride: int, groups: int, *, length: int, relu6: bool
    ) -> None:
        weight = _centered(weight, stride, length)
        padding = weight.shape[-1] // 2
        self._sizes = [padding] * 2, [stride] * 2, [1, 1], groups
        self._bias = bias
        self._relu6 = relu6
        self.fused = can_fuse()
        self._weight = weight.contiguous(memory_format=torch.channels_last)
        if self.fused:
            shape = [1, weight.shape[1] * groups, length, length]
            self._weight = torch.ops.mkldnn._reorder_convolution_weight(
                self._weight, *self._sizes, shape
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        """(n, channels, height, width) -> the result, in a new tensor."""
        padding, stride, dilation, groups = self._sizes
        if self.fused:
            activation, limits = ("hardtanh", [0.0, 6.0]) if self._relu6 else ("none", [])
            fused: Tensor = torch.ops.mkldnn._convolution_pointwise(
                inputs, self._weight, self._bias, *self._sizes, activation, limits, ""
            )
            return fused
        out = functional.conv2d(inputs, self._weight, self._bias, stride, padding, dilation, groups)
        return functional.relu6(out, inplace=True) if self._relu6 else out

    def add_to(self, sums: Tensor, inputs: Tensor) -> Tensor:
        """Add the result to `sums`, which is overwritten; without ReLU6."""
        if not self.fused:
            return sums.add_(self(inputs))
        added: Tensor = torch.ops.mkldnn._convolution_pointwise_.binary(
            sums, inputs, self._weight, self._bias, *self._sizes, "add", 1.0, None, [], None
        )
        return added


class FrozenTrunk(Trunk):
    """The preprocessing and facts of a trunk, for networks that only compute features."""

    def __init__(self, trunk: Trunk) -> None:
        super().__init__()
        self.name = trunk.name  # type: ignore[misc]
        self.out_features = trunk.out_features
        self.preprocess = trunk.preprocess

    def frozen(self) -> Trunk:
        """Return the network itself."""
        return self


@cache
def can_fuse() -> bool:
    """Return whether oneDNN can apply an activation after a convolution.

    These operators are those that `torch.compile` uses. They are tried, because they may change
    between versions of torch.
    """
    if not torch.backends.mkldnn.is_available():
        return False
    ops, ones = torch.ops.mkldnn, torch.ones(1, 1, 1, 1)
    sizes = [0, 0], [1, 1], [1, 1], 1
    try:
        weight = ops._reorder_convolution_weight(ones, *sizes, [1, 1, 1, 1])
        out = ops._convolution_pointwise(
            7 * ones, weight, torch.zeros(1), *sizes, "hardtanh", [0.0, 6.0], ""
        )
        out = ops._convolution_pointwise_.binary(
            out, ones, weight, torch.ones(1), *sizes, "add", 1.0, None, [], None
        )
    except (AttributeError, RuntimeError, TypeError):
        return False
    return bool(out.item() == 8.0)


def _centered(weight: Tensor, stride: int, length: int) -> Tensor:
    """Pad a filter with zeros so that symmetric padding of the input equals "SAME" padding.

    "SAME" padding with a stride may need one more cell after the image than before it, which the
    convolution cannot add. A copy of the input with these cells takes longer than the zeros.
    """
    kernel = weight.shape[-1]
    total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
    before = total // 2
    padding = max(before, kernel - 1 - before)
    first = padding - before
    last = 2 * padding + 1 - kernel - first
    return functional.pad(weight, (first, last, first, last))
