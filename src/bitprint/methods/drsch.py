"""DSCH and DRSCH: bit-scalable deep hashing with a learned weight for each bit."""

from __future__ import annotations

import copy
from typing import ClassVar, Self, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.codes import Codes, check_bits
from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.nets.network import HashNetwork
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, masked_mean
from bitprint.weighted import WeightedCodes

_BETA_GROWTH = 1.1  # factor of beta per stage
_THRESHOLD_STEP = 0.1  # decrease of the threshold per stage
_ADJACENT, _APART = 1.0, 0.001  # entries of A


class WeightedHead(nn.Module):
    """A hash layer and a weight per bit; its outputs are (v, w), shape (n, 2K)."""

    def __init__(self, features: int, bits: int) -> None:
        super().__init__()
        self.hash = gaussian_linear(features, bits)
        self.weights = nn.Parameter(torch.ones(bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return the hash outputs v, then the weights w repeated in each row."""
        hashed = self.hash(features)
        return torch.cat([hashed, self.weights.expand_as(hashed)], dim=1)

    def strongest(self, bits: int) -> WeightedHead:
        """Return a head with the bits of the largest ``|w|``, in descending order."""
        order = self.weights.detach().abs().argsort(descending=True, stable=True)[:bits]
        head = WeightedHead(self.hash.in_features, bits).to(order.device)
        values = {name: value[order] for name, value in self.state_dict().items()}
        head.load_state_dict(values)
        return head


@register_method
class DSCH(DeepHasher):
    """Deep similarity comparison hashing: DRSCH without the regularizer.

    The outputs v give weighted codes ``x = w o tanh(beta v / 2)`` with a learned weight per bit.
    For triplets of an image, a similar image and a dissimilar image, the similar image should have
    the smaller distance::

        min  sum_(i, p, n) max( ||x_i - x_p||^2 - ||x_i - x_n||^2, C )

    Triplets below C have no gradient. In each stage beta increases by 10%, so that the codes become
    binary, and C decreases by 0.1. The codes are the signs of v.

    As in the paper: the loss, initial weights of 1, beta starting at 5 and C at -5 with these
    changes, batches of ten images from each of ten classes, SGD with rate 1/300 and no momentum.
    The following parts are our choices: the release starts a stage every 10,000 steps, here the
    training has a fixed number of stages for any size of the training set; the mean over all
    triplets of the batch replaces the sum over random triplets; the rate follows a cosine schedule
    instead of a decrease to a third every 50,000 steps. C is a squared distance, where a bit of
    weight 1 contributes 4, and is not scaled with K.

    Parameters
    ----------
    bits : int
        K.
    beta : float
        beta in the first stage.
    threshold : float
        C in the first stage, < 0.
    stages : int
        Number of stages with an equal number of epochs.
    **common
        As in `DeepHasher`.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DSCH(bits=12, epochs=2, per_class=3)
    >>> hasher = hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1])
    >>> hasher.encode(np.eye(6)), hasher.truncate(4).encode(np.eye(6))
    (Codes(6 x 12 bits), Codes(6 x 4 bits))
    """

    name = "dsch"
    reference = "Zhang, Lin, Zhang, Zuo and Zhang, IEEE TIP 2015"
    default_training = Training(
        epochs=150, batch_size=100, per_class=10, lr=1 / 300, schedule="cosine", weight_decay=5e-4
    )

    staged = True
    tuned: ClassVar[Tuned] = {
        "scratch": {"lr": 1e-3, "trunk_lr": None, "weight_decay": 0.05},
        "recommended scratch": {"images_seen": 500_000},
    }

    def __init__(
        self,
        bits: int,
        *,
        beta: float = 5.0,
        threshold: float = -5.0,
        stages: int = 15,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.beta = beta
        self.threshold = threshold
        self.stages = stages

    def own_backbone(self) -> str:
        """Return the small network of the paper, trained from scratch."""
        return "cnnh"

    def truncate(self, bits: int) -> Self:
        """Return a copy of this fitted hasher with fewer bits, those with the largest weights.

        The bits are sorted by weight, so a shorter code is a prefix of a longer one. The network
        below the hash layer is shared, not copied.
        """
        self._check_fitted()
        if check_bits(bits) > self.bits:
            raise ValueError(f"a model of {self.bits} bits cannot be truncated to {bits}")
        shorter = copy.copy(self)
        shorter.bits = shorter._fitted_bits = bits
        shorter.net_ = HashNetwork(self.net_.trunk, self._head().strongest(bits))
        shorter.net_.mixed = self.net_.mixed
        shorter.net_.mirror = self.net_.mirror
        shorter.net_.eval()
        return shorter

    def weigh(self, codes: Codes) -> WeightedCodes:
        """Return database codes for ranking by weighted Hamming distance with weights w^2.

        This distance is a quarter of the squared distance between weighted codes ``w o b``.
        Queries are unweighted codes: ``bp.evaluate(queries, labels, hasher.weigh(codes), labels)``.

        Examples
        --------
        >>> import numpy as np, bitprint as bp
        >>> labels = [0, 0, 0, 1, 1, 1]
        >>> hasher = DSCH(bits=12, epochs=2, per_class=3).fit(np.eye(6), labels)
        >>> codes = hasher.encode(np.eye(6))
        >>> hasher.weigh(codes)
        WeightedCodes(6 x 12 bits)
        >>> bp.evaluate(codes, labels, hasher.weigh(codes), labels).queries
        6
        """
        self._check_fitted()
        weights = self._head().weights.detach().double().cpu()
        return WeightedCodes(codes, weights.square().numpy())

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a head with K hash outputs and K weights."""
        return WeightedHead(features, self.bits)

    def prepare(self, state: State) -> None:
        """Create the epoch counter."""
        state.tensors["epochs"] = torch.zeros((), dtype=torch.int64, device=state.device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the mean loss over all triplets in the batch."""
        distances = squared_distances(self.weighted_codes(outputs, state))
        return {"triplet": self._triplet_loss(distances, batch_triplets(state.labels[rows]), state)}

    def after_epoch(self, state: State) -> dict[str, float]:
        """Increment the epoch counter."""
        state.tensors["epochs"] += 1
        return {}

    def weighted_codes(self, outputs: Tensor, state: State) -> Tensor:
        """Return x, shape (n, K), for the outputs of the head.

        Examples
        --------
        >>> hasher = DSCH(bits=2, beta=5.0)
        >>> state = State(torch.tensor([0]), torch.tensor([[1.0]]), batch_size=1)
        >>> hasher.prepare(state)
        >>> outputs = torch.tensor([[3.0, -3.0, 0.5, 2.0]])  # two outputs, two weights
        >>> hasher.weighted_codes(outputs, state)
        tensor([[ 0.5000, -2.0000]])
        """
        hashed, weights = outputs[:, : self.bits], outputs[:, self.bits :]
        beta = self.beta * _BETA_GROWTH ** self._stage(state)
        return weights * torch.tanh(beta * hashed / 2)

    def _triplet_loss(self, distances: Tensor, triplets: Tensor, state: State) -> Tensor:
        threshold = self.threshold - _THRESHOLD_STEP * self._stage(state)
        differences = distances[:, :, None] - distances[:, None, :]
        return masked_mean(torch.maximum(differences, threshold), triplets)

    def _stage(self, state: State) -> Tensor:
        """Return the number of finished stages, on the device to avoid synchronization."""
        epochs = (self.training or self.default_training).epochs
        stage = state.tensors["epochs"] * self.stages // epochs
        return stage.to(torch.get_default_dtype())

    def _head(self) -> WeightedHead:
        head = self.net_.head
        assert isinstance(head, WeightedHead)
        return head

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(beta=self.beta)
        if self.stages < 1:
            raise ValueError(f"stages must be at least 1, got {self.stages}")
        if not -float("inf") < self.threshold < 0:
            raise ValueError(f"threshold must be a number < 0, got {self.threshold}")


@register_method
class DRSCH(DSCH):
    """Deep regularized similarity comparison hashing (bit-scalable deep hashing).

    The loss is the triplet loss of DSCH plus the adjacency consistency ``lambda tr(X' L X)`` with
    the Laplacian ``L = D - A`` of the batch. It is half the sum of ``A_ij ||x_i - x_j||^2``, where
    A is 1 for similar images and 0.001 for others. The sum of both is divided by the number of
    triplets.

    The release uses different diagonal entries of L and half of the gradient. This implementation
    uses the Laplacian.

    Parameters
    ----------
    bits : int
        K.
    consistency : float
        lambda, the weight of the regularizer relative to the sum over triplets.
    beta, threshold, stages
        As in `DSCH`.
    **common
        As in `DeepHasher`.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = DRSCH(bits=12, epochs=2, per_class=3)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "drsch"

    def __init__(
        self,
        bits: int,
        *,
        consistency: float = 0.001,
        beta: float = 5.0,
        threshold: float = -5.0,
        stages: int = 15,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(
            bits,
            beta=beta,
            threshold=threshold,
            stages=stages,
            **common,
        )
        self.consistency = consistency

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the triplet loss and the Laplacian term divided by the number of triplets."""
        labels = state.labels[rows]
        triplets = batch_triplets(labels)
        distances = squared_distances(self.weighted_codes(outputs, state))
        adjacency = torch.where(similarity(labels, labels), _ADJACENT, _APART)
        laplacian = (adjacency * distances).sum() / 2
        return {
            "triplet": self._triplet_loss(distances, triplets, state),
            "consistency": self.consistency * laplacian / triplets.sum().clamp(min=1),
        }

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(consistency=self.consistency, zero=True)


def squared_distances(points: Tensor) -> Tensor:
    """Return ``||x_i - x_j||^2`` for all pairs of rows, shape (n, n).

    Examples
    --------
    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    squares = points.square().sum(dim=1)
    return squares[:, None] + squares[None, :] - 2 * points @ points.t()
