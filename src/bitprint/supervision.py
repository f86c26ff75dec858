"""Labels as numbers or names; similarity, pairs, triplets and graded relevance."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_labels(
    labels: Any, count: int | None = None, names: Sequence[str] | None = None
) -> NDArray:
    """Validate labels and return them as numbers.

    Parameters
    ----------
    labels : array_like, or a list of lists of str
        One label per image: (N,) class numbers or class names. Several labels per image: an (N, c)
        matrix of 0 and 1, or a list (or set) of names for each image.
    count : int, optional
        Number of images N, if known.
    names : sequence of str, optional
        All class names, in the order of their numbers. Default: the sorted names in `labels`.

    Returns
    -------
    ndarray
        int64 of shape (N,), or uint8 of shape (N, c).

    Examples
    --------
    >>> check_labels([0.0, 2.0, 1.0])
    array([0, 2, 1])
    >>> check_labels([[True, False], [True, True]]).tolist()
    [[1, 0], [1, 1]]
    >>> check_labels(["dog", "cat", "dog"]).tolist()
    [1, 0, 1]
    >>> check_labels([["dog"], ["cat", "dog"], []]).tolist()
    [[0, 1], [1, 1], [0, 0]]
    """
    named = _read_names(labels)
    if named is None:
        numbers = _check_numbers(labels)
    else:
        numbers = _number(named, _vocabulary(named) if names is None else names)
    if count is not None and len(numbers) != count:
        raise ValueError(f"{count} images but {len(numbers)} labels")
    return numbers


def check_both_labels(query_labels: Any, labels: Any) -> tuple[NDArray, NDArray]:
    """Validate the labels of queries and of a database, with common class numbers.

    Examples
    --------
    >>> query_labels, labels = check_both_labels(["dog"], ["cat", "dog", "emu"])
    >>> query_labels.tolist(), labels.tolist()
    ([1], [0, 1, 2])
    """
    named = _read_names(query_labels), _read_names(labels)
    if named[0] is not None and named[1] is not None:
        names = _vocabulary(named[0] + named[1])
        several = any(not isinstance(label, str) for label in named[0] + named[1])
        return _number(named[0], names, several), _number(named[1], names, several)
    for one, (role, other) in zip(
        named, (("query", "database"), ("database", "query")), strict=True
    ):
        if one is not None:
            raise ValueError(
                f"{role} labels are names but {other} labels are numbers; give both as names or "
                "both as numbers"
            )
    numbers = _check_numbers(query_labels), _check_numbers(labels)
    shapes = [each.shape for each in numbers]
    if numbers[0].ndim != numbers[1].ndim:
        raise ValueError(
            "query and database labels must both be class numbers or both be 0/1 matrices, "
            f"got shapes {shapes[0]} and {shapes[1]}"
        )
    if shapes[0][1:] != shapes[1][1:]:
        raise ValueError(
            f"query labels have {shapes[0][1]} classes but database labels have {shapes[1][1]}"
        )
    return numbers


def class_names(labels: Any) -> list[str] | None:
    """Return the sorted names of the classes, or None for labels that are numbers.

    Examples
    --------
    >>> class_names(["dog", "cat", "dog"]), class_names([1, 0, 1])
    (['cat', 'dog'], None)
    """
    named = _read_names(labels)
    return None if named is None else _vocabulary(named)


def _read_names(labels: Any) -> list[Any] | None:
    """Return a name or a tuple of names for each image, or None for labels that are numbers."""
    if labels is None:
        raise ValueError("labels are None; pass one label per image")
    if hasattr(labels, "detach"):
        return None  # tensors contain no strings
    try:
        array = np.asarray(labels)
    except ValueError:  # lists of unequal lengths
        array = np.empty(1, object)
    if array.ndim == 0 or array.dtype.kind in "biuf" or _are_objects(array, Integral):
        return None
    # NumPy converts a list of names and numbers to strings, so the list itself is checked.
    named = []
    for row, label in enumerate(labels if isinstance(labels, list | tuple) else array):
        several = isinstance(label, list | tuple | set | frozenset | np.ndarray)
        if not all(isinstance(name, str) for name in (label if several else [label])):
            raise ValueError(
                "labels must be class numbers, an (N, c) matrix of 0 and 1, class names, or a list "
                f"of names per image; label {row} is {label!r}"
            )
        named.append(tuple(label) if several else label)
    return named


def _are_objects(array: NDArray, kind: type) -> bool:
    return array.dtype == object and all(isinstance(each, kind) for each in array.flat)


def _vocabulary(named: list[Any]) -> list[str]:
    names = {name for label in named for name in ([label] if isinstance(label, str) else label)}
    if named and not names:
        raise ValueError("no image has a label")
    return sorted(str(name) for name in names)


def _number(named: list[Any], names: Sequence[str], several: bool | None = None) -> NDArray:
    """Return class numbers, or with `several` names per image a matrix of 0 and 1."""
    numbers = {name: number for number, name in enumerate(names)}
    if several is None:
        several = any(not isinstance(label, str) for label in named)
    try:
        if not several:
            return np.array([numbers[label] for label in named], np.int64)
        matrix = np.zeros((len(named), len(names)), np.uint8)
        for row, label in enumerate(named):
            for name in [label] if isinstance(label, str) else label:
                matrix[row, numbers[name]] = 1
        return matrix
    except KeyError as error:
        raise ValueError(f"the label {error.args[0]!r} is not one of the class names") from error


def _check_numbers(given: Any) -> NDArray:
    """Return class numbers as int64, or a matrix of 0 and 1 as uint8."""
    if hasattr(given, "toarray"):
        raise ValueError("sparse labels are not supported; pass labels.toarray()")
    labels: NDArray = np.asarray(given.detach().cpu() if hasattr(given, "detach") else given)
    if labels.ndim not in (1, 2) or (labels.ndim == 2 and labels.shape[1] == 0):
        raise ValueError(
            "labels must be (N,) class numbers or an (N, c) matrix of 0 and 1, "
            f"got shape {labels.shape}"
        )
    if labels.dtype == object:
        labels = labels.astype(np.float64)
    if labels.dtype.kind == "f" and not np.all(np.isfinite(labels)):
        raise ValueError("labels contain NaN or infinity")
    if labels.ndim == 2:
        if not np.all((labels == 0) | (labels == 1)):
            if labels.shape[1] == 1:
                raise ValueError("labels have shape (N, 1); for class numbers pass labels.ravel()")
            raise ValueError(
                "a label matrix must contain only 0 and 1; for probabilities pass scores > 0.5"
            )
        return labels.astype(np.uint8)
    if np.any(labels < 0) or np.any(labels != np.floor(labels)):
        raise ValueError(
            "class numbers must be integers >= 0; convert other classes with "
            "np.unique(labels, return_inverse=True)[1]"
        )
    if np.any(labels >= 2**53):
        raise ValueError("class numbers must be below 2^53")
    return labels.astype(np.int64)


def class_count(labels: NDArray) -> int:
    """Return the number of classes: columns of a matrix, or the largest class number + 1.

    Examples
    --------
    >>> class_count(np.array([0, 3, 3])), class_count(np.array([[1, 0], [1, 1]]))
    (4, 2)
    """
    if labels.ndim == 2:
        return int(labels.shape[1])
    return int(labels.max()) + 1 if len(labels) else 0


def has_several_labels(labels: NDArray) -> bool:
    """Return whether some image has more than one label.

    Examples
    --------
    >>> has_several_labels(np.array([0, 3])), has_several_labels(np.array([[1, 0], [1, 1]]))
    (False, True)
    """
    return labels.ndim == 2 and bool((labels.sum(axis=1) > 1).any())


def class_matrix(labels: NDArray, classes: int | None = None) -> NDArray[np.float32]:
    """Return labels as an (N, c) matrix of 0.0 and 1.0.

    Examples
    --------
    >>> class_matrix(np.array([1, 0, 1])).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    """
    if labels.ndim == 2:
        return labels.astype(np.float32)
    classes = class_count(labels) if classes is None else classes
    if classes > 2**20:
        raise ValueError(f"the largest class number is {classes - 1}; number the classes from 0")
    matrix = np.zeros((len(labels), classes), np.float32)
    matrix[np.arange(len(labels)), labels] = 1
    return matrix


def check_several_classes(labels: NDArray) -> None:
    """Raise a ValueError unless there are images with different labels."""
    if len(labels) == 0:
        raise ValueError("there are no training images")
    if labels.ndim == 2 and labels.shape[1] == 1:
        raise ValueError(
            "labels are a matrix of one class, shape (N, 1): at least two classes are needed; for "
            "class numbers pass labels.ravel()"
        )
    if np.all(labels == labels[0]):
        raise ValueError(
            "all training images have the same labels (one class): at least two classes are needed"
        )


def similarity(some: Any, others: Any) -> Any:
    """Return an (n, m) boolean block: whether two images share at least one label.

    Both arguments are NumPy arrays or torch tensors, either class numbers or label matrices.

    Examples
    --------
    >>> similarity(np.array([0, 1]), np.array([1, 1, 0])).tolist()
    [[False, False, True], [True, True, False]]
    """
    if some.ndim == 1:
        return some[:, None] == others[None, :]
    return shared_labels(some, others) > 0


def shared_labels(some: Any, others: Any) -> Any:
    """Return an (n, m) block: the number of labels that two images share (graded relevance).

    Examples
    --------
    >>> shared_labels(np.array([[1, 1, 0]]), np.array([[1, 1, 1], [0, 0, 1]])).tolist()
    [[2.0, 0.0]]
    """
    if some.ndim == 1:
        block = some[:, None] == others[None, :]
        return block.astype(np.float32) if isinstance(block, np.ndarray) else block.float()
    if isinstance(some, np.ndarray):
        return some.astype(np.float32) @ others.astype(np.float32).T
    return some.float() @ others.float().T


def sample_pairs(
    labels: NDArray, per_image: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Draw `per_image` similar and `per_image` dissimilar partners for every image.

    An image without a similar or dissimilar partner has no pairs of that kind. No image is paired
    with itself.

    Returns
    -------
    i, j : ndarray of int64, shape (P,)
    similar : ndarray of bool, shape (P,)

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1])
    >>> i, j, similar = sample_pairs(labels, per_image=2, rng=np.random.default_rng(0))
    >>> len(i), bool(np.all((labels[i] == labels[j]) == similar)), bool(np.any(i == j))
    (20, True, False)
    """
    rows, partners, kinds = [], [], []
    for similar in (True, False):
        for i, j in _partners(labels, per_image, similar, rng):
            rows.append(i)
            partners.append(j)
            kinds.append(np.full(len(i), similar))
    return _join(rows), _join(partners), _join(kinds).astype(bool)


def sample_triplets(
    labels: NDArray, per_image: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Draw triplets (q, p, n): q shares a label with p and none with n; q, p and n differ.

    Images without a similar or without a dissimilar partner start no triplet.

    Examples
    --------
    >>> labels = np.array([0, 0, 1, 1, 1])
    >>> q, p, n = sample_triplets(labels, per_image=2, rng=np.random.default_rng(0))
    >>> len(q), bool(np.all(labels[q] == labels[p])), bool(np.any(labels[q] == labels[n]))
    (10, True, False)
    """
    queries, positives, negatives = [], [], []
    pairs = zip(
        _partners(labels, per_image, True, rng),
        _partners(labels, per_image, False, rng),
        strict=True,
    )
    for (q, p), (r, n) in pairs:
        both = np.intersect1d(q, r)
        queries.append(np.repeat(both, per_image))
        positives.append(p[np.isin(q, both)])
        negatives.append(n[np.isin(r, both)])
    return _join(queries), _join(positives), _join(negatives)


_BLOCK = 1024


def _partners(labels: NDArray, per_image: int, similar: bool, rng: np.random.Generator) -> Any:
    """Yield (i, j) blocks: `per_image` random partners j of each image i that has partners.

    Processes blocks of images. With one label per image, the time is linear in N; with several
    labels all pairs are compared, with O(block x N) memory.
    """
    if labels.ndim == 1:
        yield from _class_partners(labels, per_image, similar, rng)
        return
    for start in range(0, len(labels), _BLOCK):
        block = np.arange(start, min(start + _BLOCK, len(labels)))
        allowed = similarity(labels[block], labels) == similar
        allowed[np.arange(len(block)), block] = False
        choices = allowed.sum(axis=1)
        have = np.flatnonzero(choices)
        # Draw ranks among the allowed partners of each image, then look up their columns.
        wanted = (rng.random((len(have), per_image)) * choices[have, None]).astype(np.int64)
        columns = np.nonzero(allowed[have])[1]
        first = np.concatenate([[0], np.cumsum(choices[have])[:-1]]) if len(have) else np.empty(0)
        picked = columns[(first.astype(np.int64)[:, None] + wanted).ravel()]
        yield np.repeat(block[have], per_image), picked


def _class_partners(
    labels: NDArray, per_image: int, similar: bool, rng: np.random.Generator
) -> Any:
    """Yield the same blocks as `_partners` for one label per image, from sorted classes."""
    count = len(labels)
    _, number, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    members = np.argsort(number, kind="stable")  # class after class, in ascending order
    starts = np.cumsum(sizes) - sizes
    place = np.empty(count, np.int64)
    place[members] = np.arange(count) - np.repeat(starts, sizes)
    # Number of images of other classes before each member; the classes are kept apart by an offset.
    before = members - place[members] + np.repeat(np.arange(len(sizes)), sizes) * count
    for start in range(0, count, _BLOCK):
        block = np.arange(start, min(start + _BLOCK, count))
        own = sizes[number[block]]
        choices = own - 1 if similar else count - own
        rows, choices = block[choices > 0], choices[choices > 0]
        wanted = (rng.random((len(rows), per_image)) * choices[:, None]).astype(np.int64)
        first = starts[number[rows], None]
        if similar:
            picked = members[first + wanted + (wanted >= place[rows, None])]
        else:
            offset = number[rows, None] * count
            picked = wanted + np.searchsorted(before, wanted + offset, side="right") - first
        yield np.repeat(rows, per_image), picked.ravel()


def _join(parts: list[NDArray]) -> NDArray[np.int64]:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)
