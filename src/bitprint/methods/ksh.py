"""KSH: supervised hashing with kernels, one greedy bit after another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from bitprint.methods._base import FeatureHasher
from bitprint.methods.anchors import choose_anchors, rbf, squared_distances
from bitprint.supervision import similarity

Floats = NDArray[np.float64]

_STEPS, _HALVINGS = 500, 50  # at most, per bit and per step
_TOLERANCE = 1e-2  # change of the smooth objective per row at which a bit is done


class KSH(FeatureHasher):
    """Kernel-based supervised hashing (Liu, Wang, Ji, Jiang and Chang, CVPR 2012).

    ``min_A || H H' / K - S ||_F^2`` with ``H = sgn(Phi A)``: inner products of codes follow the
    labels. Phi holds Gaussian similarities to a few training rows, the anchors, minus their
    training means; the kernel's variance is the mean squared distance to the anchors, so that
    features need no scaling. Bit k maximises ``h' R h``, where R is what the earlier bits left of
    ``K S``: first by an eigenvector, then, if it gets better so, by gradient steps on a smooth
    sign.

    Parameters
    ----------
    bits : int
        K.
    anchors : int
        m, how many random training rows the kernel compares with. The authors take 300; more do
        better on held-out images of CIFAR-10 (by .02 with 500), and cost more.
    labelled : int
        How many different label sets there may be, since S between them is kept. Classes are
        few, and then all N rows teach; where images have several labels and the sets are more,
        so many rows are drawn at random and teach alone.
    seed : int
        Seed of the anchors and of that draw.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((60, 2))
    >>> quadrant = (features[:, 0] * features[:, 1] > 0).astype(int)
    >>> codes = KSH(bits=8).fit(features, quadrant).encode(features)
    >>> distances = codes.hamming(codes)
    >>> same = quadrant[:, None] == quadrant
    >>> bool(distances[same].mean() < distances[~same].mean() / 2)
    True
    """

    name = "ksh"
    supervision = "labels"
    reference = "Liu, Wang, Ji, Jiang and Chang, CVPR 2012"

    def __init__(
        self, bits: int, *, anchors: int = 500, labelled: int = 2000, seed: int = 0
    ) -> None:
        self.bits = bits
        self.anchors = anchors
        self.labelled = labelled
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        assert labels is not None
        if not np.ptp(features, axis=0).any():
            raise ValueError("ksh cannot learn: all training rows have the same features")
        if self.labelled < 2:
            raise ValueError(f"ksh: labelled must be at least 2, got {self.labelled}")
        rng = np.random.default_rng(self.seed)
        self.anchors_ = choose_anchors(features, self.anchors, rng)
        distances = squared_distances(features.astype(float), self.anchors_.astype(float))
        self.variance_ = float(distances.mean())
        kernel = np.exp(distances / (-2 * self.variance_))
        self.mean_ = kernel.mean(axis=0)

        sets = np.unique(labels, axis=0)
        if len(sets) > self.labelled:
            rows = rng.permutation(len(labels))[: self.labelled]
            kernel, labels = kernel[rows], labels[rows]
        self.projections_ = _learn(kernel - self.mean_, Residual(labels, self.bits), self.bits)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        kernel = rbf(features.astype(float), self.anchors_.astype(float), self.variance_)
        return np.asarray((kernel - self.mean_) @ self.projections_, np.float32)


class Residual:
    """R = K S - H H', the part of K S that the bits found so far leave, as products with it.

    S is +1 where two rows share a label and -1 elsewhere, so it is the same for rows of the same
    labels. It is kept between the different label sets only, never between all rows.

    Parameters
    ----------
    labels : ndarray, shape (l,) or (l, c)
    bits : int
        K.
    """

    def __init__(self, labels: NDArray, bits: int) -> None:
        sets, member = np.unique(labels, axis=0, return_inverse=True)
        rows = np.arange(len(labels))
        shape = (len(labels), len(sets))
        self._member = csr_array((np.ones(len(labels)), (rows, member.ravel())), shape)
        self._sums = self._member.T
        self._similar = bits * (2.0 * similarity(sets, sets) - 1)
        self._codes = np.empty((len(labels), 0))

    def __matmul__(self, right: Floats) -> Floats:
        """R times a vector (l,) or a matrix (l, m)."""
        product: Any = self._member @ (self._similar @ (self._sums @ right))
        return np.asarray(product - self._codes @ (self._codes.T @ right))

    def subtract(self, bit: Floats) -> None:
        """Take one more bit (l,) out: R - h h'."""
        self._codes = np.column_stack([self._codes, bit])


def _learn(phi: Floats, residual: Residual, bits: int) -> Floats:
    """Find A, shape (m, K), one column after another."""
    gram = phi.T @ phi
    gram.flat[:: len(gram) + 1] += 1e-8 * np.trace(gram) / len(gram)
    projections = []
    for _ in range(bits):
        start = spectral_start(phi, residual, gram)
        smooth = ascend(phi, residual, start)
        first, second = _sign(phi @ start), _sign(phi @ smooth)
        better = second @ (residual @ second) > first @ (residual @ first)
        projections.append(smooth if better else start)
        residual.subtract(second if better else first)
    return np.column_stack(projections)


def spectral_start(phi: Floats, residual: Residual, gram: Floats) -> Floats:
    """Maximise ``a' Phi' R Phi a`` where ``a' Phi' Phi a = l``: the sign is left out.

    Parameters
    ----------
    phi : ndarray, shape (l, m)
    residual : Residual
        R.
    gram : ndarray, shape (m, m)
        Phi' Phi, positive definite.
    """
    quadratic = phi.T @ (residual @ phi)
    last = len(gram) - 1
    _, vectors = eigh(quadratic, gram, subset_by_index=[last, last])
    start: Floats = vectors[:, 0] * np.sqrt(len(phi))
    return start


def smooth_objective(outputs: Floats, residual: Residual) -> tuple[float, Floats]:
    """``g = -v' R v`` with ``v = tanh(z / 2)``, a smooth sign of z = Phi a; and dg / dz, (l,)."""
    v = np.tanh(outputs / 2)
    product = residual @ v
    return -float(v @ product), -product * (1 - v**2)


def ascend(phi: Floats, residual: Residual, start: Floats) -> Floats:
    """Improve `start`, shape (m,), by accelerated gradient steps found by backtracking.

    Each point is carried with its outputs ``z = Phi a``, which move along a line as it does, so
    that a step costs two products with Phi however often its length is halved.
    """
    point = last_point = start
    outputs = last_outputs = phi @ start
    value, _ = smooth_objective(outputs, residual)
    momentum, sharpness = 0.0, 1.0
    for _ in range(_STEPS):
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = (momentum - 1) / following
        ahead = point + push * (point - last_point)
        ahead_outputs = outputs + push * (outputs - last_outputs)
        ahead_value, slope = smooth_objective(ahead_outputs, residual)
        gradient = phi.T @ slope
        change = phi @ gradient
        promise = float(gradient @ gradient) / 2
        last_point, last_outputs, last_value, momentum = point, outputs, value, following
        for _ in range(_HALVINGS):
            outputs = ahead_outputs - change / sharpness
            value, _ = smooth_objective(outputs, residual)
            if value <= ahead_value - promise / sharpness:
                break
            sharpness *= 2
        point = ahead - gradient / sharpness
        if abs(value - last_value) <= _TOLERANCE * len(phi):
            break
    return point


def _sign(values: Floats) -> Floats:
    return np.where(values >= 0, 1.0, -1.0)
