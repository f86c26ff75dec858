"""MDSHC: hash centers with a guaranteed least distance, and a contrastive loss to them."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.centers import cosines, separated_centers
from bitprint.nets.batch_norm import normalized_linear
from bitprint.training.plan import Training
from bitprint.training.state import State

_LARGEST = 1 - 1e-6  # probability of a class in log(1 - p)


@register_method
class MDSHC(DeepHasher):
    """Deep hashing with minimal-distance-separated hash centers (Wang et al., CVPR 2023).

    Each class has a fixed code ``o_c``. Their least distance is at least the largest d that the
    Gilbert-Varshamov bound guarantees for K bits and C classes, and their mean distance is large,
    see `bitprint.methods.centers.separated_centers`. The network moves each output to the center
    of its class and away from all others::

        min  -mean_ic [ y_ic log p_ic + (1 - y_ic) log(1 - p_ic) ] + lambda mean_ik (|z_ik| - 1)^2,
             p_i = softmax( sqrt(K) cos(z_i, o_c) ),   z = tanh(h)

    A batch norm follows the hash layer.

    Parameters
    ----------
    bits : int
        K.
    quantisation : float
        lambda.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As published: the bound, the two parts of the loss above, lambda, the batch norm, and centers
    that start from those of `CSQ` where these are far enough. The authors find the centers by
    ADMM with relaxed bits, one center after the other; here single bits are flipped, so that the
    distances are exact. Their release asks for a distance of d + 1, which need not exist. From the
    tenth epoch it adds a loss of similar pairs, computed with a second network that follows the
    first; this part is left out.

    The release uses RMSprop with rate 0.00001 and stops when the MAP of held-out images does not
    rise; here AdamW, a cosine schedule and 100 epochs.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = MDSHC(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "mdshc"
    reference = "Wang et al., CVPR 2023"
    default_training = Training(
        epochs=100,
        batch_size=64,
        optimizer="adamw",
        lr=1e-5,
        schedule="cosine",
        weight_decay=1e-5,
        augment="flip+shift",
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        quantisation: float = 1e-4,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.quantisation = quantisation

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a linear layer and a batch norm."""
        return normalized_linear(features, self.bits)

    def prepare(self, state: State) -> None:
        """Compute the center of each class."""
        generator = torch.Generator().manual_seed(int(self.seed))
        centers = separated_centers(state.classes.shape[1], self.bits, generator)
        state.tensors["centers"] = centers.to(state.classes)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the contrastive loss to the centers and the quantization loss."""
        hashed, labels = torch.tanh(outputs), state.classes[rows]
        logits = math.sqrt(self.bits) * cosines(hashed, state.tensors["centers"])
        likely = logits.log_softmax(dim=1)
        unlikely = torch.log1p(-likely.exp().clamp(max=_LARGEST))
        entropy = -(labels * likely + (1 - labels) * unlikely).mean(dim=1).sum()
        quantisation = (hashed.abs() - 1).square().mean(dim=1).sum()
        return {
            "center": entropy / state.batch_size,
            "quantisation": self.quantisation * quantisation / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(quantisation=self.quantisation, zero=True)
