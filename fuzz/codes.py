"""Codes files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load

from bitprint.codes import Codes, _checksum
from fuzz.harness import Target, file_bytes
from fuzz.tensors import change_tensors


def parse(data: bytes, folder: Path) -> object:
    """Load a codes file."""
    (folder / "codes").write_bytes(data)
    return Codes.load(folder / "codes")


def seeds() -> list[bytes]:
    """Return two files with codes of different lengths, one without codes."""
    rng = np.random.default_rng(0)
    samples = [Codes.from_signs(rng.random((n, bits)) < 0.5) for n, bits in ((0, 8), (5, 12))]
    return [file_bytes(codes.save) for codes in samples]


mutate = partial(
    change_tensors,
    field="sha256",
    checksum=lambda data, metadata: _checksum(load(data)["packed"], metadata["bits"]),
)

TARGET = Target(parse, seeds, mutate)
