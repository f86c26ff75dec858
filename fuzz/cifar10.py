"""CIFAR-10: archives, packed or still to be packed, and the official files themselves."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from bitprint.data.cifar10 import FILES, load_cifar10
from bitprint.data.cifar10_fetch import fetch_cifar10
from fuzz.harness import Target

_IMAGES = 2


def parse(data: bytes, folder: Path) -> object:
    """Unpack an archive, which the first byte says how to make, or read official files."""
    kind, content = data[:1], data[1:]
    target = folder / "cifar10"
    shutil.rmtree(target, ignore_errors=True)
    if kind == b"b":
        target.mkdir()
        for name in FILES:
            (target / name).write_bytes(content)
        return load_cifar10(target)
    archive = folder / "archive.tar.gz"
    archive.write_bytes(gzip.compress(content, 1) if kind == b"t" else content)
    return fetch_cifar10(target, archive)


def seeds() -> list[bytes]:
    """An official archive and one of sheets, of too few images; each also before it is packed."""
    rows = np.zeros((_IMAGES, 3073), np.uint8).tobytes()
    official = _tar({f"cifar-10-batches-bin/{name}": rows for name in FILES})
    sheet = io.BytesIO()
    Image.new("RGB", (1024, _IMAGES), (10, 20, 30)).save(sheet, "PNG")
    labels = {"train_lables.json": [0] * 5 * _IMAGES, "test_lables.json": [1] * _IMAGES}
    members = {f"package/{Path(name).stem}.png": sheet.getvalue() for name in FILES}
    members |= {f"package/{name}": json.dumps(values).encode() for name, values in labels.items()}
    tars = [official, _tar(members)]
    return [b"b" + rows, *(b"t" + tar for tar in tars), *(b"g" + gzip.compress(t) for t in tars)]


def _tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


TARGET = Target(parse, seeds)
