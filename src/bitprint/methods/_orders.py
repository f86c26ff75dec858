"""Ordered categories of nearness: the true ones, those of Hamming distances, and how they agree."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from bitprint.supervision import class_matrix, shared_labels

_SAMPLED = 1000  # rows, and others, from whose distances category sizes are estimated


class LabelOrder:
    """Categories by the number of shared labels, from r_max (category 0) down to none.

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
        """Labels fix the categories, whatever the codes."""

    def categories(self, some: Tensor, others: Tensor) -> Tensor:
        """Where rows `others` (m,) truly stand, seen from rows `some` (n,), shape (n, m)."""
        shared: Tensor = shared_labels(self._classes[some], self._classes[others])
        return self._most - shared.long()


class MetricOrder:
    """Categories by Euclidean distance, one for each Hamming distance from 0 to K.

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
        """Make each category as large as that of the present codes is on average."""
        some, others = draw_rows(len(codes), _SAMPLED, _SAMPLED, rng)
        placed = place(distances(codes[some], codes[others]), self.boundaries)
        counts = torch.bincount(placed.ravel(), minlength=len(self.boundaries) + 1)
        self._ends = counts.cumsum(0)[:-1] / placed.numel()

    def categories(self, some: Tensor, others: Tensor) -> Tensor:
        """Where rows `others` (m,) truly stand, seen from rows `some` (n,), shape (n, m)."""
        gaps = torch.cdist(self._rows[some], self._rows[others])
        quantiles = (torch.arange(len(others)) + 0.5) / len(others)
        by_rank = torch.bucketize(quantiles, self._ends, right=True).expand(gaps.shape)
        order = gaps.argsort(dim=1, stable=True)
        return torch.empty_like(order).scatter_(1, order, by_rank)


Order = LabelOrder | MetricOrder


def distances(some: Tensor, others: Tensor) -> Tensor:
    """Hamming distances (n, m) of codes in {-1, +1}, and of relaxed codes in between."""
    return (some.shape[1] - some @ others.t()) / 2


def place(hamming: Tensor, boundaries: Tensor) -> Tensor:
    """Category of each distance: how many boundaries it exceeds."""
    return torch.bucketize(hamming, boundaries)


def misplaced(truth: Tensor, placed: Tensor) -> float:
    """Share of pairs whose two categories differ.

    The loss of OPH is twice their number: over all rows and categories, it counts what is in one
    of the two sets of a category and not in the other.
    """
    return (truth != placed).float().mean().item()


def ordinal_loss(soft: Tensor, categories: Tensor, boundaries: Tensor, sharpness: float) -> Tensor:
    """Mean over pairs of a logistic loss at every boundary.

    A pair of category m should be nearer than the boundaries from m on, and beyond those before:
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
    """Row numbers of two random sets that do not overlap; smaller ones where rows are few."""
    rows = torch.from_numpy(rng.permutation(count))
    cut = min(some, count // 2)
    return rows[:cut], rows[cut : cut + others]
