"""GreedyHash: a classifier on signs whose gradient is passed on unchanged."""

from __future__ import annotations

from typing import ClassVar, Unpack

from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.methods._deep import Common, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.dlbhc import DLBHC, LatentHead
from bitprint.training.losses import straight_through_sign
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class GreedyHash(DLBHC):
    """Greedy hash (Su, Zhang, Han and Tian, NeurIPS 2018).

    ``min mean_i [ classification loss of image i ] + alpha mean_ik | |h_ik| - 1 |^3``.

    The structure is that of `DLBHC`, but the classifier reads the code ``sgn(h)`` in place of
    sigmoids, so that training and search use the same codes. The gradient of the signs is passed on
    to h unchanged: the network moves towards the best code nearby. The second term keeps h near its
    sign, where the difference matters least.

    Parameters
    ----------
    bits : int
        K.
    alpha : float
        Weight of the second term; 0.1 for CIFAR-10 in the authors' release.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the authors' release: both terms, alpha, and 50 epochs of batches of 32 images with rate
    0.001 and momentum 0.9. Our choices: a cosine schedule, where the release divides the rate by
    ten after 30 epochs; a classifier with biases; for images with several labels, the loss of
    `DLBHC`. The unsupervised form of the paper is not included.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = GreedyHash(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "greedyhash"
    title = "GreedyHash"
    reference = "Su, Zhang, Han and Tian, NeurIPS 2018"
    default_training: ClassVar[Training] = Training(
        epochs=50, batch_size=32, lr=1e-3, schedule="cosine", momentum=0.9
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(self, bits: int, *, alpha: float = 0.1, **common: Unpack[Common]) -> None:
        super().__init__(bits, **common)
        self.alpha = alpha

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with K hash outputs and class outputs computed from their signs."""
        return LatentHead(features, self.bits, classes, straight_through_sign)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the classifier and the quantization loss."""
        gaps = outputs[:, : self.bits].abs() - 1
        quantisation = gaps.abs().pow(3).mean(dim=1).sum()
        return super().loss(outputs, rows, state) | {
            "quantisation": self.alpha * quantisation / state.batch_size
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(alpha=self.alpha, zero=True)
