"""Protocol of unseen classes: train on most classes, search in the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.data.protocols import Split, generic_split
from bitprint.supervision import check_labels, class_matrix

UNSEEN_SHARE = 0.25
"""Share of the classes that are excluded from training."""


@dataclass(frozen=True, eq=False, repr=False)
class UnseenSplit(Split):
    """A split whose training images belong to other classes and are not in the database.

    Parameters
    ----------
    queries, training, database, name, seed, map_at
        As in `Split`.

    Examples
    --------
    >>> UnseenSplit([0], [1, 2], [3, 4], name="mine", seed=0)
    Split('mine', seed 0: 1 queries, 2 training, 2 database)
    """

    def __post_init__(self) -> None:
        searched = Split(self.queries, self.database[:0], self.database, self.name, self.seed)
        trained = Split(self.training[:0], self.training, self.training, self.name, self.seed)
        for part, split in (("queries", searched), ("training", trained), ("database", searched)):
            object.__setattr__(self, part, getattr(split, part))
        if np.isin(self.training, np.concatenate([self.queries, self.database])).any():
            raise ValueError(f"{self.name}: training images must not be queries or in the database")


def unseen_split(
    labels: ArrayLike,
    protocol: int,
    seed: int = 0,
    *,
    name: str = "images",
    label_names: Sequence[str] | None = None,
) -> UnseenSplit:
    """Exclude a quarter of the classes from training and use only them as queries and database.

    The first protocol of Sablayrolles, Douze, Usunier and Jegou, "How should we evaluate
    supervised hashing?", ICASSP 2017. Codes that encode the predicted training class do not help
    here. The unseen classes are drawn at random: a quarter, rounded up, and at least two. Then
    `generic_split` splits both groups: the seen classes give the training set, the unseen classes
    give queries and database. Images with labels of both groups are excluded.

    Parameters
    ----------
    labels : array_like
        (N,) class numbers, or (N, c) zeros and ones.
    protocol : int
        1: train on at most 500 images per seen class. 2: train on all images of seen classes
        except the 10% that `generic_split` selects as queries, which are not used.
    seed : int
    name : str
    label_names : sequence of str, optional
        Names of the classes for error messages.

    Returns
    -------
    UnseenSplit

    Examples
    --------
    >>> unseen_split(np.arange(1000) % 10, protocol=2)
    Split('images/unseen-2', seed 0: 30 queries, 630 training, 270 database)
    """
    labels = check_labels(labels)
    carried = class_matrix(labels).astype(bool)
    classes = np.flatnonzero(carried.any(axis=0))
    if len(classes) < 4:
        raise ValueError(
            f"{name}: the protocol of unseen classes needs at least 4 classes, got {len(classes)}"
        )
    rng = np.random.default_rng(seed)
    count = max(2, math.ceil(UNSEEN_SHARE * len(classes)))
    unseen = np.zeros(carried.shape[1], bool)
    unseen[rng.permutation(classes)[:count]] = True
    seen = _rows_within(carried, ~unseen)
    searched = _rows_within(carried, unseen)
    for rows, kinds in ((seen, ("seen", "unseen")), (searched, ("unseen", "seen"))):
        _check_left(carried, rows, kinds, name, label_names)
    train = generic_split(labels[seen], protocol, seed, name=name, label_names=label_names)
    search = generic_split(labels[searched], protocol, seed, name=name, label_names=label_names)
    return UnseenSplit(
        searched[search.queries],
        seen[train.training],
        searched[search.database],
        f"{name}/unseen-{protocol}",
        seed,
    )


def _check_left(
    carried: NDArray[np.bool_],
    rows: NDArray[np.int64],
    kinds: tuple[str, str],
    name: str,
    label_names: Sequence[str] | None,
) -> None:
    """Raise a ValueError if excluding images with labels of both kinds leaves too few images."""
    own, other = kinds
    left_out = f"{name}: after excluding images that also have {other} classes"
    if len(rows) == 0:
        raise ValueError(f"{left_out}, no image of {own} classes is left")
    left = carried[rows].sum(axis=0)
    lone = np.flatnonzero((left == 1) & (carried.sum(axis=0) > 1))
    if len(lone):
        number = int(lone[0])
        label = number if label_names is None else label_names[number]
        raise ValueError(
            f"{left_out}, class {label!r} has only one image; each class needs at least 2 images"
        )


def _rows_within(carried: NDArray[np.bool_], classes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the rows whose labels are all among these classes."""
    return np.flatnonzero(carried[:, classes].any(axis=1) & ~carried[:, ~classes].any(axis=1))
