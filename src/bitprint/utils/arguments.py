"""Validate numeric arguments: integers, seeds and NumPy scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

_LARGEST = 2**31 - 1  # of the 32-bit counters in compiled loops


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to a Python scalar; return any other value unchanged.

    Examples
    --------
    >>> plain(np.int64(3)), plain(np.True_), plain("auto")
    (3, True, 'auto')
    """
    return value.item() if isinstance(value, np.generic) else value


def check_whole(name: str, value: int, least: int) -> int:
    """Return an integer between `least` and 2^31 - 1, or raise a ValueError.

    Examples
    --------
    >>> check_whole("top", np.int64(5), 1)
    5
    >>> check_whole("top", 2.5, 1)
    Traceback (most recent call last):
    ValueError: top must be an integer >= 1, got 2.5
    """
    if not _is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    if value > _LARGEST:
        raise ValueError(f"{name} is at most {_LARGEST}, got {value}")
    return int(value)


def check_seed(seed: int) -> int:
    """Return a seed that is valid for NumPy and torch, or raise a ValueError.

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    ValueError: seed must be an integer from 0 to 2^63 - 1, got -1
    """
    if not _is_integer(seed) or not 0 <= seed < 2**63:
        raise ValueError(f"seed must be an integer from 0 to 2^63 - 1, got {seed!r}")
    return int(seed)


def _is_integer(value: Any) -> bool:
    # bool is a subclass of int.
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
