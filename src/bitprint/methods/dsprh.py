"""DSPRH: deep semantic-preserving and ranking-based hashing, a hash stream and a classifier."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.training.losses import classification_loss
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, triplet_hinge


@register_method
class DSPRH(DeepHasher):
    """Deep semantic-preserving and ranking-based hashing (Yao, Long, Mei and Rui, IJCAI 2016).

    One network has two streams. The hash stream divides the features into K bags of equal size and
    computes one bit from each bag, ``a = sigmoid(h)``. Its loss is a ranking loss with orthogonal
    bits. The classification stream uses the same features::

        min  mean over triplets of max(0, margin + ||a_q - a_p||^2 - ||a_q - a_n||^2)
             + orthogonality / 2 ||Z'Z / n - I||_F^2,   Z = 2 A - 1
             + classification    mean cross-entropy of the labels

    Parameters
    ----------
    bits : int
        K, at most the number of backbone features.
    margin : float
        Required difference between the distances of dissimilar and similar images, in bits.
    orthogonality, classification : float
        Weights of the second and third terms.
    **common
        As in `DeepHasher`.

    Notes
    -----
    From the paper: both streams, bags of features, triplet ranking, the orthogonality constraint.
    We have only read its summary. The following parts are therefore our choices: the three weights,
    the constraint as a penalty on the relaxed codes of a batch, all triplets of a batch instead of
    sampled ones, a hinge loss as in NINH, and the training schedule. The authors call the method
    DSRH, which is also the name of the earlier deep semantic ranking hashing.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DSPRH(bits=12, epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dsprh"
    reference = "Yao, Long, Mei and Rui, IJCAI 2016"
    default_training = Training(
        epochs=60,
        batch_size=64,
        lr=1e-2,
        trunk_lr=1e-3,
        schedule="cosine",
        momentum=0.9,
        augment="flip",
    )
    tuned: ClassVar[Tuned] = {"recommended few pretrained": {"lr": 1e-3}}

    def __init__(
        self,
        bits: int,
        *,
        margin: float = 1.0,
        orthogonality: float = 0.01,
        classification: float = 1.0,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.margin = margin
        self.orthogonality = orthogonality
        self.classification = classification

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with K hash outputs from bags and class outputs from all features."""
        return TwoStreams(features, self.bits, classes)

    def prepare(self, state: State) -> None:
        """Do nothing: triplets are formed within a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return ranking and orthogonality of the hash stream, and the cross-entropy."""
        activations = torch.sigmoid(outputs[:, : self.bits])
        entropy = classification_loss(outputs[:, self.bits :], rows, state)
        triplets = batch_triplets(state.labels[rows])
        share = len(rows) / state.batch_size
        return {
            "ranking": share * triplet_hinge(activations, triplets, self.margin),
            "orthogonality": share * self.orthogonality * orthogonality_loss(activations),
            "classification": self.classification * entropy / state.batch_size,
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(
            margin=self.margin,
            orthogonality=self.orthogonality,
            classification=self.classification,
            zero=True,
        )


class TwoStreams(nn.Module):
    """A hash stream with one bit per bag of features, and a linear classifier.

    A bag contains contiguous features; the sizes of bags differ by at most one. The initial
    variance of the weights is 1 / size of a bag, because the ranking loss has a very small gradient
    if all activations are nearly equal.

    Parameters
    ----------
    features : int
        Number of backbone features.
    bits, classes : int
        K and c.
    """

    bags: Tensor

    def __init__(self, features: int, bits: int, classes: int) -> None:
        super().__init__()
        if features < bits:
            raise ValueError(
                f"dsprh computes each bit from separate features: {bits} bits need a backbone with "
                f"at least {bits} features, got {features}"
            )
        bag_of = torch.arange(features) * bits // features
        self.register_buffer("bags", functional.one_hot(bag_of, bits).float(), persistent=False)
        self.weight = nn.Parameter(math.sqrt(bits / features) * torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(bits))
        self.classifier = gaussian_linear(features, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Map (n, features) to (n, K + c)."""
        hashed = (features * self.weight) @ self.bags + self.bias
        return torch.cat([hashed, self.classifier(features)], dim=1)


def orthogonality_loss(activations: Tensor) -> Tensor:
    """Return ``||Z'Z / n - I||_F^2 / 2``, ``Z = 2 A - 1``: zero for uncorrelated binary codes.

    Parameters
    ----------
    activations : Tensor, shape (n, K)
        Relaxed codes between 0 and 1.
    """
    signs = 2 * activations - 1
    products = signs.t() @ signs / len(signs)
    identity = torch.eye(signs.shape[1], dtype=signs.dtype, device=signs.device)
    return (products - identity).square().sum() / 2
