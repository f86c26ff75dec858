"""Numbers as arguments: whole ones, seeds, and NumPy's as Python's."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST = 2**31 - 1


def plain(value: Any) -> Any:
    """Return a number of NumPy's as Python's, and anything else as it is.

    Examples
    --------
    >>> plain(np.int64(3)), plain(np.True_), plain("auto")
    (3, True, 'auto')
    """
    return value.item() if isinstance(value, np.generic) else value


def check_whole(name: str, value: int, least: int) -> int:
    """Return a whole number from `least` to what 32 bits hold, or raise a ValueError.

    Examples
    --------
    >>> check_whole("top", np.int64(5), 1)
    5
    >>> check_whole("top", 2.5, 1)
    Traceback (most recent call last):
    ValueError: top must be a whole number of at least 1, got 2.5
    """
    if not _is_whole(value) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if value > _MOST:  # which compiled loops could not count to
        raise ValueError(f"{name} is at most {_MOST}, got {value}")
    return int(value)


def check_seed(seed: int) -> int:
    """Return a seed that NumPy and torch both take, or raise a ValueError.

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    ValueError: seed must be a whole number from 0 to 2^63 - 1, got -1
    """
    if not _is_whole(seed) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be a whole number from 0 to 2^63 - 1, got {seed!r}")
    return int(seed)


def _is_whole(value: Any) -> bool:
    # To Python, true and false are numbers.
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
