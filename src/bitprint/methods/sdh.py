"""SDH: supervised discrete hashing, codes optimized for linear classification."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.anchors import choose_anchors, rbf
from bitprint.methods.discrete import dcc, ridge
from bitprint.supervision import class_matrix

Floats = NDArray[np.float64]

_RIDGE = 1e-2  # keeps P small if anchors are similar


@register_method
class SDH(FeatureHasher):
    """Supervised discrete hashing (Shen, Shen, Liu and Shen, CVPR 2015).

    Minimizes ``sum_i L(y_i, W' b_i) + lambda ||W||^2 + nu sum_i ||b_i - P' phi(x_i)||^2`` over W,
    P and codes b in {-1, +1}^K by alternating minimization. ``phi(x)`` contains the Gaussian
    similarities of x to some training rows, the anchors, and a constant. Rows are first scaled to
    unit length, so features can have any scale. All codes, including those of the training rows,
    are ``sgn(P' phi(x))``.

    Parameters
    ----------
    bits : int
        K.
    loss : {"l2", "hinge"}
        L. "l2" is the squared error of 0/1 labels: W by ridge regression, b by discrete cyclic
        coordinate descent. "hinge" is the multi-class hinge loss of Crammer and Singer, for one
        label per image: W by a linear support vector machine, b in closed form.
    anchors : int
        Number of random training rows used as anchors.
    sigma : float
        Width of the kernel between rows of unit length.
    weight : float
        lambda.
    nu : float
        Weight of the prediction error of P. With the small value of the authors, the codes depend
        almost only on the labels.
    iterations : int
        Number of iterations of the alternating minimization.
    seed : int
        Seed of the anchors and of the initial codes.

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
        for iteration in range(self.iterations):
            outputs = phi @ cho_solve(factor, phi.T @ codes)  # P, then F = Phi P
            # For random codes the optimal W of the hinge loss is 0, a stationary point. The first
            # iteration therefore uses least squares.
            if self.loss == "l2" or iteration == 0:
                codes = least_squares_codes(codes, outputs, classes, self.weight, self.nu)
            else:
                codes = hinge_codes(codes, outputs, labels, self.weight, self.nu)
        self.projections_ = cho_solve(factor, phi.T @ codes)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(self._kernel(features) @ self.projections_, np.float32)

    def _kernel(self, features: NDArray[np.float32]) -> Floats:
        """Return phi, shape (n, m + 1): similarities to the anchors and a constant."""
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
    """Regress labels on codes, then update the codes by coordinate descent.

    Parameters
    ----------
    codes : ndarray, shape (N, K)
        Initial B.
    outputs : ndarray, shape (N, K)
        F = Phi P, the predictions of P.
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
    return np.asarray(dcc(bits, classifier, pull).numpy())


def hinge_codes(
    codes: Floats, outputs: Floats, labels: NDArray, weight: float, nu: float
) -> Floats:
    """Fit a linear SVM to the codes, then return the signs of ``f_i + sum_k (w_y - w_k) / (2 nu)``.

    Parameters and result as in `least_squares_codes`, except `labels`: class numbers (N,).
    """
    from sklearn.svm import LinearSVC  # slow to import

    machine = LinearSVC(
        C=1 / weight, multi_class="crammer_singer", fit_intercept=False, random_state=0
    ).fit(codes, labels)
    classifier = machine.coef_
    if len(classifier) == 1:  # for two classes scikit-learn returns the difference
        classifier = np.concatenate([-classifier, classifier]) / 2
    margins = len(classifier) * classifier - classifier.sum(axis=0)
    rows = np.searchsorted(machine.classes_, labels)
    return np.where(outputs + margins[rows] / (2 * nu) >= 0, 1.0, -1.0)


def _unit_rows(features: NDArray[np.float32]) -> Floats:
    """Scale rows to unit length, except rows of zeros."""
    rows = features.astype(float)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0, 1, lengths))
