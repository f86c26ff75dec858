"""Batch norm and random layers over a batch that is divided among processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from bitprint.nets.batch_norm import BatchNorm
from bitprint.nets.noise import RandomLayer
from bitprint.training.distributed import Workers


@contextmanager
def whole_batches(net: nn.Module, workers: Workers) -> Iterator[None]:
    """Replace batch norm and random layers of `net` by whole-batch versions inside the context.

    With several processes, batch norm computes mean and variance over the parts of all processes.
    Dropout and every `RandomLayer` draw for the whole batch and use the numbers of their own part;
    on a CPU these equal the numbers of a single process, on a GPU they differ. Other random layers
    of a network, such as the random layer skipping of some hub models, also differ from a single
    process.

    Parameters
    ----------
    net : Module
        Its parameters and buffers keep their tensors and names.
    workers : Workers
        The processes.
    """
    originals = []
    on_gpu = next(net.parameters()).is_cuda
    for parent in list(net.modules()) if workers.size > 1 else []:
        for name, layer in list(parent.named_children()):
            whole = _whole_batch_layer(layer, workers, on_gpu)
            if whole is not layer:
                originals.append((parent, name, layer))
                setattr(parent, name, whole)
    try:
        yield
    finally:
        for parent, name, layer in originals:
            setattr(parent, name, layer)


def _whole_batch_layer(layer: nn.Module, workers: Workers, on_gpu: bool) -> nn.Module:
    if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
        if on_gpu and not isinstance(layer, BatchNorm):
            synchronized: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(layer)
            return synchronized
        return WholeBatchNorm(layer, workers)
    if isinstance(layer, nn.Dropout):
        return WholeDropout(layer.p, workers)
    if isinstance(layer, RandomLayer):
        whole = copy(layer)
        whole.sample = WholeSample(layer.sample, workers)
        return whole
    return layer


class WholeDropout(nn.Module):
    """Dropout that draws for the whole batch, so that all processes draw the same numbers.

    Parameters
    ----------
    p : float
        Share of the values that are set to zero.
    workers : Workers
        The processes.
    """

    def __init__(self, p: float, workers: Workers) -> None:
        super().__init__()
        self.p = p
        self.workers = workers

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply dropout to this process's part of the batch."""
        if not self.training or self.p == 0:
            return inputs
        kept = 1 - self.p
        noise = inputs.new_empty(self.workers.batch, *inputs.shape[1:]).bernoulli_(kept)
        own = self.workers.part(noise.div_(kept))
        return inputs * own if len(own) else inputs  # a dummy item if the part is empty


class WholeSample:
    """Random numbers that are drawn for the whole batch, so that all processes draw the same.

    Parameters
    ----------
    sample : callable
        The `sample` of a `RandomLayer`.
    workers : Workers
        The processes.
    """

    def __init__(self, sample: Callable[[Tensor], Tensor], workers: Workers) -> None:
        self.sample = sample
        self.workers = workers

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the numbers of this process's part of the batch."""
        whole = self.sample(inputs.new_empty(self.workers.batch, *inputs.shape[1:]))
        own = self.workers.part(whole)
        return own if len(own) else torch.zeros_like(inputs)  # a dummy item if the part is empty


class WholeBatchNorm(nn.BatchNorm2d):
    """Batch norm over the parts of all processes; torch's `SyncBatchNorm` runs on GPUs only.

    Parameters
    ----------
    layer : BatchNorm1d or BatchNorm2d
        Source of the weights and running statistics, which are shared. A `BatchNorm` also takes a
        batch of one item.
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
        self.takes_one = isinstance(layer, BatchNorm)

    def forward(self, inputs: Tensor) -> Tensor:
        """Normalize this process's part, (n, channels) or (n, channels, height, width)."""
        count = self.workers.batch * math.prod(inputs.shape[2:])
        if not self.training or (count == 1 and self.takes_one):
            averages = self.running_mean, self.running_var
            return functional.batch_norm(
                inputs, *averages, self.weight, self.bias, averages[0] is None, eps=self.eps
            )
        values = inputs.float()
        axes = [axis for axis in range(inputs.ndim) if axis != 1]
        shape = (-1, *[1] * (inputs.ndim - 2))
        if count == 1:
            raise ValueError(
                "batch norm needs more than one value per channel: increase the batch size"
            )
        mean = self.workers.sum(values.sum(axes)) / count
        centered = values - mean.view(shape)
        variance = self.workers.sum(centered.square().sum(axes)) / count
        self._update_running(mean.detach(), variance.detach() * count / (count - 1))
        outputs = centered * torch.rsqrt(variance + self.eps).view(shape)
        if self.affine:
            outputs = outputs * self.weight.view(shape) + self.bias.view(shape)
        return outputs.to(inputs.dtype)

    def _update_running(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics."""
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        share = self.momentum or 1 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(variance, share)
