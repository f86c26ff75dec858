"""BRE: codes whose Hamming distances reconstruct given distances."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.data.inputs import Data
from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.anchors import rbf, squared_distances
from bitprint.supervision import similarity
from bitprint.utils.parallel import on_every_core

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_ROWS = 1024  # rows per block of kernel values in each thread


@register_method
class BRE(FeatureHasher):
    """Binary reconstructive embedding (Kulis & Darrell, NIPS 2009).

    Minimizes ``1/2 sum_ij (d_ij - D_ij / K)^2`` over sampled pairs of training rows, where D is
    the Hamming distance of ``h_k(x) = sgn(sum_q W_qk kernel(x_qk, x))`` and each bit has different
    random base rows x_qk. One coefficient at a time is set to its optimal value. As a function of
    one coefficient the objective is piecewise constant, so the line search is exact.

    Rows are first centered and scaled to unit length. Kernel values are centered as well, because
    the bits have no offset: a Gaussian kernel is positive, so all rows would start with equal bits.

    Parameters
    ----------
    bits : int
        K.
    targets : {"labels", "metric"}
        d_ij. "labels": 0 for rows that share a label and 1 for others. "metric": half the squared
        distance of the rows, divided by the largest distance; this option uses no labels.
    kernel : {"linear", "rbf"}
        The variance of "rbf" is the mean squared distance of the training rows.
    bases : int
        Number of base rows per bit.
    points : int
        Number of training rows used, drawn at random.
    partners : float
        Fraction of these rows that each row is paired with.
    sweeps : int
        Maximum number of passes over the bits; a pass updates one random coefficient per bit.
    tolerance : float
        Stop when a pass decreases the mean loss per pair by less than this value. 2e-5 is a
        decrease of 1 over 50,000 pairs, as in the authors' toolbox.
    seed : int
        Seed of rows, pairs, bases, initial coefficients and the order of the search.

    Attributes
    ----------
    bases_ : ndarray, shape (B, d)
        The distinct base rows, centered and scaled.
    weights_ : ndarray, shape (B, K)
        W; zero if a row is not a base of a bit.
    mean_, centre_ : ndarray, shapes (d,) and (B,)
        Training means of the features and of the kernel values.
    variance_ : float

    Examples
    --------
    >>> features = np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]])
    >>> hasher = BRE(2, partners=1.0).fit(features, [0, 0, 1, 1])
    >>> hasher.encode(features).hamming(hasher.encode(features)).tolist()
    [[0, 0, 2, 2], [0, 0, 2, 2], [2, 2, 0, 0], [2, 2, 0, 0]]
    """

    name = "bre"
    supervision = "labels"
    reference = "Kulis & Darrell, NIPS 2009"

    def __init__(
        self,
        bits: int,
        *,
        targets: Literal["labels", "metric"] = "labels",
        kernel: Literal["linear", "rbf"] = "linear",
        bases: int = 50,
        points: int = 1000,
        partners: float = 0.05,
        sweeps: int = 500,
        tolerance: float = 2e-5,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.targets = targets
        self.kernel = kernel
        self.bases = bases
        self.points = points
        self.partners = partners
        self.sweeps = sweeps
        self.tolerance = tolerance
        self.seed = seed

    def _check_labels(self, data: Data, labels: ArrayLike | None, count: int) -> NDArray | None:
        return None if self.targets == "metric" else super()._check_labels(data, labels, count)

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        self._check_options()
        rng = np.random.default_rng(self.seed)
        chosen = rng.permutation(len(features))[: self.points]
        self.mean_ = features.mean(axis=0, dtype=np.float64)
        rows = self._prepare(features[chosen])
        self.variance_ = float(squared_distances(rows, rows).mean()) or 1.0
        i, j = draw_pairs(len(rows), self.partners, rng)
        if labels is None:
            distances = half_squared_distances(rows, i, j)
        else:
            distances = 1.0 - similarity(labels[chosen], labels[chosen])[i, j]
        kernel = self._compare(rows, rows)
        centre = kernel.mean(axis=0)
        search = Search(kernel - centre, i, j, distances, self.bits, self.bases, rng)
        self._descend(search, rng)
        used, columns = np.unique(search.bases, return_inverse=True)
        self.bases_, self.centre_ = rows[used], centre[used]
        self.weights_ = np.zeros((len(used), self.bits))
        for k, of_bit in enumerate(columns.reshape(search.bases.shape)):
            self.weights_[of_bit, k] = search.weights[k]

    def _descend(self, search: Search, rng: np.random.Generator) -> None:
        before = search.objective()
        for _ in range(self.sweeps):
            for k in range(self.bits):
                search.improve(k, int(rng.integers(search.bases.shape[1])))
            after = search.objective()
            if before - after <= self.tolerance * len(search.i):
                break
            before = after

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs = np.empty((len(features), self.weights_.shape[1]), np.float32)

        def fill(part: slice) -> None:
            rows = self._prepare(features[part])
            outputs[part] = (self._compare(rows, self.bases_) - self.centre_) @ self.weights_

        on_every_core(fill, len(features), _ROWS)
        return outputs

    def _prepare(self, features: NDArray[np.float32]) -> Floats:
        """Center rows and scale them to unit length; a row equal to the mean becomes zero."""
        rows = features - self.mean_
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0))

    def _compare(self, rows: Floats, bases: Floats) -> Floats:
        linear = self.kernel == "linear"
        return np.asarray(rows @ bases.T if linear else rbf(rows, bases, self.variance_))

    def _check_options(self) -> None:
        if self.targets not in ("labels", "metric"):
            raise ValueError(f"targets must be labels or metric, got {self.targets!r}")
        if self.kernel not in ("linear", "rbf"):
            raise ValueError(f"kernel must be linear or rbf, got {self.kernel!r}")
        if self.bases < 1 or self.points < 2:
            raise ValueError("bases must be at least 1 and points at least 2")
        if not 0 < self.partners <= 1:
            raise ValueError(f"partners must be > 0 and <= 1, got {self.partners}")


class Search:
    """Coefficients of all bits and the resulting Hamming distances of the pairs.

    Parameters
    ----------
    kernel : ndarray, shape (n, n)
        Kernel matrix of all training rows.
    i, j : ndarray of int64, shape (P,)
        Pairs of rows.
    targets : ndarray, shape (P,)
        d, the distances to reconstruct.
    bits, bases : int
        K, and the number of base rows per bit.
    rng : Generator

    Attributes
    ----------
    bases : ndarray of int64, shape (K, s)
        Row numbers of the bases.
    weights : ndarray, shape (K, s)
        Transpose of W.
    signs : ndarray of bool, shape (K, n)
        Bits of the rows.
    distances : ndarray of int64, shape (P,)
        Hamming distances of the pairs.
    """

    def __init__(
        self,
        kernel: Floats,
        i: Ints,
        j: Ints,
        targets: Floats,
        bits: int,
        bases: int,
        rng: np.random.Generator,
    ) -> None:
        self.kernel, self.i, self.j, self.targets = kernel, i, j, targets
        self.bases = np.stack([rng.permutation(len(kernel))[:bases] for _ in range(bits)])
        self.weights = 0.001 * rng.standard_normal(self.bases.shape)
        self.signs = np.stack([self._outputs(k) >= 0 for k in range(bits)])
        self.distances = sum(self._differ(signs).astype(np.int64) for signs in self.signs)

    def objective(self) -> float:
        """Return half the sum of squared errors of the reconstructed distances."""
        errors = self.targets - self.distances / len(self.bases)
        return 0.5 * float(errors @ errors)

    def improve(self, k: int, q: int) -> None:
        """Set coefficient q of bit k to its optimal value if that decreases the objective."""
        bits = len(self.bases)
        present = self._differ(self.signs[k])
        rest = self.distances - present
        # Objective if this bit differs minus objective if it is equal.
        costs = ((2 * rest + 1) / bits - 2 * self.targets) / (2 * bits)
        slopes = self.kernel[:, self.bases[k, q]]
        offsets = self._outputs(k) - self.weights[k, q] * slopes
        values, totals = line_search(offsets, slopes, self.i, self.j, costs)
        best = values[np.argmin(totals)]
        signs = offsets + best * slopes >= 0
        differ = self._differ(signs)
        if costs[differ].sum() < costs[present].sum():
            self.weights[k, q] = best
            self.signs[k] = signs
            self.distances = rest + differ

    def _outputs(self, k: int) -> Floats:
        return np.asarray(self.kernel[:, self.bases[k]] @ self.weights[k])

    def _differ(self, signs: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.asarray(signs[self.i] != signs[self.j])


def line_search(
    offsets: Floats, slopes: Floats, i: Ints, j: Ints, costs: Floats
) -> tuple[Floats, Floats]:
    """Return the total cost of the pairs that differ in each interval of a coefficient w.

    The bit of row a is ``offsets_a + w slopes_a >= 0``; it changes at the threshold
    ``w = -offsets_a / slopes_a``. A pair changes at the thresholds of its two rows, so two
    bincounts and a cumulative sum give all totals.

    Returns
    -------
    values : ndarray, shape (m + 1,)
        One coefficient in each interval between the m thresholds, ascending.
    totals : ndarray, shape (m + 1,)
        Total cost of each interval; infinite if the interval contains no floating-point number.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        thresholds = -offsets / slopes
    flips = np.isfinite(thresholds)
    order = np.flatnonzero(flips)[np.argsort(thresholds[flips], kind="stable")]
    count = len(order)
    ranks = np.full(len(offsets), count)
    ranks[order] = np.arange(count)
    leftmost = np.where(flips, slopes < 0, offsets >= 0)
    differ = leftmost[i] != leftmost[j]
    change = np.where(differ, -costs, costs)
    first, second = np.minimum(ranks[i], ranks[j]), np.maximum(ranks[i], ranks[j])
    steps = np.bincount(first, change, count + 1) - np.bincount(second, change, count + 1)
    totals = costs[differ].sum() + np.concatenate([[0.0], np.cumsum(steps[:count])])
    if count == 0:
        return np.zeros(1), totals
    sorted_ = thresholds[order]
    margins = 1e-6 * np.maximum(1, np.abs(sorted_[[0, -1]]))
    middles = sorted_[:-1] + np.diff(sorted_) / 2
    totals[1:-1][(middles <= sorted_[:-1]) | (middles >= sorted_[1:])] = np.inf
    values = np.concatenate([[sorted_[0] - margins[0]], middles, [sorted_[-1] + margins[1]]])
    return values, totals


def draw_pairs(count: int, share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw ordered pairs: each row with the same number of distinct other rows."""
    partners = min(max(1, round(share * count)), count - 1)
    steps = 1 + rng.random((count, count - 1)).argsort(axis=1)[:, :partners]
    i = np.repeat(np.arange(count), partners)
    return i, (i + steps.ravel()) % count


def half_squared_distances(rows: Floats, i: Ints, j: Ints) -> Floats:
    """Return half the squared distances of pairs of rows, divided by the largest distance."""
    distances = squared_distances(rows, rows)
    return np.asarray(distances[i, j] / (distances.max() or 1.0))
