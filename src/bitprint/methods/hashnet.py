"""HashNet: deep learning to hash by continuation."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.dsdh import pair_weights
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class HashNet(DeepHasher):
    """HashNet, deep learning to hash by continuation (Cao, Long, Wang and Yu, ICCV 2017).

    ``min mean_ij w_ij [ log(1 + e^t_ij) - s_ij t_ij ]``, ``t_ij = a z_i . z_j``,
    ``z = tanh(beta h)``, over the pairs of two different images of a batch.

    beta is 1 at first and grows with every step, so that z approaches the code and the
    quantization error vanishes. No term for it is needed. The weights balance the two kinds of
    pairs: w_ij is the number of pairs of the training set, divided by the number of pairs of its
    kind, similar or dissimilar. Where images have several labels, the weight of a similar pair is
    multiplied by ``|y_i and y_j| / |y_i or y_j|``.

    Parameters
    ----------
    bits : int
        K.
    scale : float, optional
        a; by default 10 / K, as in the authors' release.
    growth : float
        Growth of beta: after n steps it is ``(1 + growth n)^0.5``; 0.005 in the authors' release.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the authors' release: a, the growth of beta, and 10,000 steps with rate 0.003 for the hash
    layer, a tenth of it for the network, and momentum 0.9 (the network is ResNet-50 there). Our
    choices: beta grows in every step, and not only in every 200th; the pairs are all pairs of one
    batch, where the release compares two batches of 36 images; 60 epochs with a cosine schedule,
    where the release halves the rate every 2,000 steps. The weights are those of the paper; the
    release weights similar pairs by a constant for each data set.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = HashNet(bits=12, epochs=2, lr=0.1)
    >>> codes = hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    >>> codes, round(hasher.history_[-1]["beta"], 4)
    (Codes(6 x 12 bits), 1.005)
    """

    name = "hashnet"
    title = "HashNet"
    reference = "Cao, Long, Wang and Yu, ICCV 2017"
    default_training: ClassVar[Training] = Training(
        epochs=60,
        batch_size=72,
        lr=3e-3,
        trunk_lr=3e-4,
        schedule="cosine",
        momentum=0.9,
        augment="flip+shift",
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}

    def __init__(
        self,
        bits: int,
        *,
        scale: float | None = None,
        growth: float = 0.005,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.scale = scale
        self.growth = growth

    def prepare(self, state: State) -> None:
        """Store the weights of both kinds of pairs, and the number of steps, which sets beta."""
        state.tensors["kinds"] = weights_of_kinds(state)
        state.tensors["steps"] = torch.zeros((), device=state.device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the weighted pairwise loss of the batch."""
        relaxed = torch.tanh(self._beta(state) * outputs)
        state.tensors["steps"] += 1
        scale = 10 / self.bits if self.scale is None else self.scale
        products = scale * (relaxed @ relaxed.t())
        similar, weights = weighted_pairs(rows, state)
        pairs = weights * (functional.softplus(products) - similar * products)
        return {"pair": pairs.sum() / state.batch_size}

    def after_epoch(self, state: State) -> dict[str, float]:
        """Return beta for `metrics.csv`."""
        return {"beta": float(self._beta(state))}

    def _beta(self, state: State) -> Tensor:
        return (1 + self.growth * state.tensors["steps"]).sqrt()

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(growth=self.growth, zero=True)
        check_weights(scale=1.0 if self.scale is None else self.scale)


def weights_of_kinds(state: State) -> Tensor:
    """Return the weights of dissimilar and of similar pairs, shape (2,).

    The number of pairs of the training set divided by the number of pairs of the kind.

    Examples
    --------
    >>> labels = torch.tensor([0, 0, 1, 2])
    >>> weights_of_kinds(State(labels, torch.eye(3)[labels], batch_size=4))
    tensor([1.6000, 2.6667])
    """
    return 2 * pair_weights(state.labels, torch.ones_like(state.classes[:, 0]))


def weighted_pairs(rows: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """Return which pairs of a batch are similar, and their weights in a sum over all pairs.

    An image is not paired with itself. Each weight is divided by the number of partners of an
    image, so that the sum over the partners of one image is a mean.

    Parameters
    ----------
    rows : Tensor of int64, shape (n,)
        Indices of the batch.
    state : State
        Labels and the buffer "kinds", the result of `weights_of_kinds`.

    Returns
    -------
    similar : Tensor of bool, shape (n, n)
    weights : Tensor, shape (n, n)
    """
    labels, classes, kinds = state.labels[rows], state.classes[rows], state.tensors["kinds"]
    similar: Tensor = similarity(labels, labels)
    shared, counts = classes @ classes.t(), classes.sum(dim=1)
    overlap = shared / (counts[:, None] + counts - shared).clamp(min=1)
    weights = torch.where(similar, kinds[1] * overlap, kinds[0])
    return similar, weights.fill_diagonal_(0) / max(len(rows) - 1, 1)
