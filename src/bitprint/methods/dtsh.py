"""DTSH: deep supervised hashing with triplet labels."""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.discrete import sgn
from bitprint.supervision import similarity
from bitprint.training.losses import quantization_loss
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, draw, masked_mean
from bitprint.utils.arguments import check_whole

_RELEASE_IMAGES = 5000  # training set size in the release, which scales its loss


@register_method
class DTSH(DeepHasher):
    """Deep supervised hashing with triplet labels (Wang, Shi and Kitani, ACCV 2016).

    ``min -sum_qpn log sigmoid(t_qp - t_qn - margin) + eta sum_i ||sgn(h_i) - h_i||^2``,
    ``t_ij = h_i . h_j / 2``, over triplets of a query, a similar image and a dissimilar image.

    Parameters
    ----------
    bits : int
        K.
    triplets : {"buffer", "batch"}
        "buffer": each image of a batch is the query of triplets with images outside the batch,
        represented by their last outputs, as in the authors' release. Only queries have a
        gradient. "batch": all triplets within the batch; all three images have a gradient.
    positives, negatives : int
        With "buffer", the number of similar and dissimilar images drawn per query; all pairs of
        them form triplets.
    margin : float, optional
        By default K / 2, as in the paper.
    eta : float
        Weight of the quantization term, in units of the release: relative to `positives` times
        `negatives` triplets per image, also with "batch".
    **common
        As in `DeepHasher`.

    Notes
    -----
    The loss is twice the objective divided by batch size times 5,000. For the 5,000 training
    images of the release the gradient is equal to that of the release; for other training sets it
    has the same scale.

    The release draws 50 positives, and 50 negatives from each of the nine other classes of
    CIFAR-10, without replacement. Here 450 negatives are drawn from all dissimilar images with
    replacement. For classes of equal size this is the same in expectation, and it supports images
    with several labels, where images that share a label are similar. The release decreases the
    learning rate by a third every 20 epochs; here it is constant.

    If a batch contains the whole training set, triplets are drawn within the batch.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DTSH(12, epochs=2, batch_size=3)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dtsh"
    reference = "Wang, Shi and Kitani, ACCV 2016"
    default_training: ClassVar[Training] = Training(epochs=100, lr=5e-4, schedule="constant")
    tuned: ClassVar[Tuned] = {"recommended few pretrained": {"lr": 3e-3}}

    def __init__(
        self,
        bits: int,
        *,
        triplets: Literal["buffer", "batch"] = "buffer",
        positives: int = 50,
        negatives: int = 450,
        margin: float | None = None,
        eta: float = 100.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.triplets = triplets
        self.positives = positives
        self.negatives = negatives
        self.margin = margin
        self.eta = eta

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the triplet loss of the batch and the quantization loss."""
        state.tensors["U"][rows] = outputs.detach()
        if self.triplets == "buffer":
            similar, dissimilar, found = self._draw(outputs, rows, state)
        else:
            similar = dissimilar = outputs @ outputs.t() / 2
            found = batch_triplets(state.labels[rows])
        margin = self.bits / 2 if self.margin is None else self.margin
        likelihood = functional.softplus(margin - similar[:, :, None] + dissimilar[:, None, :])
        per_query = masked_mean(likelihood, found.expand_as(likelihood), dim=(1, 2))
        scale = 2 / (state.batch_size * _RELEASE_IMAGES)
        return {
            "triplet": scale * self.positives * self.negatives * per_query.sum(),
            "quantisation": scale * self.eta * quantization_loss(outputs, sgn(outputs.detach())),
        }

    def _draw(self, outputs: Tensor, rows: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return t_qp (n, positives), t_qn (n, negatives) and whether both exist (n, 1, 1)."""
        buffer = state.tensors["U"]
        similar, dissimilar = partners(rows, state.labels)
        products, found = [], []
        for allowed, count in ((similar, self.positives), (dissimilar, self.negatives)):
            columns, some = draw(allowed, count)
            products.append(torch.einsum("nk,nmk->nm", outputs, buffer[columns]) / 2)
            found.append(some)
        return products[0], products[1], (found[0] & found[1])[:, None, None]

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        if self.triplets not in ("buffer", "batch"):
            raise ValueError(f"triplets must be buffer or batch, got {self.triplets!r}")
        for name in ("positives", "negatives"):
            check_whole(name, getattr(self, name), 1)
        check_weights(eta=self.eta, margin=self.margin or 0.0, zero=True)


def partners(rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the candidate positives and negatives of each image of a batch.

    Parameters
    ----------
    rows : Tensor of int64, shape (n,)
        Indices of the batch. Candidates are outside the batch, unless it contains the whole
        training set; then they are all other images.
    labels : Tensor, shape (N,) or (N, c)
        Labels of the training set.

    Returns
    -------
    similar, dissimilar : Tensor of bool, shape (n, N)
    """
    similar: Tensor = similarity(labels[rows], labels)
    everyone = torch.arange(len(labels), device=labels.device)
    if len(rows) < len(labels):
        free = torch.ones_like(everyone, dtype=torch.bool).index_fill(0, rows, False)
    else:
        free = rows[:, None] != everyone
    return similar & free, ~similar & free
