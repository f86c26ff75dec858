"""SSDH: supervised semantics-preserving hashing, DLBHC with binary and balanced activations."""

from __future__ import annotations

from typing import Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, check_weights
from bitprint.methods.dlbhc import DLBHC
from bitprint.training.state import State


class SSDH(DLBHC):
    """Supervised semantics-preserving deep hashing (Yang, Lin and Chen, TPAMI 2018).

    The structure of `DLBHC`, ``a = sigmoid(h)`` below a classifier, and two more terms::

        min  mean_i [ classification error of image i
                      - beta  mean_k (a_ik - 1/2)^2        activations far from the threshold
                      + gamma (mean_k a_ik - 1/2)^2 ]      half of the bits of each image on

    Parameters
    ----------
    bits : int
        K.
    beta : float
        Weight of the term that makes activations binary.
    gamma : float
        Weight of the term that balances the bits of each image.
    **common
        As in `DeepHasher`.

    Notes
    -----
    Weights are 1, as in the authors' release, whose layers halve both terms and divide the first
    by the batch size once more, which leaves little of it; here all three are plain means over the
    batch. Of the norms that the paper allows this is the square. Training, and the choices made
    for it, are those of `DLBHC`; so is the cross-entropy of images with several labels.

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
        """Cross-entropy of the classifier, and how binary and how balanced activations are."""
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
