"""Boosted decision trees on features with 256 levels, the classifiers of FastH.

A tree of depth D is a complete binary tree in an array: node n has the children 2n + 1
(level <= threshold) and 2n + 2, and the leaves follow the 2^D - 1 nodes. A node that does not
split has the threshold 255.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.utils.parallel import on_every_core

LEVELS = 256
_CANDIDATES = 200  # features considered by a node (LazyBoost)
_KEPT_WEIGHT = 0.99  # fraction of the total weight used to grow a tree (weight trimming)
_ROWS = 256  # samples per block, so that their levels stay in the cache
_ROUNDING = 1e-12  # smaller gains are rounding errors; the weights sum to 1
_LARGEST_VOTE = 5.0  # weight of a tree without errors, which would be infinite

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
) -> Trees:
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
    """
    nodes = 2**depth - 1
    ensemble = Trees(
        features=np.zeros((trees, nodes), np.int32),
        thresholds=np.full((trees, nodes), LEVELS - 1, np.uint8),
        votes=np.zeros((trees, nodes + 1), np.float32),
    )
    weights = importance if importance.any() else np.ones(len(targets))
    weights = weights / weights.sum()
    for t in range(trees):
        signed = weights * targets
        features, thresholds = ensemble.features[t], ensemble.thresholds[t]
        candidates = _draw_features(len(columns), nodes, rng)
        _grow(columns, signed, _heaviest(weights), candidates, features, thresholds)
        leaves = _find_leaves(columns, features, thresholds)
        balance = np.bincount(leaves, signed, nodes + 1)
        edge = float(np.abs(balance).sum())  # correct weight minus wrong weight
        if edge <= 0:
            break
        vote = min(0.5 * np.log1p(2 * edge / max(1 - edge, 1e-12)), _LARGEST_VOTE)
        ensemble.votes[t] = np.where(balance >= 0, vote, -vote)
        weights = weights * np.exp(-targets * ensemble.votes[t].astype(np.float64)[leaves])
        weights /= weights.sum()
    return ensemble


def stack(classifiers: list[Trees]) -> Trees:
    """Stack K classifiers of T trees into arrays of shape (K, T, M)."""
    features, thresholds, votes = zip(*classifiers, strict=True)
    return Trees(np.stack(features), np.stack(thresholds), np.stack(votes))


def vote(levels: Levels, trees: Trees) -> NDArray[np.float32]:
    """Return the outputs (n, K) of trees of shape (K, T, M) for levels (n, d)."""
    outputs = np.zeros((len(levels), len(trees.features)), np.float32)
    on_every_core(lambda rows: _add_votes(levels[rows], *trees, outputs[rows]), len(levels), _ROWS)
    return outputs


def _heaviest(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the samples except the lightest ones, which have 1% of the total weight."""
    order = np.argsort(weights, kind="stable")
    light = int(np.searchsorted(np.cumsum(weights[order]), 1 - _KEPT_WEIGHT))
    return np.sort(order[min(light, len(order) - 1) :])


def _draw_features(count: int, nodes: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw different candidate features for each node, shape (nodes, at most 200)."""
    if count <= _CANDIDATES:
        return np.tile(np.arange(count, dtype=np.int32), (nodes, 1))
    keys = rng.random((nodes, count), np.float32)
    return np.argpartition(keys, _CANDIDATES, axis=1)[:, :_CANDIDATES].astype(np.int32)


@njit(nogil=True, cache=True)
def _grow(
    columns: Levels,
    signed: NDArray[np.float64],
    order: NDArray[np.int64],
    candidates: NDArray[np.int32],
    features: NDArray[np.int32],
    thresholds: Levels,
) -> None:
    """Set the nodes of one tree, each to the split with the lowest weighted error.

    `order` contains the samples in use. It is reordered in place so that the samples of a node are
    contiguous.
    """
    nodes = len(features)
    bounds = np.zeros((2 * nodes + 1, 2), np.int64)
    bounds[0, 1] = len(order)
    weights = np.empty(len(order))
    for node in range(nodes):
        start, stop = bounds[node]
        samples = order[start:stop]
        here = weights[start:stop]
        for i in range(len(samples)):
            here[i] = signed[samples[i]]
        feature, threshold = _best_split(columns, samples, here, candidates[node])
        features[node], thresholds[node] = feature, threshold
        middle = start + _partition(columns[feature], samples, threshold)
        bounds[2 * node + 1] = start, middle
        bounds[2 * node + 2] = middle, stop


@njit(nogil=True, cache=True)
def _best_split(
    columns: Levels,
    samples: NDArray[np.int64],
    weights: NDArray[np.float64],
    candidates: NDArray[np.int32],
) -> tuple[int, int]:
    """Return the feature and threshold of the stump with the lowest weighted error in a node.

    For a stump with different signs on its two sides, the correct weight minus the wrong weight is
    ``|2 left - total|``, where `left` and `total` are sums of weight times target. One histogram
    per feature is therefore sufficient.
    """
    total = weights.sum()
    best, feature, threshold = abs(total) + _ROUNDING, candidates[0], LEVELS - 1
    if best >= np.abs(weights).sum():
        return feature, threshold
    histogram = np.empty(LEVELS)
    for candidate in candidates:
        column = columns[candidate]
        histogram[:] = 0
        for i in range(len(samples)):
            histogram[column[samples[i]]] += weights[i]
        left = 0.0
        for level in range(LEVELS - 1):
            left += histogram[level]
            gain = abs(2 * left - total)
            if gain > best:
                best, feature, threshold = gain, candidate, level
    return feature, threshold


@njit(nogil=True, cache=True)
def _partition(column: Levels, samples: NDArray[np.int64], threshold: int) -> int:
    """Move samples with level <= threshold to the front and return their number."""
    front = 0
    for i in range(len(samples)):
        if column[samples[i]] <= threshold:
            samples[i], samples[front] = samples[front], samples[i]
            front += 1
    return front


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
