"""MatConvNet's .mat files.

SciPy reads them. Its documentation warns that the reader is not safe for untrusted files, and a
crafted file can crash the process. Each input is therefore parsed in a new process.
"""

from __future__ import annotations

import random
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from bitprint.nets.matconvnet import read_matconvnet
from fuzz.harness import Target, file_bytes
from fuzz.mutating import change_in_place

_COMPRESSED = 15


def parse(data: bytes, folder: Path) -> object:
    """Read a network."""
    (folder / "net.mat").write_bytes(data)
    return read_matconvnet(folder / "net.mat")


def seeds() -> list[bytes]:
    """Return a network of three layers in the old and the new layout, compressed and not."""
    filters, biases = np.ones((2, 2, 3, 4), np.float32), np.zeros((1, 4), np.float32)
    mean = np.ones((2, 2, 3), np.float32)
    old = {"name": "conv1", "type": "conv", "filters": filters, "biases": biases, "stride": 4.0}
    weights = np.empty((1, 2), object)
    weights[0, 0], weights[0, 1] = filters, biases
    new = {"name": "conv1", "type": "conv", "weights": weights, "pad": [0.0, 0.0, 1.0, 1.0]}
    rest: list[dict[str, Any]] = [
        {"name": "relu1", "type": "relu"},
        {"name": "norm1", "type": "lrn", "param": [5.0, 2.0, 1e-4, 0.75]},
    ]
    normalization = {"averageImage": mean}
    files = [
        {"layers": _cells([old, *rest]), "normalization": normalization},
        {"layers": _cells([new, *rest]), "meta": {"normalization": normalization}},
    ]
    return [
        file_bytes(partial(savemat, mdict=content, appendmat=False, do_compression=packed))
        for content in files
        for packed in (False, True)
    ]


def _cells(values: list[dict[str, Any]]) -> np.ndarray:
    cells = np.empty((1, len(values)), object)
    cells[0, :] = values
    return cells


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change bytes of the first element; compressed data is changed before compression."""
    start = 128  # after the header
    kind, size = struct.unpack_from("<II", data, start)
    if kind != _COMPRESSED:
        return data[:start] + change_in_place(data[start:], rng)
    end = start + 8 + size
    packed = zlib.compress(change_in_place(zlib.decompress(data[start + 8 : end]), rng))
    return data[:start] + struct.pack("<II", kind, len(packed)) + packed + data[end:]


TARGET = Target(parse, seeds, mutate, isolated=True)
