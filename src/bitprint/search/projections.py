"""Real-valued queries: validation, and rounding that makes their scores exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import as_array

_PRECISION = 42  # with up to 2^10 bits, sums of rounded projections fit the 53 bits of a float64


def check_projections(
    projections: Any, bits: int, place: object | None = None
) -> NDArray[np.float32]:
    """Return projections as float32 (Q, bits), or raise ValueError, which names the place.

    Examples
    --------
    >>> check_projections([[0.5, -1.0]], bits=2)
    array([[ 0.5, -1. ]], dtype=float32)
    >>> check_projections([[0.5, float("nan")]], 2, "photos.bp")
    Traceback (most recent call last):
    ValueError: photos.bp: projections must be finite numbers, got nan in row 0
    """
    prefix = "" if place is None else f"{place}: "
    values = as_array(projections)
    if values.ndim != 2 or values.shape[1] != bits:
        raise ValueError(
            f"{prefix}projections must have shape (Q, {bits}), got {values.shape}; "
            "hasher.project(data) returns them"
        )
    if values.dtype.kind not in "iuf":
        raise ValueError(f"{prefix}projections must be real numbers, got {values.dtype}")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32, copy=False)
    invalid = np.argwhere(~np.isfinite(values))
    if len(invalid):
        row, column = invalid[0].tolist()
        raise ValueError(
            f"{prefix}projections must be finite numbers, got {values[row, column]} in row {row}"
        )
    return values


def fixed_point(
    projections: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Round each row to integer multiples of a unit of its own.

    The unit is the power of two for which the largest magnitude is between 2^41 and 2^42.

    Returns
    -------
    integers : ndarray of int64, shape (Q, K)
    units : ndarray of float64, shape (Q, 1)

    Examples
    --------
    >>> integers, units = fixed_point(np.array([[1.0, -0.5]], np.float32))
    >>> (integers * units).tolist(), np.log2(integers[0, 0])
    ([[1.0, -0.5]], np.float64(41.0))
    """
    values = projections.astype(np.float64)
    exponents = np.frexp(np.abs(values).max(axis=1, initial=0))[1]
    units = np.ldexp(1.0, exponents - _PRECISION)[:, None]
    return np.rint(values / units).astype(np.int64), units


def rounded(projections: NDArray[np.float32]) -> NDArray[np.float64]:
    """Round each row to multiples of about 2^-42 of its largest magnitude.

    A sum of up to 1,024 of these values is exact in float64, in any order. Therefore scores, and
    ties between them, do not depend on how a scan adds them.

    Examples
    --------
    >>> float(rounded(np.array([[1.0, 2.0**-42, 2.0**-44]], np.float32))[0, 2])
    0.0
    """
    integers, units = fixed_point(projections)
    values: NDArray[np.float64] = integers * units
    return values


def to_scores(exact: NDArray[np.float64]) -> NDArray[np.float32]:
    """Convert scores to float32.

    Examples
    --------
    >>> to_scores(np.array([0.5, -np.inf])).tolist()
    [0.5, -inf]
    """
    with np.errstate(over="ignore"):
        return exact.astype(np.float32)
