"""DCH: deep Cauchy hashing."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.hashnet import weighted_pairs, weights_of_kinds
from bitprint.training.plan import Training
from bitprint.training.state import State

_LEAST = 1e-6  # added to 1 - cosine, so that equal dissimilar images have a finite loss


@register_method
class DCH(DeepHasher):
    """Deep Cauchy hashing (Cao, Long, Liu and Wang, CVPR 2018).

    ``min mean_ij w_ij [ s_ij log(d_ij / gamma) + log(1 + gamma / d_ij) ]
    + lambda mean_i log(1 + d(|z_i|, 1) / gamma)``, ``d(x, y) = K/2 (1 - cos(x, y))``,
    ``z = tanh(h)``, over the pairs of two different images of a batch.

    The probability that two images are similar is a Cauchy function of their distance,
    ``gamma / (gamma + d)``: 1 at distance 0 and 1/2 at gamma. It falls fastest at distance 0, where
    a sigmoid of the inner product is flat until the codes differ in many bits. Similar images
    should therefore be within a small radius. For codes, d is the Hamming distance. The second term
    is small if all outputs of an image have the same magnitude.

    Parameters
    ----------
    bits : int
        K.
    gamma : float
        Distance at which the probability is 1/2; 20 in the authors' release.
    quantisation : float
        lambda; 0.1 in common reimplementations.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The weights w are those of `HashNet`. As in the authors' release: tanh, gamma, the constant 1e-6
    that keeps the distance of equal outputs from zero, batches of 128 images and momentum 0.9, with
    rate 0.005 for the network and ten times that for the hash layer. Our choices: the weights,
    which the release uses for similar pairs only; 60 epochs with a cosine schedule, where the
    release has 2,000 steps. The network of the paper is AlexNet.

    The cosine does not depend on the scale of the outputs of an image, and with one bit it has no
    gradient: DCH needs at least two bits to learn.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DCH(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dch"
    reference = "Cao, Long, Liu and Wang, CVPR 2018"
    default_training: ClassVar[Training] = Training(
        epochs=60, lr=5e-2, trunk_lr=5e-3, schedule="cosine", momentum=0.9
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(
        self,
        bits: int,
        *,
        gamma: float = 20.0,
        quantisation: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.gamma = gamma
        self.quantisation = quantisation

    def prepare(self, state: State) -> None:
        """Store the weights of both kinds of pairs."""
        state.tensors["kinds"] = weights_of_kinds(state)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the Cauchy loss of the pairs of the batch and the quantization loss."""
        relaxed = torch.tanh(outputs)
        directions = functional.normalize(relaxed, dim=1)
        ratios = self._distances(directions @ directions.t()) / self.gamma
        similar, weights = weighted_pairs(rows, state)
        # log(d / gamma) + log(1 + gamma / d) is log(1 + d / gamma).
        pairs = torch.log1p(torch.where(similar, ratios, 1 / ratios))
        to_corner = directions.abs().sum(dim=1) / self.bits**0.5
        gaps = torch.log1p(self._distances(to_corner) / self.gamma)
        return {
            "pair": (weights * pairs).sum() / state.batch_size,
            "quantisation": self.quantisation * gaps.sum() / state.batch_size,
        }

    def _distances(self, cosines: Tensor) -> Tensor:
        """Return the relaxed Hamming distances, which are positive."""
        return self.bits / 2 * (1 - cosines).clamp(min=0) + _LEAST * self.bits / 2

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(gamma=self.gamma)
        check_weights(quantisation=self.quantisation, zero=True)
