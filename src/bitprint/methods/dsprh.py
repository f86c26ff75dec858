"""DSPRH: deep semantic-preserving and ranking-based hashing, a hash stream beside a classifier."""

from __future__ import annotations

import math
from typing import ClassVar, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.training.losses import classification_loss
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, triplet_hinge


class DSPRH(DeepHasher):
    """Deep semantic-preserving and ranking-based hashing (Yao, Long, Mei and Rui, IJCAI 2016).

    Two streams on one network. The hash stream divides the features evenly into K bags and makes
    one bit of each, ``a = sigmoid(h)``; it is trained to rank, with bits as independent as they
    can be. The classification stream shares the network and nothing else::

        min  mean over triplets of max(0, margin + ||a_q - a_p||^2 - ||a_q - a_n||^2)
             + orthogonality / 2 ||Z'Z / n - I||_F^2,   Z = 2 A - 1
             + classification    mean cross-entropy of the labels

    Parameters
    ----------
    bits : int
        K; not more than the network has features.
    margin : float
        In bits: by how much a similar image must be nearer than one that is not.
    orthogonality, classification : float
        Weights of the second and of the third term.
    **common
        As in `DeepHasher`.

    Notes
    -----
    The paper's: both streams, bags of features, triplet ranking, the orthogonality constraint.
    Only its summary was read, so these are choices: the three weights, the constraint as a penalty
    on relaxed codes of one batch, all triplets of a batch in place of drawn ones, a hinge as in
    NINH, and the whole schedule. The authors call the method DSRH, a name that deep semantic
    ranking hashing had before.

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
        """K hash outputs, each from its bag of features, then one output per class from all."""
        return TwoStreams(features, self.bits, classes)

    def prepare(self, state: State) -> None:
        """Nothing is kept: every triplet is inside of a batch."""

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Ranking and orthogonality in the hash stream, cross-entropy in the other."""
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
    """A hash stream of one bit per bag of features, and a linear classifier beside it.

    Bags are neighbouring features; their sizes differ by at most one. Weights begin with a
    variance of one over the size of a bag: ranking has next to no gradient where all activations
    are nearly equal.

    Parameters
    ----------
    features : int
        Width of the trunk.
    bits, classes : int
        K and c.
    """

    bags: Tensor

    def __init__(self, features: int, bits: int, classes: int) -> None:
        super().__init__()
        if features < bits:
            raise ValueError(
                f"dsprh makes each bit of features of its own: {bits} bits need a backbone of at "
                f"least {bits} features, this one has {features}"
            )
        bag_of = torch.arange(features) * bits // features
        self.register_buffer("bags", functional.one_hot(bag_of, bits).float(), persistent=False)
        self.weight = nn.Parameter(math.sqrt(bits / features) * torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(bits))
        self.classifier = gaussian_linear(features, classes)

    def forward(self, features: Tensor) -> Tensor:
        """(n, features) -> (n, K + c)."""
        hashed = (features * self.weight) @ self.bags + self.bias
        return torch.cat([hashed, self.classifier(features)], dim=1)


def orthogonality_loss(activations: Tensor) -> Tensor:
    """``||Z'Z / n - I||_F^2 / 2`` for ``Z = 2 A - 1``: zero where bits are +-1 and uncorrelated.

    Parameters
    ----------
    activations : Tensor, shape (n, K)
        Relaxed codes between 0 and 1.
    """
    signs = 2 * activations - 1
    products = signs.t() @ signs / len(signs)
    identity = torch.eye(signs.shape[1], dtype=signs.dtype, device=signs.device)
    return (products - identity).square().sum() / 2
