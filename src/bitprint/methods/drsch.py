"""DSCH and DRSCH: bit-scalable deep hashing, where every bit has a weight of its own."""

from __future__ import annotations

import copy
from typing import ClassVar, Self, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bitprint.codes import Codes, check_bits
from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.nets.network import HashNetwork
from bitprint.supervision import similarity
from bitprint.training.plan import Training
from bitprint.training.state import State
from bitprint.training.triplets import batch_triplets, masked_mean
from bitprint.weighted import WeightedCodes

_STEEPER = 1.1  # factor of beta from one stage to the next
_STRICTER = 0.1  # by how much the threshold falls
_ADJACENT, _APART = 1.0, 0.001  # entries of A


class WeightedHead(nn.Module):
    """A hash layer and a weight for each bit; outputs (v, w), shape (n, 2K)."""

    def __init__(self, features: int, bits: int) -> None:
        super().__init__()
        self.hash = gaussian_linear(features, bits)
        self.weights = nn.Parameter(torch.ones(bits))

    def forward(self, features: Tensor) -> Tensor:
        """Hash outputs v, then the weights w once more in every row."""
        hashed = self.hash(features)
        return torch.cat([hashed, self.weights.expand_as(hashed)], dim=1)

    def strongest(self, bits: int) -> WeightedHead:
        """Return a head of the bits with the largest ``|w|``, largest first."""
        order = self.weights.detach().abs().argsort(descending=True, stable=True)[:bits]
        head = WeightedHead(self.hash.in_features, bits).to(order.device)
        values = {name: value[order] for name, value in self.state_dict().items()}
        head.load_state_dict(values)
        return head


class DSCH(DeepHasher):
    """Deep similarity comparison hashing, DRSCH without its regulariser.

    Outputs v become weighted codes ``x = w o tanh(beta v / 2)``, with a learned weight for each
    bit, and triplets of an image, a similar and a dissimilar one are to keep their order::

        min  sum_(i, p, n) max( ||x_i - x_p||^2 - ||x_i - x_n||^2, C )

    A triplet that is below C already is left alone. From stage to stage beta grows by a tenth, so
    that codes become binary, and C falls by 0.1. Codes are the signs of v.

    The original's: the loss, weights that begin at 1, beta from 5, C from -5 and how they change,
    ten images of each of ten classes in a batch, SGD at 1/300 without momentum. Choices: the
    release has a stage every 10,000 steps, here training has a fixed number of stages, whatever
    the size of the set; the mean over all triplets of the batch stands for the sum over random
    ones; and the rate falls along a cosine instead of to a third every 50,000 steps. C is in units
    of squared distance, four for a bit of weight 1, and is not scaled with K.

    Parameters
    ----------
    bits : int
        K.
    beta : float
        Steepness of the first stage.
    threshold : float
        C of the first stage, below zero.
    stages : int
        Equal parts of the training, by epochs.
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
        "recommended scratch": {"views": 500_000},
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
        """Return this fitted hasher with fewer bits: those of the largest weights.

        The bits are in order of weight, so that shorter codes begin longer ones. The network below
        the hash layer is shared, not copied.
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
        """Database codes to be ranked by weighted Hamming distance, a bit weighing w^2.

        That is a quarter of the squared distance between weighted codes ``w o b``. Queries are
        plain codes: ``bp.evaluate(queries, labels, hasher.weigh(codes), labels)``.

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
        """K hash outputs and K weights."""
        return WeightedHead(features, self.bits)

    def prepare(self, state: State) -> None:
        """Count epochs; there are no buffers."""
        state.tensors["epochs"] = torch.zeros((), dtype=torch.int64, device=state.device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Mean over all triplets in the batch."""
        distances = squared_distances(self.weighted_codes(outputs, state))
        return {"triplet": self._triplet_loss(distances, batch_triplets(state.labels[rows]), state)}

    def after_epoch(self, state: State) -> dict[str, float]:
        """Count the epoch."""
        state.tensors["epochs"] += 1
        return {}

    def weighted_codes(self, outputs: Tensor, state: State) -> Tensor:
        """x, shape (n, K), from what the head gave.

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
        beta = self.beta * _STEEPER ** self._stage(state)
        return weights * torch.tanh(beta * hashed / 2)

    def _triplet_loss(self, distances: Tensor, triplets: Tensor, state: State) -> Tensor:
        threshold = self.threshold - _STRICTER * self._stage(state)
        differences = distances[:, :, None] - distances[:, None, :]
        return masked_mean(torch.maximum(differences, threshold), triplets)

    def _stage(self, state: State) -> Tensor:
        """Stages finished; on the device, so that no step waits for it."""
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
            raise ValueError(f"threshold must be a number below 0, got {self.threshold}")


class DRSCH(DSCH):
    """Deep regularised similarity comparison hashing (bit-scalable deep hashing).

    To the triplets of DSCH it adds adjacency consistency, ``lambda tr(X' L X)`` with the Laplacian
    ``L = D - A`` of the batch: half the sum of ``A_ij ||x_i - x_j||^2``, where A is 1 for similar
    images and 0.001 for others. The loss is the whole objective over the number of triplets.

    The release has other entries on the diagonal of L, and half of the gradient; this is the
    Laplacian itself.

    Parameters
    ----------
    bits : int
        K.
    consistency : float
        lambda, the weight of the regulariser against the sum over triplets.
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
        """Triplets of the batch, and the Laplacian term over their number."""
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
    """``||x_i - x_j||^2`` of all pairs of rows, shape (n, n).

    Examples
    --------
    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    squares = points.square().sum(dim=1)
    return squares[:, None] + squares[None, :] - 2 * points @ points.t()
