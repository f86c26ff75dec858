"""Convert packed codes to 64-bit words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


def as_words(packed: NDArray[np.uint8]) -> Words:
    """Return packed rows, (N, B) bytes, as (N, W) words, padded with zeros.

    Rows of whole words are returned without copying them.

    Examples
    --------
    >>> as_words(np.full((5, 9), 255, np.uint8)).shape
    (5, 2)
    """
    rows, width = packed.shape
    if width % 8 == 0 and width:
        words = np.ascontiguousarray(packed).view(np.uint64)
        return words if words.flags.aligned else words.copy()
    padded = np.zeros((rows, -(-width // 8) * 8), np.uint8)
    padded[:, :width] = packed
    return padded.view(np.uint64)


def as_planes(packed: NDArray[np.uint8]) -> Words:
    """Return packed rows, (N, B) bytes, as (W, N) words: row w contains word w of every code.

    Examples
    --------
    >>> as_planes(np.full((5, 9), 255, np.uint8)).shape
    (2, 5)
    """
    return np.ascontiguousarray(as_words(packed).T)
