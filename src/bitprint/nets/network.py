"""HashNetwork: a backbone with a hash layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bitprint.nets.trunk import Trunk

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)
"""Layers that mix the items of a batch in training mode."""


class HashNetwork(nn.Module):
    """A backbone and a hash layer, from uint8 images (or feature vectors) to real outputs.

    If `mixed` is True, the backbone runs in bfloat16; hash layer and loss are float32. If `mirror`
    is True, an image is encoded by the mean of the outputs for it and for its mirror image.

    Examples
    --------
    >>> from bitprint.nets import create_trunk
    >>> trunk = create_trunk("small", input_shape=(8, 8, 3))
    >>> net = HashNetwork(trunk, nn.Linear(trunk.out_features, 12))
    >>> net(torch.zeros((5, 8, 8, 3), dtype=torch.uint8)).shape
    torch.Size([5, 12])
    """

    def __init__(self, trunk: Trunk, head: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head
        self.mixed = False
        self.mirror = False

    def forward(self, items: Tensor) -> Tensor:
        """Return the outputs of the hash layer for raw items of a `Feed`."""
        inputs = self.trunk.preprocess(items)
        outputs = self._outputs(inputs)
        if self.mirror and inputs.ndim == 4 and not self.training:
            outputs = (outputs + self._outputs(inputs.flip(3))) / 2
        return outputs

    def _outputs(self, inputs: Tensor) -> Tensor:
        if inputs.ndim == 4 and self.trunk.optimized:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.mixed):
            features = self.trunk(inputs)
        outputs: Tensor = self.head(features.float())
        return outputs
