"""DTSH: deep supervised hashing with triplet labels."""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.arguments import check_whole
from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods.discrete import sgn
from bitprint.supervision import similarity
from bitprint.training.losses import quantisation_loss
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, draw, masked_mean

_RELEASE_IMAGES = 5000  # the release divides its steps by the size of its training set


class DTSH(DeepHasher):
    """Deep supervised hashing with triplet labels (Wang, Shi and Kitani, ACCV 2016).

    ``min -sum_qpn log sigmoid(t_qp - t_qn - margin) + eta sum_i ||sgn(h_i) - h_i||^2``,
    ``t_ij = h_i . h_j / 2``, over triplets of a query, a similar and a dissimilar image.

    Parameters
    ----------
    bits : int
        K.
    triplets : {"buffer", "batch"}
        "buffer": every image of a batch is the query of triplets with images outside of the batch,
        by their last outputs, as in the authors' release; only queries have a gradient. "batch":
        all triplets inside of the batch, where all three images have one.
    positives, negatives : int
        How many images are drawn for a query, with "buffer"; all pairs of them are its triplets.
    margin : float, optional
        The authors' K / 2 by default.
    eta : float
        Weight of the quantisation term, in units of the release: `positives` times `negatives`
        triplets to one image, with "batch" as well.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The loss is twice the objective over batch size times 5,000: this has the gradient of the
    release, whose training set is of that size, and the same strength for any other.
    The release draws 50 positives and 50 negatives for each of the nine other classes of CIFAR-10,
    without repeats; here 450 negatives come from all dissimilar images, with repeats, which is the
    same in expectation where classes are equally large, and also works for images with several
    labels (similar are those that share one). It lowers its learning rate by a third every 20
    epochs; here it is constant.

    A batch of the whole training set leaves nothing outside, and draws from itself.

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
        """Triplets of the batch's images, and quantisation."""
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
            "quantisation": scale * self.eta * quantisation_loss(outputs, sgn(outputs.detach())),
        }

    def _draw(self, outputs: Tensor, rows: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """t_qp (n, positives) and t_qn (n, negatives) of images drawn; who has both (n, 1, 1)."""
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
    """Who may be the positive and who the negative of each image of a batch.

    Parameters
    ----------
    rows : Tensor of int64, shape (n,)
        The batch. Its images are nobody's partners, unless it is the whole training set: then they
        are those of each other.
    labels : Tensor, shape (N,) or (N, c)
        Of the training set.

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
