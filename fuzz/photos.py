"""Image collections: the model and the file records that are attached to an index."""

from __future__ import annotations

import hashlib
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
from PIL import Image

from bitprint.data import ImageSet
from bitprint.methods import create
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from fuzz.harness import Target, file_bytes
from fuzz.index import fix_checksums, fresh_file, shrink
from fuzz.mutating import change_json
from fuzz.tensors import change_tensors

_MODEL, _WEIGHTS = b"model/model.json", b"model/model.safetensors"


def parse(data: bytes, folder: Path) -> object:
    """Open a collection, and read its model and its ledger."""
    path = fresh_file(folder, data)
    with Photos.open(path) as photos:
        ledger = photos._ledger
        return photos.encoder.describe(), ledger.facts(), ledger.places()


def seeds() -> list[bytes]:
    """Return a collection of two images."""
    return [file_bytes(_fill)]


def _fill(path: Path) -> None:
    scenes = ImageSet(np.random.default_rng(0).integers(0, 256, (12, 4, 4, 3), np.uint8))
    album = path.parent / "album"
    album.mkdir()
    for number in range(2):
        Image.fromarray(scenes.pixels[number]).save(album / f"{number}.png")
    with Photos.create(path, Encoder(create("itq", bits=8).fit(scenes))) as photos:
        photos.add(album)
    shrink(path)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change or delete one attachment, and fix all checksums, including that of the weights."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(data)
        contents = dict(db.execute("SELECT name, content FROM attachments"))
        name = rng.choice(list(contents))
        if rng.random() < 0.1:
            db.execute("DELETE FROM attachments WHERE name = ?", (name,))
        elif name == _WEIGHTS:
            contents[name] = change_tensors(contents[name], rng)
            document = json.loads(contents[_MODEL])
            document["sha256"] = hashlib.sha256(contents[name]).hexdigest()
            contents[_MODEL] = json.dumps(document).encode()
        else:
            contents[name] = change_json(contents[name], rng)
        rows = [(content, key) for key, content in contents.items()]
        db.executemany("UPDATE attachments SET content = ? WHERE name = ?", rows)
        count = db.execute("SELECT count(*) FROM attachments").fetchone()
        db.execute("UPDATE meta SET value = ? WHERE key = 'attached'", count)
        fix_checksums(db)
        return db.serialize()


TARGET = Target(parse, seeds, mutate)
