"""Ordered categories of similarity for OPH, and losses that compare them with Hamming distances."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.supervision import class_matrix, shared_labels

_SAMPLED = 1000  # rows and other rows used to estimate category sizes


class LabelOrder:
    """Categories by the number of shared labels, from r_max (category 0) to 0.

    Parameters
    ----------
    labels : ndarray, shape (N,) or (N, c)
    bits : int
        K. The boundary between r - 1 and r shared labels is a distance of K / (4 r).
    """

    def __init__(self, labels: NDArray, bits: int) -> None:
        self._classes = torch.from_numpy(class_matrix(labels))
        self._most = int(self._classes.sum(dim=1).max())
        self.boundaries = bits / (4.0 * torch.arange(self._most, 0, -1))

    def resize(self, codes: Tensor, rng: np.random.Generator) -> None:
        """Do nothing: the categories depend on the labels only."""

    def categories(self, some: Tensor, others: Tensor) -> Tensor:
        """Return the true category of each pair of rows `some` (n,) and `others` (m,), (n, m)."""
        shared: Tensor = shared_labels(self._classes[some], self._classes[others])
        return self._most - shared.long()


class MetricOrder:
    """Categories by Euclidean distance, one per Hamming distance from 0 to K.

    Parameters
    ----------
    rows : Tensor, shape (N, d)
    bits : int
        K.
    """

    def __init__(self, rows: Tensor, bits: int) -> None:
        self._rows = rows
        self.boundaries = torch.arange(bits) + 0.5
        self._ends = torch.linspace(0, 1, bits + 2)[1:-1]

    def resize(self, codes: Tensor, rng: np.random.Generator) -> None:
        """Set the size of each category to its average size for the current codes."""
        some, others = draw_rows(len(codes), _SAMPLED, _SAMPLED, rng)
        placed = place(distances(codes[some], codes[others]), self.boundaries)
        counts = torch.bincount(placed.ravel(), minlength=len(self.boundaries) + 1)
        self._ends = counts.cumsum(0)[:-1] / placed.numel()

    def categories(self, some: Tensor, others: Tensor) -> Tensor:
        """Return the true category of each pair of rows `some` (n,) and `others` (m,), (n, m)."""
        gaps = torch.cdist(self._rows[some], self._rows[others])
        quantiles = (torch.arange(len(others)) + 0.5) / len(others)
        by_rank = torch.bucketize(quantiles, self._ends, right=True).expand(gaps.shape)
        order = gaps.argsort(dim=1, stable=True)
        return torch.empty_like(order).scatter_(1, order, by_rank)


Order = LabelOrder | MetricOrder


def distances(some: Tensor, others: Tensor) -> Tensor:
    """Return Hamming distances (n, m) of codes in {-1, +1}, or of relaxed codes in between."""
    return (some.shape[1] - some @ others.t()) / 2


def place(hamming: Tensor, boundaries: Tensor) -> Tensor:
    """Return the category of each distance: the number of boundaries that it exceeds."""
    return torch.bucketize(hamming, boundaries)


def misplaced(truth: Tensor, placed: Tensor) -> float:
    """Return the fraction of pairs whose two categories differ.

    The loss of OPH is twice the number of these pairs: each pair is counted once in its true
    category and once in its Hamming category.
    """
    return (truth != placed).float().mean().item()


def ordinal_loss(soft: Tensor, categories: Tensor, boundaries: Tensor, sharpness: float) -> Tensor:
    """Return the mean over pairs of a logistic loss at every boundary.

    The distance of a pair in category m should be below boundary m and all later boundaries, and
    above all earlier ones:
    ``sum_m log(1 + exp(-s_m sharpness (b_m - D)))``, s_m = +1 if category <= m and -1 otherwise.

    Parameters
    ----------
    soft : Tensor, shape (n, m)
        Relaxed distances D.
    categories : Tensor of int64, shape (n, m)
    boundaries : Tensor, shape (M,)
    sharpness : float
        tau.

    Examples
    --------
    >>> far, near = torch.tensor([[9.0]]), torch.tensor([[0]])
    >>> round(ordinal_loss(far, near, torch.tensor([3.0]), sharpness=1.0).item(), 2)
    6.0
    """
    total = torch.zeros_like(soft)
    for m, boundary in enumerate(boundaries):
        excess = sharpness * (soft - boundary)
        total = total + functional.softplus(torch.where(categories <= m, excess, -excess))
    return total.mean()


def draw_rows(
    count: int, some: int, others: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Draw the row numbers of two disjoint random sets, smaller if there are few rows."""
    rows = torch.from_numpy(rng.permutation(count))
    cut = min(some, count // 2)
    return rows[:cut], rows[cut : cut + others]
