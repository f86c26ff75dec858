"""DSDH: deep supervised discrete hashing, the paper's own method."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Unpack

import torch
from numpy.typing import NDArray
from torch import Tensor

from bitprint.methods._deep import Common, DeepHasher, Tuned, check_weights
from bitprint.methods._registry import register_method
from bitprint.methods.centers import choose_apart
from bitprint.methods.discrete import dcc, ridge, sgn
from bitprint.methods.dpsh import pairwise_parts
from bitprint.nets import backbone_kind
from bitprint.supervision import class_count, has_several_labels, similarity
from bitprint.training.state import State
from bitprint.utils.arguments import check_whole

SEVERAL_OVER_FEATURES = 0.1
"""Factor on eta over features if some image has several labels."""

MOST_WEIGHT, MOST_OVER_FEATURES = 10.0, 1000.0
"""Largest weight of an image of a small class, where one of the largest class has weight 1."""


@register_method
class DSDH(DeepHasher):
    """Deep supervised discrete hashing (Li, Sun, He and Tan, NIPS 2017).

    Codes should be ideal for classification, and the network should agree with the codes (eq. 11)::

        min  -sum_ij [ s_ij t_ij - log(1 + e^t_ij) ]        pairs,  t_ij = h_i . h_j / 2
             + mu sum_i ||y_i - W' b_i||^2 + nu ||W||_F^2   linear classifier on the codes
             + eta sum_i ||b_i - h_i||^2                    codes tied to the network
        over the network h, the classifier W (K, c) and the codes b_i in {-1, +1}^K

    alternating a gradient step on the network, W in closed form and B by discrete cyclic
    coordinate descent.

    Parameters
    ----------
    bits : int
        K.
    mode : {"paper", "authors", "balanced"}, optional
        By default "balanced" with the recommended recipe and "paper" with the others.

        "paper": after each epoch W and then B are solved over the whole training set, B starting
        from its last value, at first random signs. "authors": both are solved inside every
        mini-batch and then forgotten, as the authors' release does.

        "balanced": as "paper", with these changes of ours. Weights let the classifier act, which
        it hardly does at eta / mu = 55. h = tanh(network), so that an output beyond its code is
        not pulled back. Similar and dissimilar pairs have equal weight in sum (see
        `pair_weights`): with 100 classes only one pair in 100 is similar. B starts from
        well-separated codes of the classes (see `separated_codes`); for several labels from the
        sign of their sum; over features later, see `codes_after`. Where no image has several
        labels, log(1 + e^(a t)) / a with a = min(1, 6 / K) replaces log(1 + e^t), so that the loss
        of long codes does not saturate too soon, and an image has a weight of one over the size of
        its class in every sum over images. That weight is at most 10 times that of an image of the
        largest class, or 1,000 times over features: a network of two layers learns a class of two
        images, a whole network may fail to train.
    mu, nu, eta : float, optional
        Weights in the paper's units: the loss is the objective over batch size times N. By default
        the paper's 1, 0.1 and 55; with "balanced" eta is N sqrt(K) / 100, which keeps its strength
        whatever the size of the training set, mu is eta times the largest of 10, the number of
        classes and K^2 / 50, and nu is mu / 10. Over features eta is multiplied by (16 / K)^2 if
        K > 16, or by 0.1 if some image has several labels.
    codes_after : int, optional
        With "balanced" and one label per image, the number of epochs in which the network learns
        from pairs alone. Then B starts again, from codes near to the mean outputs of the classes
        and apart from each other (see `codes_near`). By default a fifth of all epochs over
        features, and 0 for images.
    **common
        As in `DeepHasher`.

    Notes
    -----
    Two slips of the paper: with B (K, N) and Y (c, N) as it has them, eq. 15 must have B Y' for
    B' Y; and eq. 17 lacks a factor, Tr(B' P) for Tr(P). Here rows are images, so W = (B'B + nu/mu
    I)^-1 B'Y.

    `metrics.csv` shows per epoch the share of bits that the discrete step sets against the sign of
    the network (`changed_bits`), the mean number of distinct codes among training images of equal
    labels (`codes_per_label`) and the classification term (`classification`).

    Examples
    --------
    >>> import numpy as np, bitprint as bp
    >>> hasher = bp.create("dsdh", bits=12, mode="balanced", epochs=2, lr=0.1)
    >>> hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1]).encode(np.eye(6))
    Codes(6 x 12 bits)
    """

    name = "dsdh"
    reference = "Li, Sun, He and Tan, NIPS 2017"
    tuned: ClassVar[Tuned] = {
        "recommended": {"mode": "balanced"},
        "paper": {"mode": "paper"},
        "original": {"mode": "paper"},
        "recommended pretrained": {"lr": 1e-3},
        "recommended small": {"lr": 3e-3, "trunk_lr": 3e-3},
    }

    def __init__(
        self,
        bits: int,
        *,
        mode: Literal["paper", "authors", "balanced"] | None = None,
        mu: float | None = None,
        nu: float | None = None,
        eta: float | None = None,
        codes_after: int | None = None,
        **common: Unpack[Common],
    ) -> None:
        super().__init__(bits, **common)
        self.mode = mode
        self.mu = mu
        self.nu = nu
        self.eta = eta
        self.codes_after = codes_after

    def weights(
        self, count: int, classes: int = 10, *, several: bool = False
    ) -> tuple[float, float, float]:
        """Return mu, nu and eta for a training set.

        Parameters
        ----------
        count : int
            Number of images.
        classes : int
            Number of classes.
        several : bool
            Whether some image has several labels.

        Examples
        --------
        >>> DSDH(bits=16, mode="paper").weights(5000), DSDH(bits=16).weights(5000)
        ((1.0, 0.1, 55.0), (2000.0, 200.0, 200.0))
        """
        if (self.mode or self.tuned[self.recipe]["mode"]) == "balanced":
            eta = count * math.sqrt(self.bits) / 100
            if self._over_features():
                eta *= SEVERAL_OVER_FEATURES if several else min(1.0, (16 / self.bits) ** 2)
            # The classifier decides bit k while eta |u| < mu |w_k|^2, and the c entries of w_k are
            # of order 1 / max(K, c).
            mu = eta * max(10, classes, self.bits**2 / 50)
            defaults = (mu, mu / 10, eta)
        else:
            defaults = (1.0, 0.1, 55.0)
        given = (self.mu, self.nu, self.eta)
        mu, nu, eta = (d if g is None else g for g, d in zip(given, defaults, strict=True))
        return mu, nu, eta

    def prepare(self, state: State) -> None:
        """Buffers: U, the last outputs; B, the codes; weights of images and of kinds of pairs."""
        super().prepare(state)
        generator = torch.Generator().manual_seed(int(self.seed))
        coins = torch.randint(0, 2, (len(state), self.bits), generator=generator)
        codes = (2.0 * coins - 1).to(state.device)
        state.tensors["changed"] = torch.zeros((), device=state.device)
        if self.mode == "balanced":
            if state.classes.sum(dim=1).max() <= 1:
                state.tensors["weights"] = class_weights(state.classes, self._most_weight())
            state.tensors["kinds"] = pair_weights(state.labels, state.tensors.get("weights"))
            apart = separated_codes(state.classes.shape[1], self.bits, generator).to(codes)
            summed = state.classes.to(codes) @ apart
            codes = torch.where(summed == 0, codes, sgn(summed))
            if self._first_epochs(state):
                state.tensors["epochs"] = torch.zeros((), dtype=torch.int64, device=state.device)
        state.tensors["B"] = codes

    def loss(self, outputs: Tensor, rows: Tensor, state: State) -> dict[str, Tensor]:
        """The terms of the objective that the network sees, for one batch."""
        if self.mode == "authors":
            self._solve_batch(outputs.detach(), rows, state)
        eta: float | Tensor
        _, _, eta = self._weights_of(state)
        codes = state.tensors["B"][rows]
        if self.mode != "balanced":
            return pairwise_parts(outputs, rows, codes, eta, state)
        outputs, kinds = outputs.tanh(), state.tensors["kinds"]
        weights = state.tensors.get("weights")
        if "epochs" in state.tensors:  # a tensor: the number is not read from the device
            eta = eta * (state.tensors["epochs"] >= self._first_epochs(state))
        if weights is None:  # several labels per image: a lower slope is no gain there
            return pairwise_parts(outputs, rows, codes, eta, state, kinds=kinds)
        return pairwise_parts(
            outputs, rows, codes, eta, state, slope=self._slope(), weights=weights, kinds=kinds
        )

    def after_epoch(self, state: State) -> dict[str, float]:
        """W in closed form, then B by coordinate descent, over the whole training set."""
        if "epochs" in state.tensors:
            self._start_codes(state)
        mu, nu, eta = self._weights_of(state)
        outputs, codes, classes = state.tensors["U"], state.tensors["B"], state.classes
        weights = state.tensors.get("weights")
        root = 1.0 if weights is None else weights.sqrt()[:, None]
        classifier = ridge(root * codes, root * classes, nu / mu)  # eq. 15
        if self.mode == "authors":
            changed = state.tensors["changed"] / codes.numel()
            state.tensors["changed"] = torch.zeros_like(changed)
        else:
            # Its weight is in front of both terms of an image, so that no code depends on it.
            pull = classes @ classifier.t() + eta / mu * outputs
            codes = state.tensors["B"] = dcc(codes, classifier, pull)  # eqs. 17, 18
            changed = (codes != sgn(outputs)).float().mean()
        residual = (root * (classes - codes @ classifier)).square().sum()
        classification = mu * residual + nu * classifier.square().sum()
        return {
            "classification": float(classification) / len(state) ** 2,
            "changed_bits": float(changed),
            "codes_per_label": codes_per_label(codes, state.labels),
        }

    def _weights_of(self, state: State) -> tuple[float, float, float]:
        several = self.mode == "balanced" and "weights" not in state.tensors
        return self.weights(len(state), state.classes.shape[1], several=several)

    def _first_epochs(self, state: State) -> int:
        """Return the number of epochs before B starts."""
        if self.codes_after is not None:
            return self.codes_after
        if self.mode != "balanced" or "weights" not in state.tensors or not self._over_features():
            return 0
        return (self.training or self.default_training).epochs // 5

    def _start_codes(self, state: State) -> None:
        """Count the epoch, and start B from the outputs of the network if it is time."""
        state.tensors["epochs"] = state.tensors["epochs"] + 1
        if int(state.tensors["epochs"]) == self._first_epochs(state):
            outputs, classes = state.tensors["U"], state.classes
            sizes = classes.sum(dim=0).clamp(min=1)
            own = classes @ codes_near(classes.t() @ outputs / sizes[:, None])
            state.tensors["B"] = torch.where(own == 0, sgn(outputs).to(own), own)

    def _own_options(self) -> dict[str, Any]:
        """Leave out `codes_after` by default: runs stored before it was an option resume."""
        options = super()._own_options()
        return {name: v for name, v in options.items() if (name, v) != ("codes_after", None)}

    def _slope(self) -> float:
        return min(1.0, 6 / self.bits)  # where codes agree t is K / 2, and settled long before

    def _most_weight(self) -> float:
        return MOST_OVER_FEATURES if self._over_features() else MOST_WEIGHT

    def _over_features(self) -> bool:
        return self.backbone != "auto" and backbone_kind(self.backbone) == "features"

    def _solve_batch(self, outputs: Tensor, rows: Tensor, state: State) -> None:
        """W from the signs of this batch alone, then its B from zero, in at most ten sweeps."""
        mu, nu, eta = self._weights_of(state)
        classes = state.classes[rows]
        classifier = ridge(sgn(outputs), classes, nu / mu)
        pull = classes @ classifier.t() + eta / mu * outputs
        codes = sgn(dcc(torch.zeros_like(outputs), classifier, pull))
        state.tensors["B"][rows] = codes
        state.tensors["changed"] += (codes != sgn(outputs)).sum()

    def _check_options(self, labels: NDArray) -> None:
        super()._check_options(labels)
        if self.mode not in ("paper", "authors", "balanced"):
            raise ValueError(f"mode must be paper, authors or balanced, got {self.mode!r}")
        mu, nu, eta = self.weights(
            len(labels), class_count(labels), several=has_several_labels(labels)
        )
        if self.codes_after is not None:
            check_whole("codes_after", self.codes_after, 0)
        if self.codes_after and (self.mode != "balanced" or has_several_labels(labels)):
            raise ValueError("codes_after needs mode='balanced' and one label per image")
        check_weights(mu=mu, nu=nu)
        check_weights(eta=eta, zero=True)


def class_weights(classes: Tensor, most: float = MOST_WEIGHT) -> Tensor:
    """Weights of images, shape (N,): one over the size of their class, within a factor.

    They are scaled to a mean of 1. Without the limit a step that meets an image of a tiny class is
    all about that image, and a whole network may learn nothing (results/README.md).

    Parameters
    ----------
    classes : Tensor, shape (N, c)
        Zeros, and a one in the column of an image's class; images without one are a class, too.
    most : float
        That factor: how often an image counts for one of the largest class, at most.

    Examples
    --------
    >>> class_weights(torch.eye(2)[[0, 0, 0, 0, 1]])
    tensor([0.6250, 0.6250, 0.6250, 0.6250, 2.5000])
    """
    without = 1 - classes.sum(dim=1, keepdim=True)
    classes = torch.cat([classes, without], dim=1)
    sizes = classes @ classes.sum(dim=0)
    weights = (sizes.max() / sizes).clamp(max=most)
    return weights / weights.mean()


def pair_weights(labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Weights of dissimilar and of similar pairs, shape (2,), that balance the two kinds.

    Half of the number of pairs over the number of pairs of its kind, so that both kinds have equal
    weight in sum. Where images have several labels, the pairs of at most 1,024 images, evenly
    spaced, with all images are counted.

    Parameters
    ----------
    labels : Tensor, shape (N,) or (N, c)
        Class numbers, or zeros and ones.
    weights : Tensor, shape (N,), optional
        Weights of images: a pair has the product of its two.

    Examples
    --------
    >>> pair_weights(torch.tensor([0, 0, 1, 2]))
    tensor([0.8000, 1.3333])
    """
    if weights is None:
        weights = torch.ones(len(labels), device=labels.device)
    if labels.ndim == 1:
        _, member = labels.unique(return_inverse=True)
        sizes = torch.zeros_like(weights).index_add_(0, member, weights)
        alike, every = sizes.square().sum(), weights.sum().square()
    else:
        count = min(len(labels), 1024)
        rows = torch.linspace(0, len(labels) - 1, count, device=labels.device).long()
        parts = [
            weights[part] @ (similarity(labels[part], labels).to(weights.dtype) @ weights)
            for part in rows.split(64)
        ]
        alike, every = torch.stack(parts).sum(), weights[rows].sum() * weights.sum()
    sums = torch.stack([every - alike, alike]).clamp(min=weights.square().mean())
    return every / 2 / sums


def separated_codes(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Codes far apart from each other, shape (count, bits), found greedily.

    Of some thousand random codes each in turn is the one with the smallest sum of e^-distance to
    those before it. Where there are more codes than 2^bits, they repeat about equally often.

    Examples
    --------
    >>> codes = separated_codes(3, 6, torch.Generator().manual_seed(0))
    >>> (6 - codes @ codes.t()) / 2
    tensor([[0., 6., 3.],
            [6., 0., 3.],
            [3., 3., 0.]])
    """
    pool = torch.randint(0, 2, (4096, bits), generator=generator, dtype=torch.float64) * 2 - 1
    return choose_apart(pool, count)


def codes_near(means: Tensor, sweeps: int = 5) -> Tensor:
    """Codes of classes, shape (c, K), that are near to mean outputs and far apart from each other.

    They minimize ``sum_ij e^-d_ij - sum_i b_i . m_i / 5`` by coordinate descent, where d_ij is the
    distance of two codes: each class in turn takes the best of the signs of its mean with any of
    its six least certain bits changed, until no code changes, or for at most `sweeps` sweeps.

    Parameters
    ----------
    means : Tensor, shape (c, K)
        Mean outputs of the classes, within -1 and 1.
    sweeps : int

    Examples
    --------
    >>> codes_near(torch.tensor([[0.9, 0.8, 0.7], [0.9, 0.1, 0.2], [-0.1, -0.6, -0.9]]))
    tensor([[ 1.,  1., -1.],
            [ 1., -1.,  1.],
            [-1., -1., -1.]])
    """
    bits = means.shape[1]
    signs = sgn(means).to(means)
    codes = signs.clone()
    uncertain = means.abs().argsort(dim=1)[:, :6]
    count = uncertain.shape[1]
    place = torch.arange(2**count, device=means.device)[:, None]
    flips = 1 - 2 * (place >> torch.arange(count, device=means.device) & 1).to(means.dtype)
    for _ in range(sweeps):
        before = codes.clone()
        for number, mean in enumerate(means):
            choices = signs[number].repeat(2**count, 1)
            choices[:, uncertain[number]] *= flips
            near = ((choices @ codes.t() - bits) / 2).exp()
            near[:, number] = 0
            codes[number] = choices[(2 * near.sum(dim=1) - choices @ mean / 5).argmin()]
        if torch.equal(codes, before):
            break
    return codes


def codes_per_label(codes: Tensor, labels: Tensor) -> float:
    """Mean number of distinct codes among images with equal labels.

    Parameters
    ----------
    codes : Tensor, shape (N, K)
    labels : Tensor, shape (N,) or (N, c)

    Examples
    --------
    >>> codes = torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    >>> codes_per_label(codes, torch.tensor([0, 0, 1]))
    1.5
    """
    groups = labels.reshape(len(labels), -1).to(codes.dtype)
    kinds = len(torch.unique(groups, dim=0))
    return len(torch.unique(torch.cat([groups, codes], dim=1), dim=0)) / kinds
