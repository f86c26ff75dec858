"""Layers that see a whole batch of which each process has a part: batch norm and dropout."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitprint.training.distributed import Workers


@contextmanager
def whole_batches(net: nn.Module, workers: Workers) -> Iterator[None]:
    """Let the layers of `net` see whole batches, for as long as the context lasts.

    With several processes, batch norm takes mean and variance over the parts of all of them, and
    dropout draws for the whole batch and takes what belongs to its part: on a processor these are
    the draws of one process, on a GPU others. What else a network draws by itself, as some of the
    hub do when they skip layers at random, differs from what one process would draw.

    Parameters
    ----------
    net : Module
        Its parameters and buffers stay the same tensors, under the same names.
    workers : Workers
        The processes.
    """
    originals = []
    on_gpu = next(net.parameters()).is_cuda
    for parent in list(net.modules()) if workers.size > 1 else []:
        for name, layer in list(parent.named_children()):
            whole = _seeing_all(layer, workers, on_gpu)
            if whole is not layer:
                originals.append((parent, name, layer))
                setattr(parent, name, whole)
    try:
        yield
    finally:
        for parent, name, layer in originals:
            setattr(parent, name, layer)


def _seeing_all(layer: nn.Module, workers: Workers, on_gpu: bool) -> nn.Module:
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
        if on_gpu:
            synchronised: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(layer)
            return synchronised
        return WholeBatchNorm(layer, workers)
    if isinstance(layer, nn.Dropout):
        return WholeDropout(layer.p, workers)
    return layer


class WholeDropout(nn.Module):
    """Dropout that draws for the whole batch, so that all processes draw the same numbers.

    Parameters
    ----------
    p : float
        Share of the values that become zero.
    workers : Workers
        The processes.
    """

    def __init__(self, p: float, workers: Workers) -> None:
        super().__init__()
        self.p = p
        self.workers = workers

    def forward(self, inputs: Tensor) -> Tensor:
        """Zero some values and scale the others, for this process's part of the batch."""
        if not self.training or self.p == 0:
            return inputs
        kept = 1 - self.p
        noise = inputs.new_empty(self.workers.batch, *inputs.shape[1:]).bernoulli_(kept)
        own = self.workers.part(noise.div_(kept))
        return inputs * own if len(own) else inputs  # a stand-in, where there is no own part


class WholeBatchNorm(nn.BatchNorm2d):
    """Batch norm over the parts of all processes; torch's `SyncBatchNorm` is for GPUs only.

    Parameters
    ----------
    layer : BatchNorm1d or BatchNorm2d
        Whose weights and running averages it uses.
    workers : Workers
        The processes.
    """

    def __init__(self, layer: nn.BatchNorm1d | nn.BatchNorm2d, workers: Workers) -> None:
        options = layer.eps, layer.momentum, layer.affine, layer.track_running_stats
        super().__init__(layer.num_features, *options)
        self.weight, self.bias = layer.weight, layer.bias
        self.running_mean, self.running_var = layer.running_mean, layer.running_var
        self.num_batches_tracked = layer.num_batches_tracked
        self.workers = workers

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalise this process's part, (n, channels) or (n, channels, height, width)."""
        if not self.training:
            averages = self.running_mean, self.running_var
            return functional.batch_norm(
                inputs, *averages, self.weight, self.bias, averages[0] is None, eps=self.eps
            )
        values = inputs.float()
        axes = [axis for axis in range(inputs.ndim) if axis != 1]
        shape = (-1, *[1] * (inputs.ndim - 2))
        count = self.workers.batch * math.prod(inputs.shape[2:])
        if count == 1:
            raise ValueError(
                "batch norm needs more than one value per channel: batches are too small"
            )
        mean = self.workers.sum(values.sum(axes)) / count
        centred = values - mean.view(shape)
        variance = self.workers.sum(centred.square().sum(axes)) / count
        self._follow(mean.detach(), variance.detach() * count / (count - 1))
        outputs = centred * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            outputs = outputs * self.weight.view(shape) + self.bias.view(shape)
        return outputs.to(inputs.dtype)

    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running averages."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = self.momentum or 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)
