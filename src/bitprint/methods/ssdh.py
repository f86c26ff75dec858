"""SSDH: supervised semantics-preserving deep hashing, DLBHC with two additional loss terms."""

from __future__ import annotations

from typing import Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.dlbhc import DLBHC
from bitprint.training.state import State


@register_method
class SSDH(DLBHC):
    """Supervised semantics-preserving deep hashing (Yang, Lin and Chen, TPAMI 2018).

    The structure is that of `DLBHC`, ``a = sigmoid(h)`` and a classifier. The loss has two
    additional terms::

        min  mean_i [ classification loss of image i
                      - beta  mean_k (a_ik - 1/2)^2        binary activations
                      + gamma (mean_k a_ik - 1/2)^2 ]      balanced bits of each image

    Parameters
    ----------
    bits : int
        K.
    beta : float
        Weight of the term for binary activations.
    gamma : float
        Weight of the term for balanced bits.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The weights are 1, as in the authors' release. The layers of the release halve both terms and
    divide the first term by the batch size again, which makes it very small. Here all three terms
    are means over the batch. The paper allows several norms; this implementation uses the squared
    norm. The training and the cross-entropy of images with several labels are those of `DLBHC`.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = SSDH(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "ssdh"
    reference = "Yang, Lin and Chen, TPAMI 2018"

    def __init__(
        self,
        bits: int,
        *,
        beta: float = 1.0,
        gamma: float = 1.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.beta = beta
        self.gamma = gamma

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the classifier and the terms for binary, balanced bits."""
        activations = torch.sigmoid(outputs[:, : self.bits])
        binary = (activations - 0.5).square().mean(dim=1).sum()
        balance = (activations.mean(dim=1) - 0.5).square().sum()
        return super().loss(outputs, rows, state) | {
            "binary": -self.beta * binary / state.batch_size,
            "balance": self.gamma * balance / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(beta=self.beta, gamma=self.gamma, zero=True)
