"""State and Objective: what training keeps besides the network, and what a method adds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


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
    """

    labels: Tensor
    classes: Tensor
    batch_size: int
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

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
