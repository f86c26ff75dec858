"""DSH: deep supervised hashing, a contrastive loss with a margin."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.supervision import similarity
from bitprint.training.losses import squared_distances
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class DSH(DeepHasher):
    """Deep supervised hashing (Liu, Wang, Shan and Chen, CVPR 2016).

    ``min 1/2 mean_ij [ s_ij D_ij + (1 - s_ij) max(m - D_ij, 0) ]
    + alpha mean_i sum_k | |h_ik| - 1 |``, ``D_ij = ||h_i - h_j||^2``, over the pairs of two
    different images of a batch.

    Similar images should be equal, and dissimilar ones apart by the margin m. For codes of -1 and
    +1, ``D_ij`` is four times the Hamming distance, so m = 2 K is reached by codes that differ in
    half of the bits. The second term moves outputs towards -1 and +1, without a sigmoid or tanh.

    Parameters
    ----------
    bits : int
        K.
    margin : float, optional
        m; by default 2 K, as in the paper.
    alpha : float
        Weight of the second term; 0.01 in the authors' release.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the authors' release: the loss, the margin, alpha, batches of 200 images, and 70,000 steps
    with rate 0.001, momentum 0.9 and weight decay 0.004 on CIFAR-10. Our choice: the rate follows a
    cosine schedule; the release divides it by ten after 60,000 and after 65,000 steps. The network
    of the paper is a small one with three convolutions.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DSH(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dsh"
    reference = "Liu, Wang, Shan and Chen, CVPR 2016"
    default_training: ClassVar[Training] = Training(
        epochs=280,
        batch_size=200,
        lr=1e-3,
        schedule="cosine",
        momentum=0.9,
        weight_decay=4e-3,
        augment="flip",
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(
        self,
        bits: int,
        *,
        margin: float | None = None,
        alpha: float = 0.01,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.margin = margin
        self.alpha = alpha

    def prepare(self, state: State) -> None:
        """Do nothing: pairs are formed within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the contrastive loss of the batch and the quantization loss."""
        margin = 2 * self.bits if self.margin is None else self.margin
        labels = state.labels[rows]
        distances = squared_distances(outputs)
        pairs = torch.where(similarity(labels, labels), distances, (margin - distances).relu()) / 2
        pairs = pairs.fill_diagonal_(0).sum() / max(len(rows) - 1, 1)
        quantisation = (outputs.abs() - 1).abs().sum()
        return {
            "pair": pairs / state.batch_size,
            "quantisation": self.alpha * quantisation / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(alpha=self.alpha, margin=self.margin or 0.0, zero=True)
