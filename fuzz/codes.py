"""Codes files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bitprint.codes import Codes
from fuzz.harness import Target
from fuzz.samples import written


def parse(data: bytes, folder: Path) -> object:
    """Load a codes file."""
    (folder / "codes").write_bytes(data)
    return Codes.load(folder / "codes")


def seeds() -> list[bytes]:
    """Codes of a few lengths, one file without any."""
    rng = np.random.default_rng(0)
    samples = [Codes.from_signs(rng.random((n, bits)) < 0.5) for n, bits in ((0, 8), (5, 12))]
    return [written(codes.save) for codes in samples]


TARGET = Target(parse, seeds)
