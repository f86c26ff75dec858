"""Order of the training images in an epoch: balanced classes, several views of an image."""

from __future__ import annotations

import torch
from torch import Tensor


def balanced_order(labels: Tensor, per_class: int, generator: torch.Generator) -> Tensor:
    """Draw an order of all images in which `per_class` images of one class are consecutive.

    Each class is shuffled and cut into groups of `per_class`; the last group can be smaller. Then
    the classes take turns, one group at a time, in a random order. Until a class runs out of
    images, a batch of m times `per_class` images contains m classes (or all of them). Every image
    occurs exactly once.

    Parameters
    ----------
    labels : Tensor
        (N,) class numbers, or (N, c) zeros and ones. An image with several labels is assigned to
        one of them at random; images without a label form a separate class.
    per_class : int
        Number of images per group.
    generator : torch.Generator
        A CPU generator.

    Returns
    -------
    Tensor of int64, shape (N,)
        Rows of the images.

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


def repeat_batches(order: Tensor, batch_size: int, views: int) -> Tensor:
    """Repeat every batch of an order, so that each batch contains several views of its images.

    The result is cut into batches of `batch_size` times `views` rows. The rest of the training
    treats the views as different images: each has its own augmentation or noise.

    Parameters
    ----------
    order : Tensor of int64, shape (N,)
    batch_size : int
        Number of different images in a batch.
    views : int

    Returns
    -------
    Tensor of int64, shape (views * N,)

    Examples
    --------
    >>> order = repeat_batches(torch.tensor([4, 0, 2, 1, 3]), batch_size=2, views=2)
    >>> [rows.tolist() for rows in order.split(4)]
    [[4, 0, 4, 0], [2, 1, 2, 1], [3, 3]]
    """
    if views == 1:
        return order
    return torch.cat([rows.repeat(views) for rows in order.split(batch_size)])


def _one_class_each(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return a class number for every image, shape (N,)."""
    if labels.ndim == 1:
        return labels
    none = labels.sum(dim=1, keepdim=True) == 0
    choices = torch.cat([labels.float(), none.float()], dim=1)
    return torch.multinomial(choices, 1, generator=generator)[:, 0]


def _rank_within(classes: Tensor) -> Tensor:
    """Count the earlier images of the same class, shape (N,)."""
    counts = torch.bincount(classes)
    first = counts.cumsum(dim=0) - counts
    by_class = torch.argsort(classes, stable=True)
    ranks = torch.empty_like(classes)
    ranks[by_class] = torch.arange(len(classes)) - first[classes[by_class]]
    return ranks
