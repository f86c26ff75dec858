"""Boosted decision trees on features with 256 levels, the classifiers of FastH.

A tree of depth D is a complete binary tree in an array: node n has the children 2n + 1
(level <= threshold) and 2n + 2, and the leaves follow the 2^D - 1 nodes. A node that does not
split has the threshold 255.
"""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.parallel import on_every_core, thread_count

LEVELS = 256
_CANDIDATES = 200  # features considered by a node (LazyBoost)
_KEPT_WEIGHT = 0.99  # fraction of the total weight used to grow a tree (weight trimming)
_ROWS = 256  # samples per block, so that their levels stay in the cache
_ROUNDING = 1e-12  # smaller gains are rounding errors; the weights sum to 1
_LARGEST_VOTE = 5.0  # weight of a tree without errors, which would be infinite
_TOGETHER = 4  # features whose histograms are computed together
_WORTH_THREADS = 2000  # samples; the splits of fewer samples are found in one thread
_KEY_SHIFT = 47  # a weight without its last 47 bits: exponent and 5 bits of the mantissa

Levels = NDArray[np.uint8]


class Trees(NamedTuple):
    """Trees of M nodes as arrays: T trees, or K x T trees of K classifiers.

    Attributes
    ----------
    features : ndarray of int32, shape (..., T, M)
    thresholds : ndarray of uint8, shape (..., T, M)
    votes : ndarray of float32, shape (..., T, M + 1)
        Output of a leaf: the weight of the tree times +1 or -1.
    """

    features: NDArray[np.int32]
    thresholds: Levels
    votes: NDArray[np.float32]

    def check(self, features: int) -> None:
        """Raise a ValueError unless these arrays are valid trees on this number of features."""
        *several, nodes = self.features.shape
        kinds = [part.dtype for part in self]
        shapes = [part.shape for part in self[1:]]
        if (
            kinds != [np.int32, np.uint8, np.float32]
            or shapes != [(*several, nodes), (*several, nodes + 1)]
            or self.features.min() < 0
            or self.features.max() >= features
        ):
            raise ValueError(f"invalid decision trees for {features} features")


def level_range(features: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the lowest value of each feature (d,) and its levels per unit, 0 if constant."""
    low, high = features.min(axis=0).astype(np.float64), features.max(axis=0).astype(np.float64)
    width = high - low
    scale = np.divide(LEVELS, width, out=np.zeros_like(width), where=width > 0)
    largest = np.finfo(np.float32).max
    return low.astype(np.float32), np.minimum(scale, largest).astype(np.float32)


def to_levels(
    features: NDArray[np.float32], low: NDArray[np.float32], scale: NDArray[np.float32]
) -> Levels:
    """Quantize features (n, d) to 256 equal bins of the training range."""
    levels = np.empty(features.shape, np.uint8)

    def fill(rows: slice) -> None:
        places = (features[rows].astype(np.float64) - low) * scale
        levels[rows] = np.clip(places, 0, LEVELS - 1)

    on_every_core(fill, len(features), _ROWS)
    return levels


def boost(
    columns: Levels,
    targets: NDArray[np.int8],
    importance: NDArray[np.float64],
    *,
    trees: int,
    depth: int,
    rng: np.random.Generator,
) -> tuple[Trees, NDArray[np.float32]]:
    """Fit ``sgn(sum_t a_t tree_t(x))`` to targets by AdaBoost, with the exponential loss.

    Parameters
    ----------
    columns : ndarray of uint8, shape (d, N)
        Levels, one row per feature.
    targets : ndarray of int8, shape (N,)
        -1 or +1.
    importance : ndarray of float64, shape (N,)
        Weights of the samples in the loss; all zero means equal weights.
    trees, depth : int
        Number of boosting rounds, and of node levels in a tree.
    rng : Generator
        Draws the candidate features of each node.

    Returns
    -------
    Trees
    outputs : ndarray of float32, shape (N,)
        The outputs of the trees for the samples, as returned by `vote`.
    """
    nodes = 2**depth - 1
    ensemble = Trees(
        features=np.zeros((trees, nodes), np.int32),
        thresholds=np.full((trees, nodes), LEVELS - 1, np.uint8),
        votes=np.zeros((trees, nodes + 1), np.float32),
    )
    outputs = np.zeros(len(targets), np.float32)
    weights = importance if importance.any() else np.ones(len(targets))
    weights = weights / weights.sum()
    with ThreadPoolExecutor(thread_count()) as pool:
        for t in range(trees):
            signed = weights * targets
            features, thresholds = ensemble.features[t], ensemble.thresholds[t]
            candidates = _draw_features(len(columns), nodes, rng)
            _grow(columns, signed, _heaviest(weights), candidates, features, thresholds, pool)
            leaves = _find_leaves(columns, features, thresholds)
            balance = np.bincount(leaves, signed, nodes + 1)
            edge = float(np.abs(balance).sum())  # correct weight minus wrong weight
            if edge <= 0:
                break
            vote = min(0.5 * np.log1p(2 * edge / max(1 - edge, 1e-12)), _LARGEST_VOTE)
            ensemble.votes[t] = np.where(balance >= 0, vote, -vote)
            _count_votes(leaves, ensemble.votes[t], targets, outputs, weights)
            weights /= weights.sum()
    return ensemble, outputs


def stack(classifiers: list[Trees]) -> Trees:
    """Stack K classifiers of T trees into arrays of shape (K, T, M)."""
    features, thresholds, votes = zip(*classifiers, strict=True)
    return Trees(np.stack(features), np.stack(thresholds), np.stack(votes))


def vote(levels: Levels, trees: Trees) -> NDArray[np.float32]:
    """Return the outputs (n, K) of trees of shape (K, T, M) for levels (n, d)."""
    outputs = np.zeros((len(levels), len(trees.features)), np.float32)
    on_every_core(lambda rows: _add_votes(levels[rows], *trees, outputs[rows]), len(levels), _ROWS)
    return outputs


@njit(nogil=True, cache=True)
def _heaviest(weights: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Return the samples except the lightest ones, which have 1% of the total weight.

    The weights are positive and sum to 1. Only those near the limit are sorted: the bits of a
    positive number are in the order of the numbers, so the first bits are the bucket of a weight.
    """
    keys = weights.view(np.uint64) >> np.uint64(_KEY_SHIFT)
    totals = np.zeros(1 << (64 - _KEY_SHIFT - 1))
    for i in range(len(weights)):
        totals[keys[i]] += weights[i]
    limit = 0
    lightest = 0.0
    while limit < len(totals) - 1 and lightest + totals[limit] < 1 - _KEPT_WEIGHT:
        lightest += totals[limit]
        limit += 1
    near = np.flatnonzero(keys == np.uint64(limit))
    near = near[np.argsort(weights[near], kind="mergesort")]
    dropped = 0
    while dropped < len(near):
        lightest += weights[near[dropped]]
        if lightest >= 1 - _KEPT_WEIGHT:
            break
        dropped += 1
    keep = keys >= np.uint64(limit)
    keep[near[:dropped]] = False
    if not keep.any():
        keep[np.argmax(weights)] = True
    return np.flatnonzero(keep).astype(np.uint32)


def _draw_features(count: int, nodes: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw different candidate features for each node, shape (nodes, at most 200)."""
    if count <= _CANDIDATES:
        return np.tile(np.arange(count, dtype=np.int32), (nodes, 1))
    keys = rng.random((nodes, count), np.float32)
    return np.argpartition(keys, _CANDIDATES, axis=1)[:, :_CANDIDATES].astype(np.int32)


def _grow(
    columns: Levels,
    signed: NDArray[np.float64],
    order: NDArray[np.uint32],
    candidates: NDArray[np.int32],
    features: NDArray[np.int32],
    thresholds: Levels,
    pool: ThreadPoolExecutor,
) -> None:
    """Set the nodes of one tree, each to the split with the lowest weighted error.

    `order` contains the samples in use. It is reordered in place so that the samples of a node are
    contiguous. The threads divide the candidate features of all nodes of a level.
    """
    nodes, several = candidates.shape
    threads = thread_count() if len(order) >= _WORTH_THREADS else 1
    parts = max(1, min(threads, several // _TOGETHER))
    cuts = np.linspace(0, several / _TOGETHER, parts + 1).astype(int) * _TOGETHER
    cuts[-1] = several
    bounds = np.zeros((2 * nodes + 1, 2), np.int64)
    bounds[0, 1] = len(order)
    weights = signed[order]
    for first in 2 ** np.arange((nodes + 1).bit_length() - 1) - 1:
        level = slice(first, 2 * first + 1)
        work = functools.partial(_best_splits, columns, order, weights, bounds[level])
        of_parts = [
            np.ascontiguousarray(candidates[level, start:stop])
            for start, stop in itertools.pairwise(cuts)
        ]
        others = [pool.submit(work, part) for part in of_parts[1:]]
        found = [work(of_parts[0]), *(other.result() for other in others)]
        gains, chosen, at = (np.stack(each) for each in zip(*found, strict=True))
        best = gains.argmax(axis=0), np.arange(gains.shape[1])
        features[level], thresholds[level] = chosen[best], at[best]
        for node in range(first, 2 * first + 1):
            start, stop = bounds[node]
            samples, here = order[start:stop], weights[start:stop]
            middle = start + _partition(columns[features[node]], samples, here, thresholds[node])
            bounds[2 * node + 1] = start, middle
            bounds[2 * node + 2] = middle, stop


@njit(nogil=True, cache=True)
def _best_splits(
    columns: Levels,
    order: NDArray[np.uint32],
    weights: NDArray[np.float64],
    bounds: NDArray[np.int64],
    candidates: NDArray[np.int32],
) -> tuple[NDArray[np.float64], NDArray[np.int32], Levels]:
    """Return gain, feature and threshold of the stump with the lowest weighted error of each node.

    For a stump with different signs on its two sides, the correct weight minus the wrong weight is
    ``|2 left - total|``, where `left` and `total` are sums of weight times target. One histogram
    per feature is therefore sufficient. Four histograms are computed together, because additions
    to one histogram wait for each other.
    """
    nodes, several = candidates.shape
    gains = np.empty(nodes)
    features = candidates[:, 0].copy()
    thresholds = np.full(nodes, np.uint8(LEVELS - 1))
    histograms = np.empty((LEVELS, _TOGETHER))
    for node in range(nodes):
        samples = order[bounds[node, 0] : bounds[node, 1]]
        here = weights[bounds[node, 0] : bounds[node, 1]]
        total, largest = 0.0, 0.0
        for i in range(len(here)):
            total += here[i]
            largest += abs(here[i])
        gains[node] = abs(total) + _ROUNDING
        if gains[node] >= largest:
            continue
        for c in range(0, several, _TOGETHER):
            # The last features may repeat; a repetition has no larger gain.
            chosen = candidates[node, np.minimum(np.arange(c, c + _TOGETHER), several - 1)]
            _add_up(columns, samples, here, chosen, histograms)
            largest_gains = _largest_gains(histograms, total)
            for k in range(_TOGETHER):
                if largest_gains[k] > gains[node]:
                    gains[node], features[node] = largest_gains[k], chosen[k]
                    left, level = histograms[0, k], 0
                    while level < LEVELS - 2 and abs(2 * left - total) < largest_gains[k]:
                        level += 1
                        left += histograms[level, k]
                    thresholds[node] = level
    return gains, features, thresholds


@njit(nogil=True, cache=True)
def _largest_gains(
    histograms: NDArray[np.float64], total: float
) -> tuple[float, float, float, float]:
    """Return the largest ``|2 left - total|`` of four features over all thresholds."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    best_a, best_b, best_c, best_d = 0.0, 0.0, 0.0, 0.0
    for level in range(LEVELS - 1):
        a += histograms[level, 0]
        b += histograms[level, 1]
        c += histograms[level, 2]
        d += histograms[level, 3]
        best_a = max(best_a, abs(2 * a - total))
        best_b = max(best_b, abs(2 * b - total))
        best_c = max(best_c, abs(2 * c - total))
        best_d = max(best_d, abs(2 * d - total))
    return best_a, best_b, best_c, best_d


@njit(nogil=True, cache=True)
def _add_up(
    columns: Levels,
    samples: NDArray[np.uint32],
    weights: NDArray[np.float64],
    features: NDArray[np.int32],
    histograms: NDArray[np.float64],
) -> None:
    """Add up the weights of samples by level, for four features."""
    a, b = columns[features[0]], columns[features[1]]
    c, d = columns[features[2]], columns[features[3]]
    histograms[:] = 0
    for i in range(len(samples)):
        sample, weight = samples[i], weights[i]
        histograms[a[sample], 0] += weight
        histograms[b[sample], 1] += weight
        histograms[c[sample], 2] += weight
        histograms[d[sample], 3] += weight


@njit(nogil=True, cache=True)
def _partition(
    column: Levels, samples: NDArray[np.uint32], weights: NDArray[np.float64], threshold: int
) -> int:
    """Move samples with level <= threshold and their weights to the front; return their number.

    Both parts stay sorted, so that the levels of the samples are read in the order of the memory.
    """
    others = np.empty(len(samples), np.uint32)
    of_others = np.empty(len(samples))
    front, back = 0, 0
    for i in range(len(samples)):
        sample, weight = samples[i], weights[i]
        if column[sample] <= threshold:
            samples[front], weights[front] = sample, weight
            front += 1
        else:
            others[back], of_others[back] = sample, weight
            back += 1
    samples[front:] = others[:back]
    weights[front:] = of_others[:back]
    return front


@njit(nogil=True, cache=True)
def _count_votes(
    leaves: NDArray[np.int64],
    votes: NDArray[np.float32],
    targets: NDArray[np.int8],
    outputs: NDArray[np.float32],
    weights: NDArray[np.float64],
) -> None:
    """Add the votes of one tree to the outputs, and multiply the weights by their losses."""
    size = np.float64(abs(votes[0]))
    right, wrong = np.exp(-size), np.exp(size)
    for i in range(len(leaves)):
        vote = votes[leaves[i]]
        outputs[i] += vote
        weights[i] *= right if (vote > 0) == (targets[i] > 0) else wrong


@njit(nogil=True, cache=True)
def _find_leaves(
    columns: Levels, features: NDArray[np.int32], thresholds: Levels
) -> NDArray[np.int64]:
    """Return the leaf (0 to M) of each sample in one tree."""
    nodes = len(features)
    leaves = np.empty(columns.shape[1], np.int64)
    for i in range(len(leaves)):
        node = 0
        while node < nodes:
            node = 2 * node + 1 + (columns[features[node], i] > thresholds[node])
        leaves[i] = node - nodes
    return leaves


@njit(nogil=True, cache=True)
def _add_votes(
    levels: Levels,
    features: NDArray[np.int32],
    thresholds: Levels,
    votes: NDArray[np.float32],
    outputs: NDArray[np.float32],
) -> None:
    classifiers, trees, nodes = features.shape
    for k in range(classifiers):
        for t in range(trees):
            for i in range(len(levels)):
                node = 0
                while node < nodes:
                    right = levels[i, features[k, t, node]] > thresholds[k, t, node]
                    node = 2 * node + 1 + right
                outputs[i, k] += votes[k, t, node - nodes]
