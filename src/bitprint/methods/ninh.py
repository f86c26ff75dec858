"""NINH: simultaneous feature learning and hash coding, with separate features for each bit."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, triplet_hinge

_PIECE = 50  # features per bit, as in the paper


@register_method
class NINH(DeepHasher):
    """Network-in-Network hashing, also DNNH (Lai, Pan, Liu and Yan, CVPR 2015).

    The features are divided into K pieces of 50. Each bit is computed from one piece::

        s_k = sigmoid(w_k . x_k + c_k)
        F_k = 0 where s_k < 1/2 - epsilon,  1 where s_k > 1/2 + epsilon,  else s_k

    The loss of a triplet of an image, a similar image and a dissimilar image is
    ``max(0, margin + ||F - F+||^2 - ||F - F-||^2)``. For binary codes the distances are numbers of
    bits.

    Parameters
    ----------
    bits : int
        K.
    margin : float
        Required difference of the distances, in bits; 1 in the paper.
    epsilon : float
        Half the width of the interval in which F is not binary, in (0, 0.5]; 0.5 disables the
        threshold.
    **common
        As in `DeepHasher`. The paper's network is ``nin``, or ``nin-small`` for 32 x 32 pixels,
        with 50 K outputs: ``backbone="nin:600"`` for 12 bits. For a backbone with another number
        of features, a fully connected layer to 50 K features is added.

    Notes
    -----
    From the paper: divide-and-encode, the threshold, the loss, momentum 0.9, weight decay 5e-4 and
    batches of 64. The following parts are our choices: `epsilon`; a straight-through gradient for
    the threshold (its exact gradient is zero outside the interval, so a wrong bit would never
    change); the mean over all triplets of a batch; images that share a label are similar; learning
    rate and epochs.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = NINH(12, epochs=2)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "ninh"
    reference = "Lai, Pan, Liu and Yan, CVPR 2015"
    default_training: ClassVar[Training] = Training(batch_size=64, momentum=0.9)
    tuned: ClassVar[Tuned] = {
        "scratch": {"lr": 1e-4, "trunk_lr": None, "weight_decay": 0.05},
        "recommended scratch": {"images_seen": 1_500_000},
        "paper few scratch": {"epochs": 300},
    }

    def __init__(
        self,
        bits: int,
        *,
        margin: float = 1.0,
        epsilon: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.margin = margin
        self.epsilon = epsilon

    def own_backbone(self) -> str:
        """Return the network of the paper for small images, with 50 features per bit."""
        return f"nin-small:{_PIECE * self.bits}"

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return divide-and-encode; its K outputs are the inputs of the sigmoid."""
        width = _PIECE * self.bits
        if features == width:
            return DivideAndEncode(self.bits, _PIECE)
        wide = nn.Linear(features, width)
        nn.init.kaiming_normal_(wide.weight, nonlinearity="relu")
        nn.init.zeros_(wide.bias)
        return nn.Sequential(wide, nn.ReLU(inplace=True), DivideAndEncode(self.bits, _PIECE))

    def prepare(self, state: State) -> None:
        """Do nothing: triplets are formed within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the mean hinge loss over all triplets of the batch."""
        codes = threshold(outputs.sigmoid(), self.epsilon)
        triplets = batch_triplets(state.labels[rows])
        share = len(rows) / state.batch_size
        return {"triplet": share * triplet_hinge(codes, triplets, self.margin)}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(margin=self.margin, epsilon=self.epsilon)
        if self.epsilon > 0.5:
            raise ValueError(f"epsilon must be at most 0.5, got {self.epsilon}")


class DivideAndEncode(nn.Module):
    """One linear unit per piece of the features.

    Parameters
    ----------
    pieces : int
        K, the number of outputs.
    size : int
        Features per piece.
    """

    def __init__(self, pieces: int, size: int) -> None:
        super().__init__()
        # With smaller weights, squared distances and their gradients would be close to zero.
        self.weight = nn.Parameter(torch.randn(pieces, size) / math.sqrt(size))
        self.bias = nn.Parameter(torch.zeros(pieces))

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, pieces * size) to (n, pieces)."""
        pieces = features.view(-1, *self.weight.shape)
        return (pieces * self.weight).sum(dim=2) + self.bias


def threshold(shares: Tensor, epsilon: float) -> Tensor:
    """Round values farther than `epsilon` from 1/2; the gradient is 1 everywhere.

    Examples
    --------
    >>> threshold(torch.tensor([0.05, 0.45, 0.5, 0.7]), 0.1)
    tensor([0.0000, 0.4500, 0.5000, 1.0000])
    """
    sure = (shares.detach() - 0.5).abs() > epsilon
    return shares + torch.where(sure, shares.detach().round() - shares.detach(), 0)
