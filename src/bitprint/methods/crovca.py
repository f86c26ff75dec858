"""CroVCA: a small head on frozen features, trained by aligning the codes of two views."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.nets.batch_norm import BatchNorm
from bitprint.training.plan import Training
from bitprint.training.state import State


@register_method
class CroVCA(DeepHasher):
    """Cross-view code alignment (Moummad, Zaher, Goeau and Joly, arXiv 2025).

    Each image is in a batch twice, as two augmented views. The code of each view is the target of
    the other view, in a binary cross-entropy for each bit. The coding rate R of the outputs of each
    view should be large, so that the codes do not become equal::

        min  mean_ik log(1 + e^(-b_ik' h_ik)) - beta (n + K) / (n K) mean_v R(H_v),   b = sgn(h)
             R(H) = 1/2 log det( I + K / (n epsilon) H' H ),   rows of H scaled to length 1

    where i' is the other view of i and H_v (n, K) contains the outputs of view v of n images. The
    network is an unchanged backbone with two layers and a batch norm.

    Parameters
    ----------
    bits : int
        K.
    supervised : bool
        Use labels: the target of an image is the code of its classes, the sign of the mean over its
        classes of their mean outputs in the batch.
    beta : float
        Weight of the coding rate.
    epsilon : float
        epsilon in R.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As in the authors' release: the loss with its weights, the targets with labels, the layers (the
    small variant) and their initial weights. The large variant and LoRA, which also adapts the
    backbone, are left out; a `trunk_lr` above zero trains the backbone. In the supervised mode, an
    image without labels has the other view as its target.

    The views are made by the options of augmentation. The release also crops, blurs, solarizes, and
    removes colors, and trains for 5 epochs. Over feature vectors, the views have different noise
    (`noise`), and the backbone is "mlp:0", the features themselves.

    Examples
    --------
    >>> import numpy as np
    >>> features = np.random.default_rng(0).standard_normal((40, 8))
    >>> CroVCA(bits=12, epochs=2).fit(features).encode(features)
    Codes(40 x 12 bits)
    >>> CroVCA(bits=12, supervised=True, epochs=2).fit(features, features[:, 0] > 0)
    CroVCA(bits=12, epochs=2, supervised=True)
    """

    name = "crovca"
    group = "unsupervised"
    supervision = "none"
    reference = "Moummad, Zaher, Goeau and Joly, arXiv 2025"
    views = 2
    frozen = True
    default_training = Training(
        epochs=5,
        batch_size=256,
        optimizer="adamw",
        lr=1e-3,
        trunk_lr=0.0,
        schedule="cosine",
        weight_decay=0.01,
        augment="flip+shift+colour",
        freeze_norms=True,
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        supervised: bool = False,
        beta: float = 0.1,
        epsilon: float = 0.05,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.supervised = supervised
        self.beta = beta
        self.epsilon = epsilon

    @property
    def _uses_labels(self) -> bool:
        return self.supervised

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return two layers and a batch norm."""
        hidden, last = nn.Linear(features, features), nn.Linear(features, self.bits)
        for layer in (hidden, last):
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(hidden, nn.ReLU(), last, BatchNorm(self.bits))

    def prepare(self, state: State) -> None:
        """Do nothing: views are compared within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the cross-entropy of the aligned bits and the coding rate."""
        views = outputs.chunk(2)
        targets = torch.cat(views[::-1]).detach()
        if self.supervised:
            targets = class_means(outputs.detach(), state.classes[rows], targets)
        signs = torch.where(targets > 0, 1.0, -1.0)
        entropy = functional.softplus(-signs * outputs).mean(dim=1).sum() / 2
        rates = torch.stack([coding_rate(view, self.epsilon) for view in views])
        count = len(views[0])
        balance = (count + self.bits) / self.bits  # the sum over n images of (n + K) / (n K)
        return {
            "alignment": entropy / state.batch_size,
            "rate": -self.beta * balance * rates.mean() / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(epsilon=self.epsilon)
        check_weights(beta=self.beta, zero=True)


def class_means(outputs: Tensor, classes: Tensor, without: Tensor) -> Tensor:
    """Return the mean over the classes of each row of their mean outputs.

    Parameters
    ----------
    outputs : Tensor, shape (n, K)
    classes : Tensor, shape (n, c)
        Labels, zeros and ones.
    without : Tensor, shape (n, K)
        Result for rows without labels.

    Examples
    --------
    >>> outputs, classes = torch.tensor([[2.0], [4.0], [9.0]]), torch.tensor([[1.0], [1.0], [0.0]])
    >>> class_means(outputs, classes, without=-outputs).tolist()
    [[3.0], [3.0], [-9.0]]
    """
    means = classes.t() @ outputs / classes.sum(dim=0).clamp(min=1)[:, None]
    counts = classes.sum(dim=1, keepdim=True)
    return torch.where(counts > 0, classes @ means / counts.clamp(min=1), without)


def coding_rate(outputs: Tensor, epsilon: float) -> Tensor:
    """Return ``1/2 log det(I + K / (n epsilon) H' H)`` for the rows of `outputs` at length 1.

    The rate is large if the outputs vary in all K directions.

    Examples
    --------
    >>> apart, equal = torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.ones(2, 2)
    >>> [round(coding_rate(outputs, 0.5).item(), 2) for outputs in (apart, equal)]
    [1.1, 0.8]
    """
    count, bits = outputs.shape
    rows = functional.normalize(outputs, dim=1, eps=1e-3)
    gram = bits / (count * epsilon) * rows.t() @ rows
    gram = gram + torch.eye(bits, dtype=gram.dtype, device=gram.device)
    # Positive definite by construction; a check would synchronize with the GPU.
    factor, _ = torch.linalg.cholesky_ex(gram)
    rate: Tensor = factor.diagonal().log().sum()
    return rate
