"""SDH: supervised discrete hashing, codes that a linear classifier reads labels from."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.svm import LinearSVC

from bitprint.methods._base import FeatureHasher
from bitprint.methods.anchors import choose_anchors, rbf
from bitprint.methods.discrete import discrete_descent, ridge
from bitprint.supervision import class_matrix

Floats = NDArray[np.float64]

_RIDGE = 1e-2  # on P, so that similar anchors do not make it huge


class SDH(FeatureHasher):
    """Supervised discrete hashing (Shen, Shen, Liu and Shen, CVPR 2015).

    ``min sum_i L(y_i, W' b_i) + lambda ||W||^2 + nu sum_i ||b_i - P' phi(x_i)||^2`` over W, P and
    codes b of -1 and +1, in turns. ``phi(x)`` holds the Gaussian similarities of x to some
    training rows, the anchors, and a constant; rows are scaled to unit length first, so that
    features of any scale may be given. All codes, those of the training rows too, are
    ``sgn(P' phi(x))``.

    Parameters
    ----------
    bits : int
        K.
    loss : {"l2", "hinge"}
        L: squared differences from 0/1 labels, solved by ridge regression and discrete cyclic
        coordinate descent; or the multi-class hinge of Crammer and Singer, solved by a linear
        support vector machine and in closed form, for one label per image.
    anchors : int
        How many random training rows the kernel compares with.
    sigma : float
        Width of the kernel between rows of unit length.
    weight : float
        lambda.
    nu : float
        How much the codes heed what P can reach. So little as the authors' value lets the labels
        decide alone.
    iterations : int
        Turns.
    seed : int
        Seed of the anchors and of the codes to start from.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((40, 3))
    >>> side = (features[:, 0] > 0).astype(int)
    >>> codes = SDH(bits=8).fit(features, side).encode(features)
    >>> distances = codes.hamming(codes)
    >>> same = side[:, None] == side
    >>> bool(distances[same].mean() < distances[~same].mean() / 2)
    True
    """

    name = "sdh"
    supervision = "labels"
    reference = "Shen, Shen, Liu and Shen, CVPR 2015"

    def __init__(
        self,
        bits: int,
        *,
        loss: Literal["l2", "hinge"] = "l2",
        anchors: int = 1000,
        sigma: float = 0.4,
        weight: float = 1.0,
        nu: float = 1e-5,
        iterations: int = 5,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.loss = loss
        self.anchors = anchors
        self.sigma = sigma
        self.weight = weight
        self.nu = nu
        self.iterations = iterations
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        assert labels is not None
        self._check_options(labels)
        rng = np.random.default_rng(self.seed)
        self.anchors_ = choose_anchors(_unit_rows(features), self.anchors, rng)
        phi = self._kernel(features)
        gram = phi.T @ phi
        gram.flat[:: len(gram) + 1] += _RIDGE
        factor = cho_factor(gram)

        classes = class_matrix(labels).astype(float)
        codes = rng.choice([-1.0, 1.0], (len(features), self.bits))
        for turn in range(self.iterations):
            outputs = phi @ cho_solve(factor, phi.T @ codes)  # P, then F = Phi P
            # Random codes say nothing of the labels: the best margin on them is W = 0, where the
            # hinge would stay, so least squares take the first turn.
            if self.loss == "l2" or turn == 0:
                codes = least_squares_codes(codes, outputs, classes, self.weight, self.nu)
            else:
                codes = hinge_codes(codes, outputs, labels, self.weight, self.nu)
        self.projections_ = cho_solve(factor, phi.T @ codes)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(self._kernel(features) @ self.projections_, np.float32)

    def _kernel(self, features: NDArray[np.float32]) -> Floats:
        """phi: similarities to the anchors and a constant, shape (n, m + 1)."""
        similar = rbf(_unit_rows(features), self.anchors_, self.sigma**2)
        return np.column_stack([similar, np.ones(len(features))])

    def _check_options(self, labels: NDArray) -> None:
        if self.loss not in ("l2", "hinge"):
            raise ValueError(f"sdh: loss must be l2 or hinge, got {self.loss!r}")
        if self.loss == "hinge" and labels.ndim == 2:
            raise ValueError(
                "sdh: the hinge loss is for one label per image, given as (N,) class numbers; "
                "use loss='l2' for a label matrix"
            )
        for option in ("sigma", "weight", "nu"):
            if not getattr(self, option) > 0:
                raise ValueError(f"sdh: {option} must be positive, got {getattr(self, option)}")
        if self.iterations < 1:
            raise ValueError(f"sdh: iterations must be at least 1, got {self.iterations}")


def least_squares_codes(
    codes: Floats, outputs: Floats, classes: Floats, weight: float, nu: float
) -> Floats:
    """Regress labels on codes, then descend over the codes bit by bit.

    Parameters
    ----------
    codes : ndarray, shape (N, K)
        B to start from.
    outputs : ndarray, shape (N, K)
        F, what P makes of the features.
    classes : ndarray, shape (N, c)
        Y, zeros and ones.
    weight, nu : float

    Returns
    -------
    ndarray, shape (N, K)
        The new B.
    """
    bits, targets = torch.from_numpy(codes), torch.from_numpy(classes)
    classifier = ridge(bits, targets, weight)
    pull = targets @ classifier.t() + nu * torch.from_numpy(outputs)
    return np.asarray(discrete_descent(bits, classifier, pull).numpy())


def hinge_codes(
    codes: Floats, outputs: Floats, labels: NDArray, weight: float, nu: float
) -> Floats:
    """Separate labels by codes, then take the signs of ``f_i + sum_k (w_y - w_k) / (2 nu)``.

    Parameters and result are those of `least_squares_codes`, but for `labels`: class numbers (N,).
    """
    machine = LinearSVC(
        C=1 / weight, multi_class="crammer_singer", fit_intercept=False, random_state=0
    ).fit(codes, labels)
    classifier = machine.coef_
    if len(classifier) == 1:  # scikit-learn gives two classes as their difference
        classifier = np.concatenate([-classifier, classifier]) / 2
    margins = len(classifier) * classifier - classifier.sum(axis=0)
    rows = np.searchsorted(machine.classes_, labels)
    return np.where(outputs + margins[rows] / (2 * nu) >= 0, 1.0, -1.0)


def _unit_rows(features: NDArray[np.float32]) -> Floats:
    """Rows of length 1; a row of zeros stays as it is."""
    rows = features.astype(float)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0, 1, lengths))
