"""Read and write models: `model.json` and `model.safetensors`, in a folder or as bytes."""

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
from safetensors.numpy import load as deserialize
from safetensors.numpy import save as serialize

from bitprint.training.run import has_checkpoint
from bitprint.utils.files import partial_of, read_regular, write_in_order

PUBLISHED = Path(__file__).parents[1] / "published"
"""Folder of the models that are included in Bitprint."""

DESCRIPTION, WEIGHTS = "model.json", "model.safetensors"
"""Names of the two files of a model."""

_FORMAT = "bitprint.model"
_VERSION = 1
_FACTS = {"features": str, "size": int, "protocol": int, "seed": int}  # facts with a fixed type


def to_files(document: dict[str, Any], arrays: dict[str, NDArray]) -> dict[str, bytes]:
    """Return the contents of the two files by name; `model.json` has the checksum of the weights.

    Examples
    --------
    >>> files = to_files({"method": "itq"}, {"mean_": np.zeros(3)})
    >>> document, arrays = parse_files(files)
    >>> document["method"], arrays["mean_"].tolist()
    ('itq', [0.0, 0.0, 0.0])
    """
    _check_finite(arrays, WEIGHTS)
    weights = serialize({name: np.ascontiguousarray(value) for name, value in arrays.items()})
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
    except RecursionError:  # possible for the options of a loaded model
        raise ValueError("options or facts of the model are nested too deeply to save") from None


def write_model(
    folder: str | os.PathLike[str], document: dict[str, Any], arrays: dict[str, NDArray]
) -> None:
    """Write a model folder; after a crash, it has the old or the new model."""
    files = to_files(document, arrays)
    write_in_order({Path(folder) / name: files[name] for name in (WEIGHTS, DESCRIPTION)})


def find_model(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a model folder, or of an included model with that name.

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
    """Read the two files of a model folder or of an included model."""
    description = _read_description(folder)
    try:
        weights = read_regular(find_model(folder) / WEIGHTS)
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder}: {WEIGHTS} is missing") from None
    return {DESCRIPTION: description, WEIGHTS: weights}


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read a model folder; raise a ValueError or FileNotFoundError if it is invalid."""
    return parse_files(read_files(folder), find_model(folder))


def read_description(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read only `model.json`."""
    return parse_description(_read_description(folder), find_model(folder))


def _read_description(folder: str | os.PathLike[str]) -> bytes:
    path = find_model(folder) / DESCRIPTION
    try:
        content = read_regular(path)
        return _interrupted_description(path) or content
    except (FileNotFoundError, NotADirectoryError):
        if has_checkpoint(path.parent):
            raise FileNotFoundError(
                f"{folder}: its training is not finished; run the same `bitprint train` to resume"
            ) from None
        raise FileNotFoundError(
            f"{folder}: not a model folder, model.json is missing; give the folder that "
            "hasher.save or `bitprint train` wrote"
        ) from None


def _interrupted_description(path: Path) -> bytes | None:
    """Return the description of new weights, if it was complete but not renamed before a crash."""
    try:
        content = read_regular(partial_of(path))
        weights = read_regular(path.with_name(WEIGHTS))
        document = parse_description(content)
    except (OSError, ValueError):
        return None
    return content if document.get("sha256") == hashlib.sha256(weights).hexdigest() else None


def parse_files(
    files: Mapping[str, bytes], place: str | os.PathLike[str] = ""
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the description and the arrays of a model; `place` is used in error messages."""
    missing = [name for name in (DESCRIPTION, WEIGHTS) if name not in files]
    if missing:
        raise ValueError(f"{Path(place) / missing[0]}: missing")
    document = parse_description(files[DESCRIPTION], place)
    path, weights = Path(place) / WEIGHTS, files[WEIGHTS]
    if hashlib.sha256(weights).hexdigest() != document.get("sha256"):
        raise ValueError(
            f"{path}: the checksum does not match model.json; "
            "the file is damaged or belongs to another model"
        )
    try:
        arrays = deserialize(weights)
    except Exception as error:  # unknown dtypes do not raise SafetensorError
        reason = " ".join(str(error).split())  # names in the file can contain line breaks
        raise ValueError(f"{path}: not readable ({reason})") from error
    _check_finite(arrays, path)
    return document, arrays


def _check_finite(arrays: Mapping[str, NDArray], path: str | os.PathLike[str]) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise ValueError(f"{path}: {name!r} contains NaN or infinity; train the model again")


def parse_description(content: bytes, place: str | os.PathLike[str] = "") -> dict[str, Any]:
    """Parse `model.json`; raise a ValueError if it does not describe a model."""
    path = Path(place) / DESCRIPTION
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ValueError(f"{path}: not a Bitprint model description")
    if document.get("version") != _VERSION:
        raise ValueError(
            f"{path}: a model of version {document.get('version')!r}, this is version {_VERSION}; "
            "upgrade bitprint to read it"
        )
    return document


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Return the two files of a model as one safetensors file with a checksum.

    The entries `model.json`, `model.safetensors` and `sha256` are arrays of bytes.

    Examples
    --------
    >>> files = {"model.json": b"{}", "model.safetensors": b"..."}
    >>> unpack_files(pack_files(files)) == files
    True
    """
    parts = {name: files[name] for name in (DESCRIPTION, WEIGHTS)}
    parts["sha256"] = _checksum(parts)
    return serialize({name: np.frombuffer(part, np.uint8) for name, part in parts.items()})


def unpack_files(data: bytes) -> dict[str, bytes]:
    """Return the files packed by `pack_files`; raise a ValueError if the bytes are damaged."""
    try:
        parts = {name: array.tobytes() for name, array in deserialize(bytes(data)).items()}
    except Exception as error:  # unknown dtypes do not raise SafetensorError
        raise ValueError("not a complete serialized model") from error
    if parts.keys() != {DESCRIPTION, WEIGHTS, "sha256"}:
        raise ValueError("not a serialized model; to read a model folder, use bitprint.load")
    if parts.pop("sha256") != _checksum(parts):
        raise ValueError("the checksum of the model does not match; the data are damaged")
    return parts


def _checksum(parts: Mapping[str, bytes]) -> bytes:
    digests = [hashlib.sha256(parts[name]).digest() for name in (DESCRIPTION, WEIGHTS)]
    return hashlib.sha256(b"".join(digests)).digest()


def read_about(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the "about" section of `model.json`, without missing values."""
    return check_about(folder, read_description(folder))


def check_about(folder: str | os.PathLike[str], document: dict[str, Any]) -> dict[str, Any]:
    """Return the "about" section of a description; raise a ValueError for a wrong type."""
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
