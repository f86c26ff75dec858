"""CIFAR-10 archives, compressed or not.

The six official files are not a target because their MD5 is checked before they are read.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from bitprint.data.cifar10 import FILES
from bitprint.data.cifar10_fetch import fetch_cifar10
from fuzz.harness import Target
from fuzz.mutating import change_in_place, change_json, fix_png_checksums

_IMAGES = 2
_BLOCK = 512


def parse(data: bytes, folder: Path) -> object:
    """Unpack an archive; if the first byte is "t", it is compressed first."""
    kind, content = data[:1], data[1:]
    target = folder / "cifar10"
    shutil.rmtree(target, ignore_errors=True)
    archive = folder / "archive.tar.gz"
    archive.write_bytes(gzip.compress(content, 1) if kind == b"t" else content)
    return fetch_cifar10(target, archive)


def seeds() -> list[bytes]:
    """Return small archives in the official and in the sheet layout, compressed and not."""
    rows = np.zeros((_IMAGES, 3073), np.uint8).tobytes()
    official = _tar({f"cifar-10-batches-bin/{name}": rows for name in FILES})
    sheet = io.BytesIO()
    Image.new("RGB", (1024, _IMAGES), (10, 20, 30)).save(sheet, "PNG")
    labels = {"train_lables.json": [0] * 5 * _IMAGES, "test_lables.json": [1] * _IMAGES}
    members = {f"package/{Path(name).stem}.png": sheet.getvalue() for name in FILES}
    members |= {f"package/{name}": json.dumps(values).encode() for name, values in labels.items()}
    tars = [official, _tar(members)]
    return [*(b"t" + tar for tar in tars), *(b"g" + gzip.compress(tar) for tar in tars)]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change a member, or the header of a member with a valid checksum."""
    tar = data[1:] if data[:1] == b"t" else gzip.decompress(data[1:])
    if rng.random() < 0.5:
        return b"t" + _change_header(tar, rng)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        members = {member.name: _content(archive, member) for member in archive}
    name = rng.choice(list(members))
    if name.endswith(".json"):
        members[name] = change_json(members[name], rng)
    else:
        members[name] = fix_png_checksums(change_in_place(members[name], rng))
    return b"t" + _tar(members)


def _change_header(tar: bytes, rng: random.Random) -> bytes:
    starts = [n for n in range(0, len(tar), _BLOCK) if tar[n + 257 : n + 262] == b"ustar"]
    start = rng.choice(starts)
    block = change_in_place(tar[start : start + _BLOCK], rng)
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    block = block[:148] + b"%06o\0 " % total + block[156:]
    return tar[:start] + block + tar[start + _BLOCK :]


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return b"" if file is None else file.read()


def _tar(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


TARGET = Target(parse, seeds, mutate)
