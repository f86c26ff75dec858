"""Model folders: four bytes say how long `model.json` is, it follows, then the weights."""

from __future__ import annotations

import hashlib
import json
import struct
import tempfile
from pathlib import Path

import numpy as np

from bitprint.methods import create, load
from fuzz.harness import Target

_METHODS = ("lsh", "itq", "sh", "sdh", "ksh")


def parse(data: bytes, folder: Path) -> object:
    """Load a model folder whose checksum fits, as that of a hostile one would."""
    length = int.from_bytes(data[:4], "little")
    description, weights = data[4 : 4 + length], data[4 + length :]
    try:
        document = json.loads(description)
        document["sha256"] = hashlib.sha256(weights).hexdigest()
        description = json.dumps(document).encode()
    except (ValueError, TypeError, RecursionError):
        pass  # no object that could hold a checksum: it goes as it is
    (folder / "model.json").write_bytes(description)
    (folder / "model.safetensors").write_bytes(weights)
    return load(folder)


def seeds() -> list[bytes]:
    """Models that learn from features, and one deep network."""
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
            packed.append(struct.pack("<I", len(description)) + description + weights)
    return packed


TARGET = Target(parse, seeds)
