"""JMLH: a classifier on random bits, and a prior on their probabilities."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.dlbhc import DLBHC, LatentHead
from bitprint.nets.noise import RandomLayer
from bitprint.training.losses import straight_through_sign
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class JMLH(DLBHC):
    """Just maximizing likelihood hashing (Shen, Qin, Chen, Liu, Zhu and Zhang, ICCVW 2019).

    ``min mean_i [ classification loss of image i + lambda sum_k KL(p_ik, 1/2) ]``,
    ``p = sigmoid(h)``, where KL is the divergence of two Bernoulli distributions.

    The structure is that of `DLBHC`, but the classifier reads bits: bit k of image i is 1 with
    probability p_ik, drawn anew in every step. The gradient with respect to a bit is passed on to
    its probability. The second term keeps probabilities away from 0 and 1, so that a bit is certain
    only where that helps to classify (a variational information bottleneck). The code is
    ``p >= 1/2``, which is ``h >= 0``.

    Parameters
    ----------
    bits : int
        K.
    divergence : float
        lambda; 0.1 in the paper.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the paper: the loss, lambda and the code. Our choices: the training and the classification
    loss of images with several labels, which are those of `DLBHC`; the authors' training is not
    known to us.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = JMLH(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "jmlh"
    reference = "Shen, Qin, Chen, Liu, Zhu and Zhang, ICCV workshops 2019"
    default_training: ClassVar[Training] = DLBHC.default_training
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(self, bits: int, *, divergence: float = 0.1, **common: Unpack[Common]) -> None:
        super().__init__(bits, **common)
        self.divergence = divergence

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with K hash outputs and class outputs computed from random bits."""
        return LatentHead(features, self.bits, classes, RandomBits())

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the classifier and the divergence of the bits."""
        divergence = self.divergence * bernoulli_divergence(outputs[:, : self.bits]).sum()
        return super().loss(outputs, rows, state) | {"divergence": divergence / state.batch_size}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(divergence=self.divergence, zero=True)


class RandomBits(RandomLayer):
    """Draw bits, 0 or 1, from the probabilities ``sigmoid(h)``; the likelier ones in evaluation.

    The gradient of a bit is that of its probability.

    Examples
    --------
    >>> outputs = torch.tensor([[-200.0, 0.0, 200.0]], requires_grad=True)
    >>> bits = RandomBits()(outputs)
    >>> bits[0, 0].item(), bits[0, 2].item()
    (0.0, 1.0)
    >>> bits.sum().backward()
    >>> outputs.grad
    tensor([[0.0000, 0.2500, 0.0000]])
    """

    def __init__(self) -> None:
        super().__init__(torch.rand_like)

    def forward(self, outputs: Tensor) -> Tensor:
        """(n, K) -> (n, K)."""
        thresholds = self.sample(outputs) if self.training else 0.5
        return (straight_through_sign(2 * (torch.sigmoid(outputs) - thresholds)) + 1) / 2


def bernoulli_divergence(outputs: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of Bernoulli(sigmoid(h)) from Bernoulli(1/2).

    Examples
    --------
    >>> bernoulli_divergence(torch.tensor([0.0, 200.0]))
    tensor([0.0000, 0.6931])
    """
    probability = torch.sigmoid(outputs)
    likelihood = probability * functional.logsigmoid(outputs)
    likelihood = likelihood + (1 - probability) * functional.logsigmoid(-outputs)
    return likelihood + math.log(2)
