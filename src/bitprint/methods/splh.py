"""SPLH: sequential projection learning; each bit corrects errors of the previous bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from bitprint.methods._base import FeatureHasher
from bitprint.methods._registry import register_method
from bitprint.supervision import similarity

Floats = NDArray[np.floating]


@register_method
class SPLH(FeatureHasher):
    """Sequential projection learning for hashing (Wang, Kumar and Chang, ICML 2010).

    Bit k is the direction w that maximizes ``w' M_k w`` with
    ``M_k = X_l' S_k X_l / l + eta X_k' X_k / N``. The first term is the agreement with the labels
    of l rows, the second term is the variance of all N rows. After each bit, the weights in S of
    the pairs that w gets wrong increase, and w is projected out of X. Rows are first centered and
    scaled to unit length, so that a weight increases by at most `alpha`.

    Parameters
    ----------
    bits : int
        K.
    eta : float
        Weight of the variance term.
    alpha : float
        Weight increase of a wrong pair.
    labelled : int
        l, the number of random rows in S, an l x l matrix.
    seed : int
        Seed of the random rows.

    Examples
    --------
    >>> features = np.random.default_rng(0).standard_normal((40, 3))
    >>> side = (features[:, 0] > 0).astype(int)
    >>> codes = SPLH(bits=1).fit(features, side).encode(features)
    >>> bool(np.mean(codes.signs()[:, 0] == np.sign(features[:, 0])) > 0.8)
    True
    """

    name = "splh"
    supervision = "labels"
    reference = "Wang, Kumar and Chang, ICML 2010"

    def __init__(
        self,
        bits: int,
        *,
        eta: float = 1.0,
        alpha: float = 1.0,
        labelled: int = 2000,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.eta = eta
        self.alpha = alpha
        self.labelled = labelled
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        assert labels is not None
        if self.eta < 0 or self.alpha < 0:
            raise ValueError(
                f"splh: eta and alpha must not be negative, got {self.eta}, {self.alpha}"
            )
        if self.labelled < 2:
            raise ValueError(f"splh: labelled must be at least 2, got {self.labelled}")
        self.mean_ = features.mean(axis=0, dtype=float).astype(np.float32)
        from sklearn.preprocessing import normalize  # slow to import

        rows = normalize(features - self.mean_)
        chosen = np.random.default_rng(self.seed).permutation(len(rows))[: self.labelled]
        weights = 2 * similarity(labels[chosen], labels[chosen]).astype(np.float32) - 1
        np.fill_diagonal(weights, 0)
        covariance = rows.T @ rows / len(rows)
        self.projections_ = sequential_projections(
            rows[chosen], weights, self.eta * covariance, self.alpha, self.bits
        )

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray((features - self.mean_) @ self.projections_, np.float32)


def sequential_projections(
    rows: Floats, weights: Floats, spread: Floats, alpha: float, bits: int
) -> Floats:
    """Return K directions: in turn, the top eigenvector of ``X_l' S X_l / l + spread``.

    Parameters
    ----------
    rows : ndarray, shape (l, d)
        X_l. The directions are projected out of the spread only.
    weights : ndarray, shape (l, l)
        S: positive if two rows should agree, negative if they should differ, else zero.
    spread : ndarray, shape (d, d)
        eta times the covariance of all rows.
    alpha : float
    bits : int

    Returns
    -------
    ndarray, shape (d, bits)
        Unit columns.
    """
    top = rows.shape[1] - 1
    directions = []
    for _ in range(bits):
        agreement = rows.T @ (weights @ rows) / len(rows)
        _, vectors = eigh(agreement + spread, subset_by_index=[top, top])
        directions.append(vectors[:, 0])
        weights = reweight(weights, rows @ directions[-1], alpha)
        spread = deflate(spread, directions[-1])
    return np.column_stack(directions)


def reweight(weights: Floats, outputs: Floats, alpha: float) -> Floats:
    """Return S - alpha p p' for pairs whose outputs p disagree with S, and S for the others.

    Examples
    --------
    >>> reweight(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.5, -0.5]), alpha=1.0).tolist()
    [[0.0, 1.25], [1.25, 0.0]]
    """
    products = np.outer(outputs, outputs)
    return np.where(products * weights < 0, weights - alpha * products, weights)


def deflate(covariance: Floats, direction: Floats) -> Floats:
    """Return the covariance, shape (d, d), after projecting a unit direction out of the rows."""
    along = covariance @ direction
    cross = np.outer(direction, along)
    variance = direction @ along
    return np.asarray(covariance - cross - cross.T + variance * np.outer(direction, direction))
