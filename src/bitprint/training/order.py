"""In which order an epoch goes through the training images: at random, or class by class."""

from __future__ import annotations

import torch
from torch import Tensor


def balanced_order(labels: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Draw an order of all images in which `per_class` images of one class follow each other.

    Each class is shuffled and cut into groups of `per_class`, the last one maybe smaller. Then the
    classes take turns, one group at a time, in an order that is drawn anew for every epoch: as
    long as no class has run out, a batch of m times `per_class` images holds m classes (or all of
    them). Every image comes exactly once.

    Parameters
    ----------
    labels : Tensor
        (N,) class numbers, or (N, c) zeros and ones; an image of several labels goes with one of
        them, drawn at random, and images without a label are a class of their own.
    per_class : int
        Images of a group.
    generator : torch.Generator
        On the processor.

    Returns
    -------
    Tensor of int64, shape (N,)

    Examples
    --------
    >>> labels = torch.tensor([0, 1, 0, 1, 0, 1])
    >>> order = balanced_order(labels, per_class=2, generator=torch.Generator().manual_seed(0))
    >>> labels[order].tolist()
    [1, 1, 0, 0, 1, 0]
    """
    shuffled = torch.randperm(len(labels), generator=generator)
    classes = _one_class_each(labels.cpu()[shuffled], generator)
    kinds, classes = classes.unique(return_inverse=True)
    turn = torch.randperm(len(kinds), generator=generator)[classes]
    group = _rank_within(classes) // per_class
    return shuffled[torch.argsort(group * len(kinds) + turn, stable=True)]


def _one_class_each(labels: Tensor, generator: torch.Generator) -> Tensor:
    """A class number for every image, shape (N,)."""
    if labels.ndim == 1:
        return labels
    none = labels.sum(dim=1, keepdim=True) == 0
    choices = torch.cat([labels.float(), none.float()], dim=1)
    return torch.multinomial(choices, 1, generator=generator)[:, 0]


def _rank_within(classes: Tensor) -> Tensor:
    """How many images of the same class come earlier, shape (N,)."""
    counts = torch.bincount(classes)
    first = counts.cumsum(dim=0) - counts
    by_class = torch.argsort(classes, stable=True)
    ranks = torch.empty_like(classes)
    ranks[by_class] = torch.arange(len(classes)) - first[classes[by_class]]
    return ranks
