"""SPLH: sequential projection learning, each bit mending the pairs that the last one got wrong."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.preprocessing import normalize

from bitprint.methods._base import FeatureHasher
from bitprint.supervision import similarity

Floats = NDArray[np.floating]


class SPLH(FeatureHasher):
    """Sequential projection learning for hashing (Wang, Kumar and Chang, ICML 2010).

    Bit k is the direction w that maximises ``w' M_k w`` with
    ``M_k = X_l' S_k X_l / l + eta X_k' X_k / N``: it agrees with the labels of l rows and spreads
    all N rows. Then pairs that w gets wrong gain weight in S, and w is taken out of X. Rows are
    centred and scaled to unit length first, so that weights grow by no more than `alpha`.

    Parameters
    ----------
    bits : int
        K.
    eta : float
        Weight of the spread of all rows, labelled or not.
    alpha : float
        How much weight a wrong pair gains.
    labelled : int
        l, how many rows are drawn at random for S, an l x l matrix.
    seed : int
        Seed of that draw.

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
    """One direction after another: the top eigenvectors of ``X_l' S X_l / l + spread``.

    Parameters
    ----------
    rows : ndarray, shape (l, d)
        X_l, which stays as it is; only the spread loses the directions found.
    weights : ndarray, shape (l, l)
        S: positive where two rows should agree, negative where they should not, zero elsewhere.
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
        weights = mend(weights, rows @ directions[-1], alpha)
        spread = deflate(spread, directions[-1])
    return np.column_stack(directions)


def mend(weights: Floats, outputs: Floats, alpha: float) -> Floats:
    """Give weight to the pairs whose outputs disagree with S: S - alpha p p' where wrong.

    Examples
    --------
    >>> mend(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.5, -0.5]), alpha=1.0).tolist()
    [[0.0, 1.25], [1.25, 0.0]]
    """
    products = np.outer(outputs, outputs)
    return np.where(products * weights < 0, weights - alpha * products, weights)


def deflate(covariance: Floats, direction: Floats) -> Floats:
    """Covariance, shape (d, d), of rows from which a unit direction has been taken out."""
    along = covariance @ direction
    cross = np.outer(direction, along)
    variance = direction @ along
    return np.asarray(covariance - cross - cross.T + variance * np.outer(direction, direction))
