"""LFH: latent factor hashing, real-valued codes whose inner products explain the labels."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from bitprint.methods._base import FeatureHasher
from bitprint.methods.anchors import choose_anchors, rbf, squared_distances
from bitprint.methods.discrete import ridge
from bitprint.supervision import similarity

Floats = NDArray[np.float64]


class LFH(FeatureHasher):
    """Supervised hashing with latent factor models (Zhang, Zhang, Li and Guo, SIGIR 2014).

    Images i and j are similar with probability ``sigma(t_ij)``, ``t_ij = u_i . u_j / 2``, and U
    has a Gaussian prior. From the labels alone it is learned to maximise
    ``sum_{i != j} s_ij t_ij - log(1 + exp(t_ij))  -  (N - 1) / (2 beta) ||U||_F^2``;
    new images get it by ridge regression on their features, and its signs are the codes. Those of
    the training images are made so too.

    Parameters
    ----------
    bits : int
        K.
    beta : float
        Variance of the prior on U, per pair that a row takes part in.
    weight : float
        Ridge of the regression, in units of the features' mean squared value: features of any
        scale may be given.
    anchors : int, optional
        Regress on Gaussian similarities to so many random training rows in place of the features.
    iterations : int
        Rounds; each looks at all images against K random ones.
    seed : int
        Seed of U to start from, of the rounds, and of the anchors.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((40, 3))
    >>> side = (features[:, 0] > 0).astype(int)
    >>> codes = LFH(bits=8).fit(features, side).encode(features)
    >>> distances = codes.hamming(codes)
    >>> same = side[:, None] == side
    >>> bool(distances[same].mean() < distances[~same].mean() / 2)
    True
    """

    name = "lfh"
    supervision = "labels"
    reference = "Zhang, Zhang, Li and Guo, SIGIR 2014"

    def __init__(
        self,
        bits: int,
        *,
        beta: float = 30.0,
        weight: float = 1.0,
        anchors: int | None = None,
        iterations: int = 50,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.beta = beta
        self.weight = weight
        self.anchors = anchors
        self.iterations = iterations
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        assert labels is not None
        for option in ("beta", "weight", "iterations"):
            if not getattr(self, option) > 0:
                raise ValueError(f"lfh: {option} must be positive, got {getattr(self, option)}")
        rng = np.random.default_rng(self.seed)
        factors = rng.standard_normal((len(labels), self.bits))
        for _ in range(self.iterations):
            sample = rng.permutation(len(labels))[: self.bits]
            update_others(factors, labels, sample, self.beta)
            update_sample(factors, labels, sample, self.beta)

        if self.anchors is not None:
            self.anchors_ = choose_anchors(features, self.anchors, rng)
            self.variance_ = float(squared_distances(features, self.anchors_).mean()) or 1.0
        inputs = self._inputs(features)
        self.mean_ = inputs.mean(axis=0)
        inputs -= self.mean_
        scale = np.square(inputs).sum() / inputs.shape[1] or 1.0
        self.projections_ = ridge(
            torch.from_numpy(inputs), torch.from_numpy(factors), self.weight * scale
        ).numpy()

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        outputs = (self._inputs(features) - self.mean_) @ self.projections_
        return np.asarray(outputs, np.float32)

    def _inputs(self, features: NDArray[np.float32]) -> Floats:
        """What is regressed on: the features, or their similarities to the anchors."""
        rows = features.astype(float)
        if self.anchors is None:
            return rows
        return np.asarray(rbf(rows, self.anchors_, self.variance_))


def update_others(factors: Floats, labels: NDArray, sample: NDArray, beta: float) -> None:
    """Improve, in place and at once, all rows of U that are not in the sample.

    Against the sampled rows alone they do not depend on each other, and the curvature of their
    likelihood is never sharper than ``U_s' U_s / 8``.

    Parameters
    ----------
    factors : ndarray, shape (N, K)
        U.
    labels : ndarray, shape (N,) or (N, c)
    sample : ndarray of int
        Rows.
    beta : float
    """
    others = np.setdiff1d(np.arange(len(factors)), sample)
    rows, seen = factors[others], factors[sample]
    prior = len(sample) / beta
    missing = similarity(labels[others], labels[sample]) - expit(rows @ seen.T / 2)
    gradient = missing @ seen - prior * rows
    curvature = seen.T @ seen / 8 + prior * np.eye(factors.shape[1])
    factors[others] += np.linalg.solve(curvature, gradient.T).T


def update_sample(factors: Floats, labels: NDArray, sample: NDArray, beta: float) -> None:
    """Improve, in place and one after another, the sampled rows of U against all others.

    No step lowers the log-posterior of all pairs.
    """
    similar = similarity(labels[sample], labels)
    total = factors.T @ factors
    prior = (len(factors) - 1) / beta * np.eye(factors.shape[1])
    for i, s in zip(sample, similar, strict=True):
        row = factors[i].copy()
        missing = s - expit(factors @ row / 2)
        missing[i] = 0
        total -= np.outer(row, row)
        factors[i] += np.linalg.solve(total / 8 + prior, missing @ factors - prior @ row)
        total += np.outer(factors[i], factors[i])
