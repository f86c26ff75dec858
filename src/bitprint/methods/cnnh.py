"""CNNH and CNNH+: codes from the similarity matrix, then a network that predicts them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Unpack

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights, gaussian_linear
from bitprint.methods._registry import register_method
from bitprint.supervision import similarity
from bitprint.training.losses import classification_loss
from bitprint.training.plan import Training
from bitprint.training.state import State

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 1024  # label sets compared with all others at a time


@register_method
class CNNH(DeepHasher):
    """Convolutional neural network hashing (Xia, Pan, Lai, Liu and Yan, AAAI 2014).

    Stage 1 uses labels only. It minimizes ``||S - H H' / K||_F^2`` over H in [-1, 1], shape (N, K),
    where S is +1 for images that share a label and -1 for others. The signs of H are the codes.
    Stage 2 uses images only. It trains a network to predict the codes, which do not change.

    As in the paper: both stages, the factorization by coordinate descent from random values, and
    in stage 2 a small network trained from scratch, here ``backbone="cnnh"``. The following parts
    are our choices, because the paper does not specify them or was not available: each coordinate
    is set to its exact minimum instead of one clipped Newton step; the coordinates are updated
    image by image in random order; the loss of stage 2 is the logistic loss summed over bits; and
    the training schedule.

    Parameters
    ----------
    bits : int
        K.
    sweeps : int
        Number of passes over H in stage 1; a few are sufficient.
    **common
        As in `DeepHasher`.

    Examples
    --------
    >>> hasher = CNNH(bits=12, epochs=2)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "cnnh"
    reference = "Xia, Pan, Lai, Liu and Yan, AAAI 2014"
    default_training = Training(
        epochs=100, lr=1e-2, schedule="cosine", momentum=0.9, weight_decay=5e-4
    )
    tuned: ClassVar[Tuned] = {
        "scratch": {"lr": 1e-3, "trunk_lr": None, "weight_decay": 0.05},
        "recommended scratch": {"images_seen": 500_000},
    }

    def __init__(
        self,
        bits: int,
        *,
        sweeps: int = 5,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.sweeps = sweeps

    def own_backbone(self) -> str:
        """Return the small network of the paper, trained from scratch."""
        return "cnnh"

    def prepare(self, state: State) -> None:
        """Stage 1: compute B, the codes to learn, shape (N, K)."""
        labels = state.labels.cpu().numpy()
        factors = factorize(labels, self.bits, sweeps=self.sweeps, seed=self.seed)
        codes = np.where(factors >= 0, np.float32(1), np.float32(-1))
        state.tensors["B"] = torch.from_numpy(codes).to(state.device)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Stage 2: return the logistic loss of all bits."""
        logits = outputs[:, : self.bits]
        wrong = functional.softplus(-state.tensors["B"][rows] * logits)
        return {"codes": wrong.sum() / state.batch_size}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        if self.sweeps < 1:
            raise ValueError(f"sweeps must be at least 1, got {self.sweeps}")


@register_method
class CNNHPlus(CNNH):
    """CNNH with an additional classification loss.

    The head has one additional output per class: softmax and cross-entropy for one label per
    image, a sigmoid per class for several labels. The relative weight of the two losses is our
    choice.

    Parameters
    ----------
    bits : int
        K.
    mu : float
        Weight of the mean cross-entropy of the labels.
    sweeps, **common
        As in `CNNH`.

    Examples
    --------
    >>> hasher = CNNHPlus(bits=12, epochs=2)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    >>> hasher.make_head(features=512, classes=10)
    Linear(in_features=512, out_features=22, bias=True)
    """

    name = "cnnh+"
    title = "CNNH+"

    def __init__(
        self,
        bits: int,
        *,
        mu: float = 1.0,
        sweeps: int = 5,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, sweeps=sweeps, **common)
        self.mu = mu

    def make_head(self, features: int, classes: int) -> nn.Module:
        """Return a linear layer with K hash outputs and one output per class."""
        return gaussian_linear(features, self.bits + classes)

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """Return the logistic loss of all bits and the cross-entropy of the labels."""
        entropy = classification_loss(outputs[:, self.bits :], rows, state)
        parts = super().loss(outputs, rows, state)
        return parts | {"classification": self.mu / state.batch_size * entropy}

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        check_weights(mu=self.mu, zero=True)


def factorize(labels: NDArray, bits: int, *, sweeps: int = 5, seed: int = 0) -> Floats:
    """Stage 1: decrease ``||K S - H H'||_F^2`` over H in [-1, 1] by coordinate descent.

    Each entry of H is set to its exact minimum for fixed other entries, so the objective never
    increases. S is not stored: images with the same labels have equal rows in S, so products with
    S are computed from sums of H over these images. A sweep takes O(N K^2) for one label per image.

    Parameters
    ----------
    labels : ndarray, shape (N,) or (N, c)
    bits : int
        K.
    sweeps : int
        Number of passes over H.
    seed : int
        Seed of the initial values and of the order.

    Returns
    -------
    ndarray of float64, shape (N, K)

    Examples
    --------
    >>> factors = factorize(np.array([0, 1, 0, 1]), bits=2)
    >>> (factors @ factors.T).tolist()
    [[2.0, -2.0, 2.0, -2.0], [-2.0, 2.0, -2.0, 2.0], [2.0, -2.0, 2.0, -2.0], [-2.0, 2.0, -2.0, 2.0]]
    """
    rng = np.random.default_rng(seed)
    groups = group_by_labels(labels)
    factors = rng.uniform(-1, 1, (len(labels), bits))
    sums, gram = label_sums(factors, groups), factors.T @ factors
    for _ in range(sweeps):
        rows, columns = rng.permutation(len(labels)), rng.permutation(bits)
        sweep(factors, sums, gram, rows, columns, *groups)
    return factors


class Groups(NamedTuple):
    """Groups of images with equal labels and the similar pairs of groups, which determine S.

    Parameters
    ----------
    member : ndarray of int64, shape (N,)
        The group of each image.
    bounds : ndarray of int64, shape (groups + 1,)
        Start of the entries of each group in `partners`.
    partners : ndarray of int64
        The groups that share a label with a group, including itself unless it has no label.
    """

    member: Ints
    bounds: Ints
    partners: Ints


def group_by_labels(labels: NDArray) -> Groups:
    """Group images by their labels, shape (N,) or (N, c)."""
    sets, member = np.unique(labels, axis=0, return_inverse=True)
    member = member.ravel()
    if labels.ndim == 1:
        every = np.arange(len(sets) + 1)
        return Groups(member, every, every[:-1])
    counts, partners = [np.zeros(1, np.int64)], []
    for start in range(0, len(sets), _BLOCK):
        similar = similarity(sets[start : start + _BLOCK], sets)
        counts.append(similar.sum(axis=1))
        partners.append(np.nonzero(similar)[1])
    return Groups(member, np.cumsum(np.concatenate(counts)), np.concatenate(partners))


def label_sums(factors: Floats, groups: Groups) -> Floats:
    """Return the sum of the rows of H in each group, shape (groups, K)."""
    sums = np.zeros((len(groups.bounds) - 1, factors.shape[1]))
    np.add.at(sums, groups.member, factors)
    return sums


@njit(nogil=True, cache=True)
def sweep(
    factors: Floats,
    sums: Floats,
    gram: Floats,
    rows: Ints,
    columns: Ints,
    member: Ints,
    bounds: Ints,
    partners: Ints,
) -> None:
    """Update H once, in place, together with its `label_sums` and its Gram matrix H'H.

    As a function of x = H_ij, the objective is ``x^4 + 2 p x^2 - 4 q x`` plus a constant. With
    image i excluded from both sums, ``q_j = K S_i . h_j - sum_{k != j} H_ik (H'H)_kj`` and
    ``p_j = (H'H)_jj - K S_ii + sum_{k != j} H_ik^2``.
    """
    bits = factors.shape[1]
    total = sums.sum(axis=0)
    for i in rows:
        row, group = factors[i], member[i]
        similar = partners[bounds[group] : bounds[group + 1]]
        total -= row
        sums[group] -= row
        gram -= np.outer(row, row)
        agree = -total
        to_itself = -1
        for other in similar:
            agree += 2 * sums[other]
            if other == group:
                to_itself = 1
        for j in columns:
            others = (row * row).sum() - row[j] ** 2
            p = gram[j, j] - bits * to_itself + others
            q = bits * agree[j] - (row * gram[j]).sum() + row[j] * gram[j, j]
            row[j] = quartic_minimum(p, q, row[j])
        total += row
        sums[group] += row
        gram += np.outer(row, row)


@njit(nogil=True, cache=True)
def quartic_minimum(p: float, q: float, now: float) -> float:
    """Return the minimizer x in [-1, 1] of ``x^4 + 2 p x^2 - 4 q x``.

    x has the sign of q, or the sign of `now` if q = 0. For x > 0, a quarter of the derivative,
    ``x^3 + p x - |q|``, is convex and negative at 0. It has one root, and Newton's method converges
    to it monotonically from x = 1. If the root is larger than 1, the minimizer is 1.
    """
    side = np.sign(q) if q != 0 else (1.0 if now >= 0 else -1.0)
    q = abs(q)
    x = 1.0
    while True:
        slope = x**3 + p * x - q
        if slope <= 0:
            return side * x
        closer = x - slope / (3 * x**2 + p)
        if not 0 <= closer < x:
            return side * x
        x = closer
