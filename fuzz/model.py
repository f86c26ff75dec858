"""Model folders, as the length of `model.json` (four bytes), `model.json` and the weights."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tempfile
from pathlib import Path

import numpy as np

from bitprint.methods import create, load
from fuzz.harness import Target
from fuzz.mutating import change_json
from fuzz.tensors import change_tensors

_METHODS = ("lsh", "itq", "sh", "sdh", "ksh")


def parse(data: bytes, folder: Path) -> object:
    """Load a model folder."""
    description, weights = _parts(data)
    (folder / "model.json").write_bytes(description)
    (folder / "model.safetensors").write_bytes(weights)
    return load(folder)


def seeds() -> list[bytes]:
    """Return five feature-based models and one deep network."""
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(60, 6)), np.arange(60) % 3
    models = [create(name, bits=4).fit(features, labels) for name in _METHODS]
    models.append(create("dpsh", bits=4, epochs=1, device="cpu").fit(features, labels))
    packed = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            model.save(folder)
            description = Path(folder, "model.json").read_bytes()
            weights = Path(folder, "model.safetensors").read_bytes()
            packed.append(_joined(description, weights))
    return packed


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change the description or the weights, and fix the checksum in the description."""
    description, weights = _parts(data)
    if rng.random() < 0.5:
        description = change_json(description, rng)
    else:
        weights = change_tensors(weights, rng)
    document = json.loads(description)
    document["sha256"] = hashlib.sha256(weights).hexdigest()
    return _joined(json.dumps(document).encode(), weights)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "little")
    return data[4:end], data[end:]


def _joined(description: bytes, weights: bytes) -> bytes:
    return struct.pack("<I", len(description)) + description + weights


TARGET = Target(parse, seeds, mutate)
