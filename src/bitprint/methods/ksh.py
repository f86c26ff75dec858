"""KSH: supervised hashing with kernels, greedily bit by bit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.anchors import choose_anchors, rbf, squared_distances
from bitprint.supervision import similarity
from bitprint.utils.parallel import thread_count

Floats = NDArray[np.float64]

_STEPS, _HALVINGS = 500, 50  # maximum number of steps per bit, and of halvings per step
_TOLERANCE = 1e-2  # stop at this change of the smooth objective per row
_ROWS = 2048  # converted to float64 at a time


@register_method
class KSH(FeatureHasher):
    """Kernel-based supervised hashing (Liu, Wang, Ji, Jiang and Chang, CVPR 2012).

    Minimizes ``|| H H' / K - S ||_F^2`` with ``H = sgn(Phi A)`` over A, so that inner products of
    codes match the label similarity S. Phi contains the Gaussian similarities to a few training
    rows, the anchors, minus their training means. The variance of the kernel is the mean squared
    distance to the anchors, so features need no scaling.

    The bits are learned greedily. Bit k maximizes ``h' R h``, where the residual R is ``K S`` minus
    the contribution of the previous bits. The maximization starts from an eigenvector; gradient
    steps with a smooth sign function follow and are kept if they improve the bit.

    Parameters
    ----------
    bits : int
        K.
    anchors : int
        m, the number of random training rows used as anchors. The authors use 300; 500 increase
        the MAP on held-out images of CIFAR-10 by .02 at a higher cost.
    labelled : int
        Maximum number of distinct label sets, because S is stored between label sets. With one
        label per image there are few sets, and all N rows are used. If there are more sets, the
        method uses this number of random rows only.
    seed : int
        Seed of the anchors and of the random rows.

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
        distances /= -2 * self.variance_
        kernel = np.exp(distances, out=distances)
        self.mean_ = kernel.mean(axis=0)

        sets = np.unique(labels, axis=0)
        if len(sets) > self.labelled:
            rows = rng.permutation(len(labels))[: self.labelled]
            kernel, labels = kernel[rows], labels[rows]
        kernel -= self.mean_
        phi = kernel.astype(np.float32)
        del distances, kernel
        self.projections_ = learn(phi, labels, self.bits)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        kernel = rbf(features.astype(float), self.anchors_.astype(float), self.variance_)
        return np.asarray((kernel - self.mean_) @ self.projections_, np.float32)


class Residual:
    """The residual ``R = K S - H H'`` of K S after the previous bits, as a linear operator.

    S is +1 if two rows share a label and -1 otherwise. Rows with the same labels have equal rows
    in S, so S is stored between distinct label sets only.

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
        self._sums = csr_array(self._member.T)
        self._similar = bits * (2.0 * similarity(sets, sets) - 1)
        # H in two orders, so that all products read it along its rows.
        self._by_bit = np.empty((bits, len(labels)), np.int8)
        self._by_row = np.empty((len(labels), bits), np.int8)
        self._count = 0

    @property
    def codes(self) -> Floats:
        """H, the previous bits, shape (l, k)."""
        return self._by_bit[: self._count].T.astype(float)

    def __matmul__(self, vector: Floats) -> Floats:
        """Return R times a vector (l,)."""
        product: Any = self._member @ (self._similar @ (self._sums @ vector))
        return np.asarray(product - _times_signs(self._by_row, self._agreement(vector)))

    def form(self, vector: Floats) -> float:
        """Return ``v' R v`` for a vector v, shape (l,)."""
        sums, agreement = self._sums @ vector, self._agreement(vector)
        return float(sums @ (self._similar @ sums) - agreement @ agreement)

    def between(self, phi: NDArray) -> Floats:
        """Return ``Phi' R Phi``, shape (m, m), for Phi of shape (l, m)."""
        sums: Floats = np.zeros((self._sums.shape[0], phi.shape[1]))
        for rows in _blocks(len(phi)):
            sums += self._sums[:, rows] @ phi[rows].astype(float)
        agreement = transposed_product(phi, self.codes)
        return np.asarray(sums.T @ self._similar @ sums - agreement @ agreement.T)

    def subtract(self, bit: Floats) -> None:
        """Subtract another bit h, shape (l,): R - h h'."""
        self._by_bit[self._count] = bit
        self._by_row[:, self._count] = bit
        self._count += 1

    def _agreement(self, vector: Floats) -> Floats:
        """Return ``H' v``, shape (k,)."""
        product: Floats = _times_signs(self._by_bit[: self._count], vector)
        return product


def learn(phi: NDArray, labels: NDArray, bits: int) -> Floats:
    """Return A, shape (m, K), computed column by column.

    Parameters
    ----------
    phi : ndarray of float32 or float64, shape (l, m)
        Phi. The gradient steps use a rounded copy; all other products are computed in float64.
    labels : ndarray, shape (l,) or (l, c)
    bits : int
        K.
    """
    residual, kernel = Residual(labels, bits), Kernel(phi)
    gram = np.zeros((phi.shape[1], phi.shape[1]))
    for rows in _blocks(len(phi)):
        block = phi[rows].astype(float)
        gram += block.T @ block
    gram.flat[:: len(gram) + 1] += 1e-8 * np.trace(gram) / len(gram)
    quadratic = residual.between(phi)
    projections = []
    for _ in range(bits):
        start = spectral_start(quadratic, gram, len(phi))
        smooth = accelerated_descent(kernel, residual, start)
        first, second = (_sign(product(phi, point)) for point in (start, smooth))
        better = residual.form(second) > residual.form(first)
        bit = second if better else first
        projections.append(smooth if better else start)
        residual.subtract(bit)
        correlation = transposed_product(phi, bit)
        quadratic -= np.outer(correlation, correlation)
    return np.column_stack(projections)


def spectral_start(quadratic: Floats, gram: Floats, count: int) -> Floats:
    """Maximize ``a' Phi' R Phi a`` subject to ``a' Phi' Phi a = l``, without the sign function.

    Parameters
    ----------
    quadratic : ndarray, shape (m, m)
        Phi' R Phi.
    gram : ndarray, shape (m, m)
        Phi' Phi, positive definite.
    count : int
        l.
    """
    last = len(gram) - 1
    _, vectors = eigh(quadratic, gram, subset_by_index=[last, last])
    start: Floats = vectors[:, 0] * np.sqrt(count)
    return start


def smooth_objective(outputs: Floats, residual: Residual) -> tuple[float, Floats]:
    """Return ``g = -v' R v`` with ``v = tanh(z / 2)``, a smooth sign of z = Phi a, and dg / dz."""
    v = np.tanh(outputs / 2)
    product = residual @ v
    return -float(v @ product), -product * (1 - v**2)


class Kernel:
    """Phi for the gradient steps, which read it twice each: rounded to 16 bits, in two orders.

    Parameters
    ----------
    phi : ndarray, shape (l, m)
        Phi, exact.
    """

    def __init__(self, phi: NDArray) -> None:
        self.phi = phi
        largest = float(np.abs(phi).max())
        self._unit = largest / np.iinfo(np.int16).max or 1.0
        self._rows = np.empty(phi.shape, np.int16)
        for rows in _blocks(len(phi)):
            self._rows[rows] = np.rint(phi[rows] / self._unit)
        self._columns = np.ascontiguousarray(self._rows.T)

    def times(self, point: Floats, pool: ThreadPoolExecutor) -> Floats:
        """Return about ``Phi a``, shape (l,)."""
        return self._multiply(self._rows, point, pool)

    def transposed_times(self, right: Floats, pool: ThreadPoolExecutor) -> Floats:
        """Return about ``Phi' b``, shape (m,)."""
        return self._multiply(self._columns, right, pool)

    def _multiply(
        self, rows: NDArray[np.int16], vector: Floats, pool: ThreadPoolExecutor
    ) -> Floats:
        product = np.empty(len(rows), np.float32)
        cuts = np.linspace(0, len(rows), thread_count() + 1).astype(int)
        work = [
            pool.submit(_multiply, rows[start:stop], vector.astype(np.float32), product[start:stop])
            for start, stop in itertools.pairwise(cuts)
        ]
        for part in work:
            part.result()
        return (product * self._unit).astype(np.float64)


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"}, cache=True)
def _times_signs(signs: NDArray[np.int8], vector: Floats) -> Floats:
    """Multiply a matrix, at least as wide as the vector is long, by a vector."""
    product = np.empty(len(signs))
    for i in range(len(signs)):
        row = signs[i]
        total = 0.0
        for j in range(len(vector)):
            total += row[j] * vector[j]
        product[i] = total
    return product


@njit(nogil=True, fastmath={"reassoc", "contract", "nsz"}, cache=True)
def _multiply(
    matrix: NDArray[np.int16], vector: NDArray[np.float32], product: NDArray[np.float32]
) -> None:
    for i in range(len(matrix)):
        row = matrix[i]
        total = np.float32(0)
        for j in range(len(vector)):
            total += np.float32(row[j]) * vector[j]
        product[i] = total


def accelerated_descent(kernel: Kernel, residual: Residual, start: Floats) -> Floats:
    """Improve `start`, shape (m,), by accelerated gradient descent with backtracking.

    The outputs ``z = Phi a`` are updated together with each point a. They are linear in a, so a
    step needs two products with Phi for any number of halvings.
    """
    with ThreadPoolExecutor(thread_count()) as pool:
        return _descend(kernel, residual, start, pool)


def _descend(kernel: Kernel, residual: Residual, start: Floats, pool: ThreadPoolExecutor) -> Floats:
    point = last_point = start
    outputs = last_outputs = product(kernel.phi, start)
    value = -residual.form(np.tanh(outputs / 2))
    momentum, sharpness = 0.0, 1.0
    for _ in range(_STEPS):
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        push = (momentum - 1) / following
        ahead = point + push * (point - last_point)
        ahead_outputs = outputs + push * (outputs - last_outputs)
        ahead_value, slope = smooth_objective(ahead_outputs, residual)
        gradient = kernel.transposed_times(slope, pool)
        change = kernel.times(gradient, pool)
        promise = float(gradient @ gradient) / 2
        last_point, last_outputs, last_value, momentum = point, outputs, value, following
        for _ in range(_HALVINGS):
            outputs = ahead_outputs - change / sharpness
            value = -residual.form(np.tanh(outputs / 2))
            if value <= ahead_value - promise / sharpness:
                break
            sharpness *= 2
        point = ahead - gradient / sharpness
        if abs(value - last_value) <= _TOLERANCE * len(outputs):
            break
    return point


def product(phi: NDArray, point: Floats) -> Floats:
    """Return ``Phi a`` in float64, shape (l,)."""
    outputs = np.empty(len(phi))
    for rows in _blocks(len(phi)):
        outputs[rows] = phi[rows].astype(float) @ point
    return outputs


def transposed_product(phi: NDArray, right: Floats) -> Floats:
    """Return ``Phi' B`` in float64 for B of shape (l,) or (l, k)."""
    total: Floats = np.zeros((phi.shape[1], *right.shape[1:]))
    for rows in _blocks(len(phi)):
        total += phi[rows].astype(float).T @ right[rows]
    return total


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + _ROWS) for start in range(0, count, _ROWS))


def _sign(values: Floats) -> Floats:
    return np.where(values >= 0, 1.0, -1.0)
