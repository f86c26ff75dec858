"""Quantized codes files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load

from bitprint.quantised import QuantisedCodes
from fuzz.harness import Target, file_bytes
from fuzz.tensors import change_tensors


def parse(data: bytes, folder: Path) -> object:
    """Load a file of quantized codes."""
    (folder / "quantised").write_bytes(data)
    return QuantisedCodes.load(folder / "quantised")


def seeds() -> list[bytes]:
    """Return quantized codes of five items, with two codebooks of four entries."""
    rng = np.random.default_rng(0)
    codes = QuantisedCodes(rng.integers(0, 4, (5, 2)), rng.normal(size=(2, 4, 3)))
    return [file_bytes(codes.save)]


mutate = partial(
    change_tensors,
    field="sha256",
    checksum=lambda data, _: QuantisedCodes(**load(data))._checksum(),
)

TARGET = Target(parse, seeds, mutate)
