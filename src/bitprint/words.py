"""Codes as 64-bit words, and how compiled loops count the ones in a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Words = NDArray[np.uint64]


def as_words(packed: NDArray[np.uint8]) -> Words:
    """Packed rows, (N, B) bytes, as (N, W) words, padded with zeros.

    Examples
    --------
    >>> as_words(np.full((5, 9), 255, np.uint8)).shape
    (5, 2)
    """
    padding = -packed.shape[1] % 8
    return np.pad(packed, ((0, 0), (0, padding))).view(np.uint64)


def as_planes(packed: NDArray[np.uint8]) -> Words:
    """Packed rows, (N, B) bytes, as (W, N) words: word w of all rows in one.

    Examples
    --------
    >>> as_planes(np.full((5, 9), 255, np.uint8)).shape
    (2, 5)
    """
    return np.ascontiguousarray(as_words(packed).T)


def _type_popcount(_context: Any, _word: Any) -> Any:
    """Number of ones in a word: LLVM's ctpop, one machine instruction, vectorised where it can."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


popcount: Any = intrinsic(_type_popcount)
