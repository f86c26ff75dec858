"""CSQ: central similarity quantization, a fixed hash center for every class."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.centers import class_centers, majority, random_centers
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class CSQ(DeepHasher):
    """Central similarity quantization (Yuan et al., CVPR 2020).

    Each class has a fixed code, its hash center, far from the other centers. The network learns
    the center ``t_i`` of each image, with a binary cross-entropy for each bit::

        min  mean_ik [ -(1 + t_ik) / 2 log p_ik - (1 - t_ik) / 2 log(1 - p_ik) ]
             + lambda mean_ik (|z_ik| - 1)^2,    z = tanh(h),  p = (1 + z) / 2

    If K is a power of two and there are at most 2K classes, the centers are rows of a Hadamard
    matrix and of its negative, with distances of at least K / 2. Otherwise they are random codes
    with as many +1 as -1, chosen far apart. For an image with several labels, ``t_ik`` is the
    majority of their centers; a fixed random code decides ties.

    Parameters
    ----------
    bits : int
        K.
    quantisation : float
        lambda. The authors use 0.0001 and 0.001 with AlexNet, and 0.05 with ResNet-50.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As published: centers, loss and ties. The authors draw sets of random centers until the least
    distance is large enough, K / 4 to K / 3; here each center in turn is the farthest of 4,096
    random codes, which gives larger distances. An image without labels has the code for ties as its
    center.

    The release uses Adam, a rate of 0.001 for the hash layer and a twentieth for the backbone, and
    multiplies it by 0.7 every ten epochs; here it follows a cosine schedule.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = CSQ(bits=16, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 16 bits)
    """

    name = "csq"
    reference = "Yuan et al., CVPR 2020"
    default_training = Training(
        epochs=90,
        batch_size=64,
        optimizer="adamw",
        lr=1e-3,
        trunk_lr=5e-5,
        schedule="cosine",
        weight_decay=0.0,
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

    def prepare(self, state: State) -> None:
        """Store the center of each class and the code for ties."""
        generator = torch.Generator().manual_seed(int(self.seed))
        centers = class_centers(state.classes.shape[1], self.bits, generator)
        state.tensors["centers"] = centers.to(state.classes)
        state.tensors["ties"] = random_centers(1, self.bits, generator)[0].to(state.classes)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the bits of the centers and the quantization loss."""
        centers, ties = state.tensors["centers"], state.tensors["ties"]
        targets = majority(state.classes[rows], centers, ties)
        entropy = functional.softplus(-2 * targets * outputs)  # p is sigmoid(2 h)
        quantisation = (torch.tanh(outputs).abs() - 1).square()
        scale = 1 / (state.batch_size * self.bits)
        return {
            "center": scale * entropy.sum(),
            "quantisation": scale * self.quantisation * quantisation.sum(),
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(quantisation=self.quantisation, zero=True)
