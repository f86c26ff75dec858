"""Protocols: seeded, disjoint splits of an image set into queries, training set and database."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.data.images import ImageSet
from bitprint.data.split import Rows
from bitprint.data.split import Split as Split
from bitprint.supervision import check_labels

QUERY_SHARE = 0.1
MOST_QUERIES = 100
MOST_TRAINING = 500
"""Rules of `generic_split` per class: share of queries, most queries, most training images."""

MAP_AT_SEVERAL_LABELS = 5_000
"""MAP cutoff for multi-label sets with a stored split."""


def split_for(images: ImageSet, protocol: int, seed: int = 0) -> Split:
    """Split an image set by its stored split, its published protocol, or the generic rule.

    Parameters
    ----------
    images : ImageSet
        A set with a `split` is split by `own_split`, a set whose `protocol` is "cifar10" or
        "nuswide" by `cifar10_split` or `nuswide_split`, and any other set by `generic_split`.
    protocol : int
        1: small training set. 2: train on all images except the queries.
    seed : int

    Returns
    -------
    Split

    Examples
    --------
    >>> from bitprint.data import load_digits
    >>> digits = load_digits()
    >>> split = split_for(digits, protocol=1)
    >>> split
    Split('digits/1', seed 0: 185 queries, 1612 training, 1612 database)
    >>> split_for(digits, protocol=1, seed=1).fingerprint == split.fingerprint
    False
    """
    if images.split is not None:
        return own_split(images, protocol, seed)
    if images.protocol == "cifar10" and images.labels is not None:
        return cifar10_split(images.labels, protocol, seed)
    if images.protocol == "nuswide" and images.labels is not None:
        return nuswide_split(images.labels, protocol, seed)
    return generic_split(
        images.labels,
        protocol,
        seed,
        count=len(images),
        name=images.name,
        label_names=images.label_names,
    )


def own_split(images: ImageSet, protocol: int = 1, seed: int = 0) -> Split:
    """Return the stored split of an image set, for example from the column `split` of a CSV.

    The training images are part of the database. For multi-label images MAP uses the nearest
    5,000, as in protocol 1 of NUS-WIDE.

    Parameters
    ----------
    images : ImageSet
        A set with a `split`.
    protocol : int
        1: the split as stored. 2: train on the whole database.
    seed : int
        Stored in the split; it does not change the split.

    Examples
    --------
    >>> pixels = np.zeros((4, 8, 8, 3), np.uint8)
    >>> own_split(ImageSet(pixels, split=["train", "query", "database", "train"], name="mine"))
    Split('mine/1', seed 0: 1 queries, 2 training, 3 database)
    """
    small = _is_small(protocol)
    parts = np.asarray(images.split)
    for part in ("query", "train"):
        if part not in parts:
            raise ValueError(
                f"{images.name}: no image has the split {part}; add some in the column split"
            )
    database = np.flatnonzero(parts != "query")
    several = images.labels is not None and images.labels.ndim == 2
    return Split(
        np.flatnonzero(parts == "query"),
        np.flatnonzero(parts == "train") if small else database,
        database,
        f"{images.name}/{protocol}",
        seed,
        MAP_AT_SEVERAL_LABELS if several else None,
    )


def cifar10_split(labels: ArrayLike, protocol: int, seed: int = 0) -> Split:
    """Split CIFAR-10 as in the paper.

    Protocol 1: 100 queries and 500 training images per class; all 59,000 images except the queries
    are the database. Protocol 2: 1,000 queries per class; the other 50,000 images are both
    training set and database. MAP is over the whole database.
    """
    labels = check_labels(labels)
    if not np.array_equal(np.sort(labels, axis=0), np.repeat(np.arange(10), 6_000)):
        raise ValueError(
            "the protocols of CIFAR-10 need all 60,000 images, 6,000 per class; "
            "use generic_split for a part of it"
        )
    small = _is_small(protocol)
    return make_split(
        labels,
        queries_per_class=100 if small else 1_000,
        training_per_class=500 if small else None,
        seed=seed,
        name=f"cifar10/{protocol}",
    )


def nuswide_split(labels: ArrayLike, protocol: int, seed: int = 0) -> Split:
    """Split the 195,834 images of NUS-WIDE's 21 most frequent concepts as in the paper.

    Both protocols use 100 queries per concept, 2,100 in total, by the rule of `make_split`; the
    other 193,734 images are the database. Protocol 1 trains on 500 images per concept, 10,500 in
    total, and MAP uses the nearest 5,000. Protocol 2 trains on the whole database, and MAP uses
    the nearest 50,000.
    """
    labels = check_labels(labels)
    if labels.shape != (195_834, 21) or labels.sum(axis=0, dtype=np.int64).min() < 5_000:
        raise ValueError(
            "the protocols of NUS-WIDE need all 195,834 images with one of the 21 most frequent "
            f"concepts, got labels of shape {labels.shape}; use generic_split for a part"
        )
    small = _is_small(protocol)
    return make_split(
        labels,
        queries_per_class=100,
        training_per_class=500 if small else None,
        seed=seed,
        name=f"nuswide/{protocol}",
        map_at=5_000 if small else 50_000,
    )


def make_split(
    labels: ArrayLike,
    *,
    queries_per_class: int,
    training_per_class: int | None = None,
    seed: int = 0,
    name: str = "images",
    map_at: int | None = None,
) -> Split:
    """Draw queries and training images for each class; all images except the queries are database.

    For multi-label images, classes are processed from the rarest to the most frequent (ties in
    column order). Each class draws from its images that are not drawn yet, so that no image is
    drawn twice and every class gets exactly its number.

    Parameters
    ----------
    labels : array_like
        (N,) class numbers, or (N, c) zeros and ones.
    queries_per_class : int
    training_per_class : int or None
        If None, train on the whole database.
    seed : int
    name : str
    map_at : int or None
        As in `Split`.

    Returns
    -------
    Split

    Examples
    --------
    >>> make_split(np.arange(30) % 3, queries_per_class=2, training_per_class=5)
    Split('images', seed 0: 6 queries, 15 training, 24 database)
    """
    labels, classes = _numbered(check_labels(labels))
    rng = np.random.default_rng(seed)
    free = np.ones(len(labels), bool)
    totals = _class_totals(labels)
    wanted = np.where(totals > 0, queries_per_class, 0)
    queries = _draw(labels, classes, wanted, free, rng, "queries")
    free[queries] = False
    database = np.flatnonzero(free)
    if training_per_class is None:
        training = database
    else:
        wanted = np.where(totals > 0, training_per_class, 0)
        training = _draw(labels, classes, wanted, free, rng, "training images")
    return Split(queries, training, database, name, seed, map_at)


def generic_split(
    labels: ArrayLike | None,
    protocol: int,
    seed: int = 0,
    *,
    count: int | None = None,
    name: str = "images",
    label_names: Sequence[str] | None = None,
) -> Split:
    """Split any image set; 10% of each class, at most 100 images, become queries.

    Protocol 1 trains on at most 500 images per class, protocol 2 on all images except the queries.
    A multi-label image counts for each of its labels. Images without labels are never queries, but
    a set without any labels is split as a single class. In a multi-label set, a label with a
    single image has no query.

    Parameters
    ----------
    labels : array_like or None
        (N,) class numbers, or (N, c) zeros and ones.
    protocol : int
        1 or 2.
    seed : int
    count : int, optional
        N, required without labels.
    name : str
    label_names : sequence of str, optional
        Names of the classes for error messages.

    Returns
    -------
    Split

    Examples
    --------
    >>> generic_split(np.arange(300) % 3, protocol=1)
    Split('images/1', seed 0: 30 queries, 270 training, 270 database)
    """
    small = _is_small(protocol)
    if labels is None and count is None:
        raise ValueError("count is required to split a set without labels")
    labels = np.zeros(count or 0, np.int64) if labels is None else check_labels(labels, count)
    labels, classes = _numbered(labels)
    totals = _class_totals(labels)
    if totals.sum() == 0:
        raise ValueError(f"{name}: no image has a label, so the set cannot be split by label")
    if labels.ndim == 1 and np.any(totals == 1):
        number = int(classes[np.argmax(totals == 1)])
        small_one = number if label_names is None else label_names[number]
        raise ValueError(
            f"{name}: class {small_one!r} has only one image; "
            "each class needs at least 2 images: add one, or remove the class"
        )
    rng = np.random.default_rng(seed)
    free = np.ones(len(labels), bool)
    shares = np.ceil(QUERY_SHARE * totals).astype(np.int64)
    wanted = np.where(totals > 1, np.minimum(shares, MOST_QUERIES), 0)
    queries = _draw(labels, classes, wanted, free, rng, "queries", count_all_labels=True)
    free[queries] = False
    database = np.flatnonzero(free)
    if small:
        # For class numbers every class has a query, so both totals have the same length.
        left = totals - _class_totals(labels[queries])
        wanted = np.minimum(left, MOST_TRAINING)
        training = _draw(
            labels, classes, wanted, free, rng, "training images", count_all_labels=True
        )
    else:
        training = database
    return Split(queries, training, database, f"{name}/{protocol}", seed)


def check_protocol(protocol: int) -> None:
    """Raise a ValueError unless a protocol is 1 or 2."""
    if protocol not in (1, 2):
        raise ValueError(f"protocol must be 1 or 2, got {protocol!r}")


def _is_small(protocol: int) -> bool:
    check_protocol(protocol)
    return protocol == 1


def _numbered(labels: NDArray) -> tuple[NDArray, NDArray[np.int64]]:
    """Renumber the occurring classes from 0; return the labels and the original numbers."""
    if labels.ndim == 2:
        return labels, np.arange(labels.shape[1])
    classes, numbered = np.unique(labels, return_inverse=True)
    return numbered, classes


def _class_totals(labels: NDArray) -> NDArray[np.int64]:
    totals: NDArray[np.int64] = (
        labels.sum(axis=0, dtype=np.int64) if labels.ndim == 2 else np.bincount(labels)
    )
    return totals


def _draw(
    labels: NDArray,
    classes: NDArray[np.int64],
    wanted: NDArray[np.int64],
    free: NDArray[np.bool_],
    rng: np.random.Generator,
    purpose: str,
    *,
    count_all_labels: bool = False,
) -> Rows:
    """Draw `wanted` free images per class without replacement, rarest class first.

    With `count_all_labels`, images drawn for an earlier class count if they have this label too.
    """
    totals = _class_totals(labels)
    taken = np.zeros(len(labels), bool)
    for number in np.argsort(totals, kind="stable"):
        members = labels[:, number] == 1 if labels.ndim == 2 else labels == number
        need = int(wanted[number])
        if count_all_labels:
            need = max(0, need - int((members & taken).sum()))
        choices = np.flatnonzero(members & free & ~taken)
        if len(choices) < need:
            raise ValueError(
                f"class {classes[number]} has {len(choices)} images left, "
                f"but {need} {purpose} are needed"
            )
        taken[rng.permutation(choices)[:need]] = True
    return np.flatnonzero(taken)
