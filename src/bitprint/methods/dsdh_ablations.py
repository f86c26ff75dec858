"""DSDH-A, DSDH-B and DSDH-C: ablations of DSDH (section 4.2 of the paper)."""

from __future__ import annotations

from typing import Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.methods._deep import Common, DeepHasher, check_weights, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import ridge, sgn
from bitprint.methods.dpsh import DPSH, pairwise_parts
from bitprint.training.losses import classification_loss
from bitprint.training.state import State


@register_method
class DSDHA(DPSH):
    """DSDH without classification: pairwise and quantization loss, equal to DPSH with eta = 55.

    Parameters
    ----------
    bits : int
        K.
    eta, **common
        As in `DPSH`.

    Examples
    --------
    >>> import numpy as np, bitprint as bp
    >>> hasher = bp.create("dsdh-a", bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    >>> hasher.eta, bp.create("dpsh", bits=12).eta
    (55.0, 10.0)
    """

    name = "dsdh-a"
    title = "DSDH-A"
    reference = "Li, Sun, He and Tan, NIPS 2017, section 4.2"

    def __init__(
        self,
        bits: int,
        *,
        eta: float = 55.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, eta=eta, **common)


@register_method
class DSDHB(DPSH):
    """Two streams on one network: a hash layer as in DSDH-A and a classifier.

    The paper does not specify the loss of the classifier. This implementation uses the mean
    cross-entropy of the batch, with softmax for one label per image and a sigmoid per class for
    several labels. It is not divided by N like the other terms, because a weight of 1 would then
    have almost no effect.

    Parameters
    ----------
    bits : int
        K.
    eta : float
        As in `DPSH`.
    mu : float
        Weight of the mean cross-entropy.
    **common
        As in `DeepHasher`.

    Examples
    --------
    >>> import numpy as np, bitprint as bp
    >>> hasher = bp.create("dsdh-b", bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    >>> "classification" in hasher.history_[0], "quantisation" in hasher.history_[0]
    (True, True)
    """

    name = "dsdh-b"
    title = "DSDH-B"
    reference = "Li, Sun, He and Tan, NIPS 2017, section 4.2"

    def __init__(
        self,
        bits: int,
        *,
        eta: float = 55.0,
        mu: float = 1.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, eta=eta, **common)
        self.mu = mu

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a linear layer with K hash outputs and one output per class."""
        return gaussian_linear(features, self.bits + classes)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the two terms of DSDH-A and the cross-entropy of the class outputs."""
        entropy = classification_loss(outputs[:, self.bits :], rows, state)
        parts = super().loss(outputs, rows, state)
        return parts | {"classification": self.mu / state.batch_size * entropy}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(mu=self.mu, zero=True)


@register_method
class DSDHC(DeepHasher):
    """DSDH with classification of the real-valued outputs, without codes and quantization loss.

    ``min -sum_ij [ s_ij t_ij - log(1 + e^t_ij) ] + mu sum_i ||y_i - W' h_i||^2 + nu ||W||_F^2``.
    The last term in the paper, ``eta sum_i ||b_i - sgn(h_i)||^2``, is zero at its minimum
    ``b_i = sgn(h_i)`` and has no gradient, so it is omitted.

    Parameters
    ----------
    bits : int
        K.
    mu, nu : float
        Weights in the paper's units.
    **common
        As in `DeepHasher`.

    Examples
    --------
    >>> import numpy as np, bitprint as bp
    >>> hasher = bp.create("dsdh-c", bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    >>> "classification" in hasher.history_[0], "quantisation" in hasher.history_[0]
    (True, False)
    """

    name = "dsdh-c"
    title = "DSDH-C"
    reference = "Li, Sun, He and Tan, NIPS 2017, section 4.2"

    def __init__(
        self,
        bits: int,
        *,
        mu: float = 1.0,
        nu: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.mu = mu
        self.nu = nu

    def prepare(self, state: State) -> None:
        """Create U, the last outputs, and W, the classifier, initially zero."""
        super().prepare(state)
        state.tensors["W"] = torch.zeros(self.bits, state.classes.shape[1], device=state.device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the pairwise loss and the squared error of the classifier on the outputs."""
        pair = pairwise_parts(outputs, rows, sgn(outputs.detach()), 0.0, state)["pair"]
        residual = state.classes[rows] - outputs @ state.tensors["W"]
        scale = self.mu / (state.batch_size * len(state))
        return {"pair": pair, "classification": scale * residual.square().sum()}

    def after_epoch(self, state: State) -> dict[str, float]:
        """Update W in closed form from the outputs of the epoch."""
        # Contiguous as in a checkpoint, because the order of summation depends on the layout.
        state.tensors["W"] = ridge(
            state.tensors["U"], state.classes, self.nu / self.mu
        ).contiguous()
        return {}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(mu=self.mu, nu=self.nu)
