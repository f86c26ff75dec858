"""Samples: what functions that write to a path would write."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path


def written(write: Callable[[Path], object]) -> bytes:
    """Return the bytes of the file that `write` makes at the path it is given."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sample"
        write(path)
        return path.read_bytes()
