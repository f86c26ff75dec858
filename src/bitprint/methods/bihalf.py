"""BiHalf: codes in which every bit is +1 for half of a batch, learned without labels."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class BiHalf(DeepHasher):
    """Deep unsupervised hashing by maximizing bit entropy (Li and van Gemert, AAAI 2021).

    A hash layer on the features of an unchanged backbone. In a batch, each bit of the codes B is
    +1 for the half with the larger outputs and -1 for the others, which is the nearest balanced
    bit. The codes of pairs of images should have the cosine of their features x::

        min  mean_(i, j) ( cos(b_i, b_j) - cos(x_i, x_j) )^2 + gamma / 2 mean_ik (h_ik - b_ik)^2

    The first half of a batch is paired with the second. The gradient of the first term with respect
    to B is used as that with respect to h.

    Parameters
    ----------
    bits : int
        K.
    gamma : float
        Weight of the second term, which keeps the outputs balanced around zero.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As published: the balanced bits, the gradient, gamma = 6, the pairs and the unchanged backbone.
    The release adds gamma (h - b), divided by the number of outputs, to the gradient; here the same
    gradient comes from the second term. In a batch of odd size, the last image has no pair and the
    half with +1 is the smaller one.

    Over feature vectors, the backbone is "mlp:0", the features themselves, and no noise is added to
    them. A `trunk_lr` above zero also trains the backbone, whose features are still the target.

    The release uses SGD with rate 0.0001 and divides it by ten after 120 and 240 of 300 epochs;
    here it follows a cosine schedule.

    Examples
    --------
    >>> import numpy as np
    >>> features = np.random.default_rng(0).standard_normal((40, 8))
    >>> BiHalf(bits=12, epochs=2, lr=0.1).fit(features).encode(features)
    Codes(40 x 12 bits)
    """

    name = "bihalf"
    group = "unsupervised"
    supervision = "none"
    reference = "Li and van Gemert, AAAI 2021"
    frozen = True
    default_training = Training(
        epochs=300,
        batch_size=32,
        lr=1e-4,
        trunk_lr=0.0,
        schedule="cosine",
        momentum=0.9,
        freeze_norms=True,
    )
    tuned: ClassVar[Tuned] = {"features": {"noise": 0.0}}  # would be part of the cosines

    def __init__(
        self,
        bits: int,
        *,
        gamma: float = 6.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.gamma = gamma

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with K hash outputs, followed by the features."""
        return FeatureHead(features, self.bits)

    def prepare(self, state: State) -> None:
        """Do nothing: pairs are formed within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the error of the cosines and the distance of outputs from balanced bits."""
        hashed, features = outputs[:, : self.bits], outputs[:, self.bits :].detach()
        balanced = half_signs(hashed.detach())
        codes = hashed + (balanced - hashed).detach()  # B, with the gradient of h
        errors = (pair_cosines(codes) - pair_cosines(features)).square().sum()
        apart = (hashed - balanced).square().mean(dim=1).sum()
        return {
            "cosine": errors / max(1, state.batch_size // 2),
            "balance": self.gamma / 2 * apart / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(gamma=self.gamma, zero=True)


class FeatureHead(nn.Module):
    """A hash layer whose outputs are followed by its inputs, for losses that need both.

    Parameters
    ----------
    features : int
        Number of backbone features.
    bits : int
        K.
    """

    def __init__(self, features: int, bits: int) -> None:
        super().__init__()
        self.hash = gaussian_linear(features, bits)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, d) to (n, K + d)."""
        return torch.cat([self.hash(features), features], dim=1)


def half_signs(outputs: Tensor) -> Tensor:
    """Return codes in which each bit is +1 for the half of the rows with the larger outputs.

    Of an odd number of rows, the smaller half is +1.

    Examples
    --------
    >>> half_signs(torch.tensor([[3.0, -1.0], [1.0, -2.0], [2.0, -3.0], [5.0, -4.0]])).tolist()
    [[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]
    """
    ranks = outputs.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
    return torch.where(ranks < len(outputs) // 2, 1.0, -1.0).to(outputs)


def pair_cosines(rows: Tensor) -> Tensor:
    """Return the cosine of each row of the first half and the same row of the second half.

    Examples
    --------
    >>> pair_cosines(torch.tensor([[3.0, 0.0], [0.0, 1.0], [2.0, 0.0], [0.0, -1.0]]))
    tensor([ 1., -1.])
    """
    half = len(rows) // 2
    return functional.cosine_similarity(rows[:half], rows[half : 2 * half])
