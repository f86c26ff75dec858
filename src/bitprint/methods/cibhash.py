"""CIBHash: contrastive learning of codes of two views of each image, without labels."""

from __future__ import annotations

from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.training.losses import straight_through_sign
from bitprint.training.plan import Training
from bitprint.training.state import State

_HIDDEN = 1024  # units between the features and the hash layer


@register_method
class CIBHash(DeepHasher):
    """Unsupervised hashing with contrastive information bottleneck (Qiu et al., IJCAI 2021).

    Each image is in a batch twice, as two augmented views. Bit k of a view is +1 with probability
    ``p_k = sigmoid(h_k)`` and drawn at random in training. Among all codes of the batch, that of
    the other view of its image should be the nearest to each code (NT-Xent loss)::

        min  -mean_i log( e^(cos(b_i, b_i') / T) / sum_(j != i) e^(cos(b_i, b_j) / T) )
             + beta mean_i ( KL(p_i || p_i') + KL(p_i' || p_i) ) / 2

    where i' is the other view of i and KL is summed over the bits. The second term, an information
    bottleneck, removes information that only one of the views has.

    Parameters
    ----------
    bits : int
        K.
    temperature : float
        T.
    beta : float
        Weight of the second term.
    **common
        As in `DeepHasher`.

    Notes
    -----
    As published: the loss with its constants, the random bits, whose gradient is that of p, and a
    hidden layer of 1,024 units between an unchanged backbone and the hash layer. The release does
    not draw the bits, it uses p > 1/2, and stops the gradient of the second argument of KL.

    The views are made by the options of augmentation. The release also crops to half of the area
    or more, blurs, and removes colors. Over feature vectors, the views have different noise
    (`noise`), and the backbone is "mlp:0", the features themselves. A `trunk_lr` above zero also
    trains the backbone.

    Examples
    --------
    >>> import numpy as np
    >>> features = np.random.default_rng(0).standard_normal((40, 8))
    >>> CIBHash(bits=12, epochs=2).fit(features).encode(features)
    Codes(40 x 12 bits)
    """

    name = "cibhash"
    group = "unsupervised"
    supervision = "none"
    reference = "Qiu et al., IJCAI 2021"
    views = 2
    frozen = True
    default_training = Training(
        epochs=60,
        batch_size=64,
        optimizer="adamw",
        lr=1e-3,
        trunk_lr=0.0,
        schedule="constant",
        weight_decay=0.0,
        augment="flip+shift+colour",
        freeze_norms=True,
    )
    tuned: ClassVar[Tuned] = {"recommended": {}}  # the common settings

    def __init__(
        self,
        bits: int,
        *,
        temperature: float = 0.3,
        beta: float = 0.001,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.temperature = temperature
        self.beta = beta

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a hidden layer and the hash layer."""
        hidden = nn.Linear(features, _HIDDEN)
        return nn.Sequential(hidden, nn.ReLU(), gaussian_linear(_HIDDEN, self.bits))

    def prepare(self, state: State) -> None:
        """Do nothing: views are compared within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the contrastive loss of random codes and the divergence of the views."""
        likely = torch.sigmoid(outputs)
        codes = straight_through_sign(likely - torch.rand_like(likely))
        first, second = outputs.chunk(2)
        # KL(p || q) + KL(q || p) = (p - q) (logit p - logit q)
        divergence = (torch.sigmoid(first) - torch.sigmoid(second)) * (first - second)
        return {
            "contrast": nt_xent(codes, self.temperature) / (2 * state.batch_size),
            "bottleneck": self.beta * divergence.sum() / 2 / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(temperature=self.temperature)
        check_weights(beta=self.beta, zero=True)


def nt_xent(codes: Tensor, temperature: float) -> Tensor:
    """Return the normalized temperature-scaled cross-entropy of two views, summed over all codes.

    Parameters
    ----------
    codes : Tensor, shape (2n, K)
        Rows i and n + i are the views of one image.
    temperature : float

    Examples
    --------
    >>> codes = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
    >>> round(nt_xent(codes, temperature=0.1).item(), 4)
    0.0004
    """
    directions = functional.normalize(codes, dim=1)
    logits = directions @ directions.t() / temperature
    itself = torch.eye(len(codes), dtype=torch.bool, device=codes.device)
    others = torch.arange(len(codes), device=codes.device).roll(len(codes) // 2)
    return functional.cross_entropy(logits.masked_fill(itself, -torch.inf), others, reduction="sum")
