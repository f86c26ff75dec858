"""Where Bitprint keeps fetched data sets and decoded images."""

from __future__ import annotations

import os
from pathlib import Path


def data_home() -> Path:
    """Return the folder for data: $BITPRINT_DATA, or ~/.cache/bitprint when that is unset.

    Examples
    --------
    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, BITPRINT_DATA="/data/bitprint"):
    ...     data_home().as_posix()
    '/data/bitprint'
    """
    chosen = os.environ.get("BITPRINT_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "bitprint"
