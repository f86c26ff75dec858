"""DHN: deep hashing network."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.supervision import similarity
from bitprint.training.losses import log_cosh
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class DHN(DeepHasher):
    """Deep hashing network (Zhu, Long, Wang and Cao, AAAI 2016).

    ``min mean_ij [ log(1 + e^t_ij) - s_ij t_ij ] + lambda mean_i sum_k log cosh(|z_ik| - 1)``,
    ``z = tanh(h)``, ``t_ij = z_i . z_j``, over all pairs of a batch, including each image with
    itself.

    The second term is a smooth form of the negative logarithm of a bimodal Laplacian prior at -1
    and +1. Unlike in DPSH, the inner product is not halved and pairs are from the batch only. With
    long codes it saturates the sigmoid: for equal outputs, ``t_ij`` is up to K.

    Parameters
    ----------
    bits : int
        K.
    quantisation : float
        lambda; 0.3 in the authors' release.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The release trains for 10,000 steps of 64 images with ten times the rate for the hash layer.
    It multiplies the rate by 0.3 every 500 steps. This implementation trains for 60 epochs, which
    is the same number of steps for 10,500 images, and the rate decreases by four decades. The
    network of the paper is AlexNet.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DHN(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dhn"
    reference = "Zhu, Long, Wang and Cao, AAAI 2016"
    default_training = Training(
        epochs=60, batch_size=64, lr=2e-4, trunk_lr=2e-5, momentum=0.9, augment="flip"
    )
    tuned: ClassVar[Tuned] = {
        "pretrained": {"lr": 1e-3},
        "recommended few pretrained": {"cutmix": 0.0},
    }

    def __init__(
        self,
        bits: int,
        *,
        quantisation: float = 0.3,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.quantisation = quantisation

    def prepare(self, state: State) -> None:
        """Do nothing: pairs are formed within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the pairwise loss of the batch and the quantization loss."""
        hashed = torch.tanh(outputs)
        labels = state.labels[rows]
        products = hashed @ hashed.t()
        pairs = functional.softplus(products) - similarity(labels, labels) * products
        quantisation = log_cosh(hashed.abs() - 1)
        return {
            "pair": pairs.mean(dim=1).sum() / state.batch_size,
            "quantisation": self.quantisation * quantisation.sum() / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(quantisation=self.quantisation, zero=True)
