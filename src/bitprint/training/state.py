"""What training keeps besides the network: labels, buffers and the network's wrapper."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from bitprint.nets.trunk import Trunk


@dataclass
class State:
    """The training set as a method's loss sees it, on the training device.

    Parameters
    ----------
    labels : Tensor
        int64 of shape (N,), or float32 zeros and ones of shape (N, c); for similarity.
    classes : Tensor of float32, shape (N, c)
        Y, the same labels as a matrix; for classification.
    batch_size : int
        Nominal size of a batch. Sums are divided by it even in a last, smaller batch, as the
        authors of DSDH do, so that a few left-over images do not weigh as much as a full batch.
    tensors : dict of str to Tensor
        What the method keeps between batches, such as its output buffer; saved in checkpoints.

    Examples
    --------
    >>> labels = torch.tensor([0, 1, 1])
    >>> state = State(labels, classes=torch.eye(2)[labels], batch_size=2)
    >>> len(state), state.device
    (3, device(type='cpu'))
    >>> state.tensors["U"] = torch.zeros(3, 12)
    >>> state.copy().tensors["U"] += 1
    >>> state.tensors["U"].max().item()
    0.0
    """

    labels: Tensor
    classes: Tensor
    batch_size: int
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def copy(self) -> State:
        """The same training set with buffers of its own."""
        tensors = {name: value.clone() for name, value in self.tensors.items()}
        return replace(self, tensors=tensors)

    @property
    def device(self) -> torch.device:
        """Where the training set is."""
        return self.labels.device


class Objective(Protocol):
    """What a deep method adds to the loop: its buffers, its loss, its work between epochs."""

    def prepare(self, state: State) -> None:
        """Allocate what the method keeps, in `state.tensors`."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Named parts of the loss of one batch; their sum is minimised."""

    def after_epoch(self, state: State) -> dict[str, float]:
        """Work between epochs; returns figures for `metrics.csv`."""


class HashNetwork(nn.Module):
    """A trunk and a hash layer: uint8 images (or feature vectors) to real outputs.

    The trunk runs in bfloat16 where `mixed` says so; the hash layer and the loss are float32. With
    `mirror`, an image is encoded by the mean of the outputs for it and for its mirror image.

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
        """Outputs of the hash layer for items as a `Feed` gives them."""
        inputs = self.trunk.preprocess(items)
        outputs = self._outputs(inputs)
        if self.mirror and inputs.ndim == 4 and not self.training:
            outputs = (outputs + self._outputs(inputs.flip(3))) / 2
        return outputs

    def _outputs(self, inputs: Tensor) -> Tensor:
        if inputs.ndim == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.mixed):
            features = self.trunk(inputs)
        outputs: Tensor = self.head(features.float())
        return outputs
