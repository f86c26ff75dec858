"""LFH: latent factor hashing, a likelihood of label similarity given real-valued factors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.methods.anchors import choose_anchors, rbf, squared_distances
from bitprint.methods.discrete import ridge
from bitprint.supervision import similarity

Floats = NDArray[np.float64]


@register_method
class LFH(FeatureHasher):
    """Supervised hashing with latent factor models (Zhang, Zhang, Li and Guo, SIGIR 2014).

    Images i and j are similar with probability ``sigma(t_ij)``, ``t_ij = u_i . u_j / 2``, and the
    latent factors U have a Gaussian prior. U is learned from the labels by maximizing the
    log-posterior
    ``sum_{i != j} [s_ij t_ij - log(1 + exp(t_ij))]  -  (N - 1) / (2 beta) ||U||_F^2``.
    Ridge regression predicts U from the features, and the signs of the predictions are the codes
    of all images, including the training images.

    Parameters
    ----------
    bits : int
        K.
    beta : float
        Variance of the prior on U, per pair that contains a row.
    weight : float
        Ridge parameter, relative to the mean squared value of the features, so that features can
        have any scale.
    anchors : int, optional
        Use Gaussian similarities to this number of random training rows instead of the features.
    iterations : int
        Number of iterations; each uses the similarities of all images to K random images.
    seed : int
        Seed of the initial U, the random images and the anchors.

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
        """Return the inputs of the regression: features or similarities to the anchors."""
        rows = features.astype(float)
        if self.anchors is None:
            return rows
        return np.asarray(rbf(rows, self.anchors_, self.variance_))


def update_others(factors: Floats, labels: NDArray, sample: NDArray, beta: float) -> None:
    """Update all rows of U outside the sample, in place and in parallel.

    Only their similarities to the sampled rows are used, so the rows are independent. The curvature
    of their log-likelihood is bounded by ``U_s' U_s / 8``.

    Parameters
    ----------
    factors : ndarray, shape (N, K)
        U.
    labels : ndarray, shape (N,) or (N, c)
    sample : ndarray of int
        Row numbers of the sample.
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
    """Update the sampled rows of U sequentially, in place, using all other rows.

    No step decreases the log-posterior of all pairs.
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
