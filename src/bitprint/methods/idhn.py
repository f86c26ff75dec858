"""IDHN: improved deep hashing network, for images with several labels."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.training.plan import Training
from bitprint.training.state import State

_HARD = 0.01  # similarities below this or above 1 - this are 0 or 1


@register_method
class IDHN(DeepHasher):
    """Improved deep hashing network (Zhang, Zou, Lin, Chen and Wang, TMM 2019).

    The similarity ``s_ij`` of two images is the cosine of their label vectors. Pairs with s = 0 or
    s = 1 have a cross-entropy, the others a squared error of the similarity that the codes show::

        min  mean_ij l_ij + lambda mean_ik | |z_ik| - 1 |,    z = h / (1 + |h|)
        l_ij = log(1 + e^t_ij) - s_ij t_ij,                   t_ij = alpha z_i . z_j / K
        l_ij = gamma K ( (z_i . z_j + K) / 2K - s_ij )^2      where 0 < s_ij < 1

    over all pairs of a batch. So images that share some of their labels get codes at a medium
    distance.

    Parameters
    ----------
    bits : int
        K.
    slope : float
        alpha.
    gamma : float
        Weight of the pairs that share some of their labels.
    quantisation : float
        lambda.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The loss, its three weights and the pairs within a batch are those of the authors' release. A
    popular port compares a batch with the last outputs of all images, uses ``t_ij = z_i . z_j / 2``
    for any K, and has ``gamma (z_i . z_j / 2 + K - 2 K s_ij)^2``, whose minimum cannot be reached.
    Without images of several labels only the first kind of pairs occurs. An image without labels
    is similar to no image.

    The release uses Adam with rate 0.001, halved every 500 steps, and a hundredth of it for the
    backbone; here the rate follows a cosine schedule.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = IDHN(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(3), [[1, 0], [1, 1], [0, 1]]).encode(np.eye(3))
    Codes(3 x 12 bits)
    """

    name = "idhn"
    reference = "Zhang, Zou, Lin, Chen and Wang, TMM 2019"
    default_training = Training(
        epochs=100,
        batch_size=128,
        optimizer="adamw",
        lr=1e-3,
        trunk_lr=1e-5,
        schedule="cosine",
        weight_decay=0.0,
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        slope: float = 5.0,
        gamma: float = 0.1,
        quantisation: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.slope = slope
        self.gamma = gamma
        self.quantisation = quantisation

    def prepare(self, state: State) -> None:
        """Do nothing: pairs are formed within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the loss of the pairs of the batch and the quantization loss."""
        hashed = functional.softsign(outputs)
        products = hashed @ hashed.t() / self.bits
        similar = label_cosines(state.classes[rows])
        slopes = self.slope * products
        hard = functional.softplus(slopes) - similar * slopes
        soft = self.gamma * self.bits * ((products + 1) / 2 - similar).square()
        is_soft = (similar > _HARD) & (similar < 1 - _HARD)
        quantisation = (hashed.abs() - 1).abs().mean(dim=1)
        return {
            "pair": torch.where(is_soft, soft, hard).mean(dim=1).sum() / state.batch_size,
            "quantisation": self.quantisation * quantisation.sum() / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(slope=self.slope)
        check_weights(gamma=self.gamma, quantisation=self.quantisation, zero=True)


def label_cosines(classes: Tensor) -> Tensor:
    """Return the cosine of the label vectors of every pair, shape (n, n); 0 without labels.

    Examples
    --------
    >>> label_cosines(torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])).round(decimals=3).tolist()
    [[1.0, 0.7070000171661377, 0.0], [0.7070000171661377, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    directions = functional.normalize(classes, dim=1)
    return directions @ directions.t()
