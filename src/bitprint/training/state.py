"""State and Objective: the training state of a deep method, and its interface to the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


@dataclass
class State:
    """Labels of the training set and buffers of a method, on the training device.

    Parameters
    ----------
    labels : Tensor
        int64 of shape (N,), or float32 zeros and ones of shape (N, c); for similarity.
    classes : Tensor of float32, shape (N, c)
        Y, the same labels as a matrix; for classification.
    batch_size : int
        Nominal batch size. Sums are divided by it even in a smaller last batch, as in the DSDH
        authors' release, so that a few remaining images do not have the weight of a full batch.
    tensors : dict of str to Tensor
        Buffers of the method, such as its output buffer; saved in checkpoints.

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
        """Device of the training set."""
        return self.labels.device


class Objective(Protocol):
    """Interface of a deep method to the loop: its buffers, loss and update between epochs."""

    @property
    def views(self) -> int:
        """How often an image is in a batch; see `repeat_batches`."""

    def prepare(self, state: State) -> None:
        """Allocate the method's buffers in `state.tensors`."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the parts of the loss of one batch, by name; their sum is minimized."""

    def after_epoch(self, state: State) -> dict[str, float]:
        """Update the buffers between epochs; return metrics for `metrics.csv`."""
