"""A stored model: `model.json` and `model.safetensors`, in a folder or as bytes, without pickle."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load as deserialise
from safetensors.numpy import save as serialise

from bitprint.files import write_atomically
from bitprint.training.run import holds_checkpoint

PUBLISHED = Path(__file__).parents[1] / "published"
"""Folder of the models that come with Bitprint."""

DESCRIPTION, WEIGHTS = "model.json", "model.safetensors"
"""Names of the two files of a model."""

_FORMAT = "bitprint.model"
_VERSION = 1
_FACTS = {"features": str, "size": int, "protocol": int, "seed": int}  # that are used again


def to_files(document: dict[str, Any], arrays: dict[str, NDArray]) -> dict[str, bytes]:
    """Return the two files of a model by their names; `model.json` has the checksum of the other.

    Examples
    --------
    >>> files = to_files({"method": "itq"}, {"mean_": np.zeros(3)})
    >>> document, arrays = parse_files(files)
    >>> document["method"], arrays["mean_"].tolist()
    ('itq', [0.0, 0.0, 0.0])
    """
    weights = serialise({name: np.ascontiguousarray(value) for name, value in arrays.items()})
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        **document,
        "sha256": hashlib.sha256(weights).hexdigest(),
        "versions": {
            "bitprint": _bitprint_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    return {DESCRIPTION: dump_description(document), WEIGHTS: weights}


def dump_description(document: Mapping[str, Any]) -> bytes:
    """Return the content of `model.json`."""
    try:
        return (json.dumps(document, indent=2) + "\n").encode()
    except RecursionError:  # a model that was read may have such options
        raise ValueError("options or facts of the model are nested too deeply to write") from None


def write_model(
    folder: str | os.PathLike[str], document: dict[str, Any], arrays: dict[str, NDArray]
) -> None:
    """Write a model folder; `model.json` comes last, since it has the checksum of the weights."""
    files = to_files(document, arrays)
    for name in (WEIGHTS, DESCRIPTION):
        write_atomically(Path(folder) / name, files[name])


def find_model(folder: str | os.PathLike[str]) -> Path:
    """Return a model folder, or the model of that name that comes with Bitprint.

    Examples
    --------
    >>> find_model("coco-64").parent.name, find_model("of/mine").as_posix()
    ('published', 'of/mine')
    """
    folder = Path(folder)
    ours = PUBLISHED / folder.name
    is_name = folder.parts == (folder.name,)
    return ours if is_name and not folder.exists() and ours.is_dir() else folder


def read_files(folder: str | os.PathLike[str]) -> dict[str, bytes]:
    """Read the two files of a model folder, or of a model that comes with Bitprint."""
    description = _read_description(folder)
    try:
        weights = (find_model(folder) / WEIGHTS).read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder}: {WEIGHTS} is missing") from None
    return {DESCRIPTION: description, WEIGHTS: weights}


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read a model folder; raises a ValueError or FileNotFoundError if it is none."""
    return parse_files(read_files(folder), find_model(folder))


def read_description(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read `model.json` alone."""
    return parse_description(_read_description(folder), find_model(folder))


def _read_description(folder: str | os.PathLike[str]) -> bytes:
    path = find_model(folder) / DESCRIPTION
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if holds_checkpoint(path.parent):
            raise FileNotFoundError(
                f"{folder}: its training is not finished; run the same `bitprint train` to resume"
            ) from None
        raise FileNotFoundError(
            f"{folder}: not a model folder, model.json is missing; give the folder that "
            "hasher.save or `bitprint train` wrote"
        ) from None


def parse_files(
    files: Mapping[str, bytes], place: str | os.PathLike[str] = ""
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the description and the arrays of a model; `place` is for the errors."""
    missing = [name for name in (DESCRIPTION, WEIGHTS) if name not in files]
    if missing:
        raise ValueError(f"{Path(place) / missing[0]}: missing")
    document = parse_description(files[DESCRIPTION], place)
    path, weights = Path(place) / WEIGHTS, files[WEIGHTS]
    if hashlib.sha256(weights).hexdigest() != document.get("sha256"):
        raise ValueError(
            f"{path}: the checksum does not match model.json, "
            "the file is damaged or from another model"
        )
    try:
        return document, deserialise(weights)
    except Exception as error:  # types that NumPy lacks are no SafetensorError
        reason = " ".join(str(error).split())  # a name in the file may hold line breaks
        raise ValueError(f"{path}: not readable ({reason})") from error


def parse_description(content: bytes, place: str | os.PathLike[str] = "") -> dict[str, Any]:
    """Return what `model.json` contains; raises a ValueError if it describes no model."""
    path = Path(place) / DESCRIPTION
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"{path}: not a description of a Bitprint model")
    if document.get("version") != _VERSION:
        raise ValueError(
            f"{path}: a model of version {document.get('version')!r}, this is version {_VERSION}; "
            "upgrade bitprint to read it"
        )
    return document


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return the two files of a model as one safetensors file, with a checksum of both.

    Its entries are `model.json`, `model.safetensors` and `sha256`, as arrays of bytes.

    Examples
    --------
    >>> files = {"model.json": b"{}", "model.safetensors": b"..."}
    >>> unpack_files(pack_files(files)) == files
    True
    """
    parts = {name: files[name] for name in (DESCRIPTION, WEIGHTS)}
    parts["sha256"] = _checksum(parts)
    return serialise({name: np.frombuffer(part, np.uint8) for name, part in parts.items()})


def unpack_files(data: bytes) -> dict[str, bytes]:
    """Undo `pack_files`; raises a ValueError if these are not its bytes, or they are damaged."""
    try:
        parts = {name: array.tobytes() for name, array in deserialise(bytes(data)).items()}
    except Exception as error:  # types that NumPy lacks are no SafetensorError
        raise ValueError("not the bytes of a model, or only a part of them") from error
    if parts.keys() != {DESCRIPTION, WEIGHTS, "sha256"}:
        raise ValueError("not the bytes of a model; to read a model folder, use bitprint.load")
    if parts.pop("sha256") != _checksum(parts):
        raise ValueError("the checksum of the model does not match, its bytes are damaged")
    return parts


def _checksum(parts: Mapping[str, bytes]) -> bytes:
    digests = [hashlib.sha256(parts[name]).digest() for name in (DESCRIPTION, WEIGHTS)]
    return hashlib.sha256(b"".join(digests)).digest()


def read_about(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the further facts in `model.json`, those that are known; there need not be any."""
    return check_about(folder, read_description(folder))


def check_about(folder: str | os.PathLike[str], document: dict[str, Any]) -> dict[str, Any]:
    """Return the further facts of a description, or refuse those of the wrong type."""
    about = document.get("about", {})
    if isinstance(about, dict):
        about = {name: value for name, value in about.items() if value is not None}
        if all(type(about.get(name, kind())) is kind for name, kind in _FACTS.items()):
            return about
    raise ValueError(f'{find_model(folder) / DESCRIPTION}: invalid "about" section')


def _bitprint_version() -> str:
    try:
        return metadata.version("bitprint")
    except metadata.PackageNotFoundError:
        return "source tree"
