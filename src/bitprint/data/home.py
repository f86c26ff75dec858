"""Folder for downloaded data sets and caches."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """Return the folder for data: $BITPRINT_DATA, or ~/.cache/bitprint if it is not set.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, BITPRINT_DATA="/data/bitprint"):
    ...     data_home().as_posix()
    '/data/bitprint'
    """
    chosen = os.environ.get("BITPRINT_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "bitprint"
