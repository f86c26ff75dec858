"""Byte faults: change, insert or delete one byte of a file, or truncate the file there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bitprint.codes import Codes
from bitprint.data.label_csv import read_label_csv
from bitprint.methods import create, load
from bitprint.photos.files import Picture, list_pictures
from bitprint.photos.kept import KeptFeatures
from bitprint.search.index import Index
from bitprint.training.run import RunFolder
from bitprint.training.state import State
from soak.indexing import BITS, codes_of
from soak.rounds import FaultKind, Round, check

_FAULTS_PER_ROUND = 40


class Format(NamedTuple):
    """A file format, with functions to write a sample and to read it."""

    file: str
    """The file to damage."""
    make: Callable[[Path], None]
    """Writes a sample into a folder."""
    read: Callable[[Path], object]
    """Reads the folder; the results are equal only if the content is."""
    guarded: bool
    """Whether a checksum covers every relevant byte."""


class ByteFaults(FaultKind):
    """Each round damages one format 40 times."""

    name = "bytes"

    def prepare(self) -> None:
        """Write one sample of each format, and read it."""
        self._contents: dict[str, bytes] = {}
        self._expected: dict[str, object] = {}
        for name, sample in FORMATS.items():
            folder = self.folder / name
            folder.mkdir()
            sample.make(folder)
            self._contents[name] = (folder / sample.file).read_bytes()
            self._expected[name] = sample.read(folder)
        self._turns = list(FORMATS)

    def inject(self) -> Round:
        """Damage the next format in turn."""
        name = self._turns.pop(0)
        self._turns.append(name)
        unnoticed = sum(self._changes_silently(name) for _ in range(_FAULTS_PER_ROUND))
        return Round(_FAULTS_PER_ROUND, _FAULTS_PER_ROUND - unnoticed, {name: unnoticed})

    def _changes_silently(self, name: str) -> bool:
        """Damage a sample once; return whether it reads differently without an error."""
        sample = FORMATS[name]
        folder = self.folder / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / name, folder)
        fault, damaged = damage(self._contents[name], self.rng)
        (folder / sample.file).write_bytes(damaged)
        try:
            found = sample.read(folder)
        except (ValueError, OSError) as error:
            text = str(error)
            check(
                str(folder) in text and "\n" not in text,
                f"{name}, {fault}: expected one sentence with the file name, got {text!r}",
            )
            return False
        if found == self._expected[name]:
            return False
        check(not sample.guarded, f"{name}, {fault}: reads differently without an error")
        return True


def damage(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Damage one byte; return a description and the damaged content."""
    place = rng.randrange(len(content))
    kind = rng.choice(["changed", "changed", "truncated", "inserted", "deleted"])
    head, byte, tail = content[:place], content[place], content[place + 1 :]
    if kind == "changed":
        new = byte ^ rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
        return f"byte {place} changed to {new}", head + bytes([new]) + tail
    if kind == "inserted":
        new = rng.randrange(256)
        return f"{new} inserted at {place}", head + bytes([new, byte]) + tail
    return f"{kind} at {place}", head if kind == "truncated" else head + tail


def make_codes(folder: Path) -> None:
    """Write 50 codes."""
    codes_of(range(50)).save(folder / "codes")


def read_codes(folder: Path) -> object:
    """Read codes."""
    codes = Codes.load(folder / "codes")
    return codes.bits, codes.packed.tobytes()


def make_model(folder: Path) -> None:
    """Fit and save a small model."""
    features = np.random.default_rng(0).normal(size=(40, 12))
    create("itq", bits=8).fit(features).save(folder, features="gist")


def read_model(folder: Path) -> object:
    """Load a model, and return its outputs or its error message."""
    features = np.random.default_rng(1).normal(size=(20, 12))
    hasher = load(folder)
    try:
        return hasher.project(features).tobytes()
    except ValueError as error:  # the model loads, but expects other features
        return str(error)


def make_index(folder: Path) -> None:
    """Write an index with all kinds of rows."""
    with Index.create(folder / "a.bp", BITS, model="itq") as index:
        ids = list(range(300))
        index.add(ids, codes_of(ids), [f"{key}.png" for key in ids], [[str(k % 3)] for k in ids])
        index.remove(range(0, 300, 7))
        index.attach({"note": b"kept"} | {f"file/{key}": bytes(1000) for key in range(40)})


def read_index(folder: Path) -> object:
    """Read the full contents of an index."""
    with Index.open(folder / "a.bp") as index:
        ids = index.ids().tolist()
        codes = index.codes(ids).packed.tobytes()
        return ids, codes, index.items(ids), index.labels(), index.attachments(), index.model


def make_checkpoint(folder: Path) -> None:
    """Write the checkpoint of a small network after one optimizer step."""
    net, optimizer, state = _training(seed=0)
    net(torch.ones(3, 6)).square().sum().backward()
    optimizer.step()
    RunFolder(folder, "soak").save([{"epoch": 1, "loss": 0.5}], net, optimizer, state)


def read_checkpoint(folder: Path) -> object:
    """Restore a checkpoint."""
    net, optimizer, state = _training(seed=1)
    history = RunFolder(folder, "soak").restore(net, optimizer, state)
    moments: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
    tensors = {**net.state_dict(), **state.tensors}
    tensors |= {f"{n}.{k}": v for n, values in moments.items() for k, v in values.items()}
    return history, {name: (value.dtype, value.tolist()) for name, value in tensors.items()}


def _training(seed: int) -> tuple[nn.Module, torch.optim.Optimizer, State]:
    torch.manual_seed(seed)
    net = nn.Linear(6, 4)
    state = State(torch.arange(5), torch.eye(5), batch_size=2)
    state.tensors = {"U": torch.randn(5, 2), "order": torch.randperm(5)}
    return net, torch.optim.AdamW(net.parameters(), lr=0.1), state


def make_features(folder: Path) -> None:
    """Cache features of images, as during the creation of an index."""
    images = [Picture(f"/{number}.png", number, number) for number in range(20)]
    features = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    KeptFeatures(folder, "digest").keep(images, features)


def read_features(folder: Path) -> object:
    """Read cached features; None for missing ones, which would be computed again."""
    kept = KeptFeatures(folder, "digest")
    images = [Picture(f"/{number}.png", number, number) for number in range(20)]
    found = [kept.get(image) for image in images]
    return [None if vector is None else vector.tolist() for vector in found]


def make_table(folder: Path) -> None:
    """Write a CSV with labels."""
    rows = "".join(f"a{n}.png,cat|dog{n % 3},train\n" for n in range(20))
    (folder / "labels.csv").write_text("file,label,split\n" + rows)


def read_labels(folder: Path) -> object:
    """Read a CSV as the labels of a folder."""
    return read_label_csv(folder / "labels.csv", folder)


def read_listing(folder: Path) -> object:
    """Read a CSV as a list of images, none of which exists."""
    listing = list_pictures(folder / "labels.csv")
    return [(Path(name).name, reason) for name, reason in listing.skipped]


FORMATS = {
    "codes": Format("codes", make_codes, read_codes, guarded=True),
    "weights": Format("model.safetensors", make_model, read_model, guarded=True),
    "description": Format("model.json", make_model, read_model, guarded=False),
    "index": Format("a.bp", make_index, read_index, guarded=True),
    "checkpoint": Format(
        "checkpoint/last.safetensors", make_checkpoint, read_checkpoint, guarded=True
    ),
    "features": Format("000000.npz", make_features, read_features, guarded=True),
    "labels": Format("labels.csv", make_table, read_labels, guarded=False),
    "listing": Format("labels.csv", make_table, read_listing, guarded=False),
}
