"""Validate vectors: finite numbers of one length, with a direction if they are normalized."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import as_array

METRICS = ("cosine", "ip", "l2")

Vectors = NDArray[np.float32]


def check_form(place: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    """Return the length d of vectors (N, d), or raise ValueError.

    Examples
    --------
    >>> check_form("a.npy", np.dtype("f2"), (1000, 768))
    768
    >>> check_form("a.npy", np.dtype("f2"), (768,))
    Traceback (most recent call last):
    ValueError: a.npy: vectors must have shape (N, d), got (768,): for one vector pass vector[None]
    """
    if len(shape) != 2 or shape[1] == 0:
        hint = ": for one vector pass vector[None]" if len(shape) == 1 else ""
        raise ValueError(f"{place}: vectors must have shape (N, d), got {shape}{hint}")
    if dtype.kind not in "iuf":
        raise ValueError(f"{place}: vectors must be real numbers, got {dtype}")
    return int(shape[1])


def as_vectors(values: Any, place: str = "vectors", first: int = 0) -> Vectors:
    """Return vectors as finite float32, shape (N, d), or raise ValueError.

    Parameters
    ----------
    values : array_like of real numbers, shape (N, d)
        An array, a torch tensor or a list of lists.
    place : str
        A file, for error messages.
    first : int
        Number of the first row in its file, for error messages.

    Examples
    --------
    >>> as_vectors(np.ones((2, 3), np.float64)).dtype
    dtype('float32')
    >>> as_vectors([[1, 2], [3, np.nan]], "a.npy", first=1000)
    Traceback (most recent call last):
    ValueError: a.npy: row 1001 contains NaN or infinity; remove it, or encode its text again
    """
    try:
        array = as_array(values)
    except ValueError:
        raise ValueError(f"{place}: the vectors have different lengths") from None
    check_form(place, array.dtype, array.shape)
    with np.errstate(over="ignore"):
        vectors = array.astype(np.float32)
    invalid = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(invalid):
        raise ValueError(
            f"{place}: row {first + invalid[0]} contains NaN or infinity; remove it, or encode its "
            "text again"
        )
    return vectors


def check_metric(metric: str) -> str:
    """Return the name of a metric, or raise ValueError."""
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {metric!r}")
    return metric


def normalized(vectors: Vectors, place: str = "vectors", first: int = 0) -> Vectors:
    """Scale vectors to length 1, or raise ValueError for a vector of zeros.

    Examples
    --------
    >>> normalized(np.array([[3, 4]], np.float32)).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    >>> normalized(np.zeros((1, 2), np.float32), "a.npy")
    Traceback (most recent call last):
    ValueError: a.npy: row 0 contains only zeros, which have no cosine; remove it, or learn with metric="ip"
    """  # noqa: E501
    # Division by the largest magnitude avoids overflow and underflow of the squares.
    largest = np.abs(vectors).max(axis=1, initial=0)
    empty = np.flatnonzero(largest == 0)
    if len(empty):
        raise ValueError(
            f"{place}: row {first + empty[0]} contains only zeros, which have no cosine; remove "
            'it, or learn with metric="ip"'
        )
    scaled: Vectors = vectors / largest[:, None]
    scaled /= np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled
