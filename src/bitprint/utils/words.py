"""Convert packed codes to 64-bit words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


def as_words(packed: NDArray[np.uint8]) -> Words:
    """Return packed rows, (N, B) bytes, as (N, W) words, padded with zeros.

    Examples
    --------
    >>> as_words(np.full((5, 9), 255, np.uint8)).shape
    (5, 2)
    """
    padding = -packed.shape[1] % 8
    return np.pad(packed, ((0, 0), (0, padding))).view(np.uint64)


def as_planes(packed: NDArray[np.uint8]) -> Words:
    """Return packed rows, (N, B) bytes, as (W, N) words: row w contains word w of every code.

    Examples
    --------
    >>> as_planes(np.full((5, 9), 255, np.uint8)).shape
    (2, 5)
    """
    return np.ascontiguousarray(as_words(packed).T)
