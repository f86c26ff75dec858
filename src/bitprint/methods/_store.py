"""The model folder: `model.safetensors` and `model.json`, written and read without pickle."""

from __future__ import annotations

import hashlib
import json
import os
import platform
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

_FORMAT = "bitprint.model"
_VERSION = 1
_FACTS = {"features": str, "size": int, "protocol": int, "seed": int}  # that are used again


def write_model(
    folder: str | os.PathLike[str], document: dict[str, Any], arrays: dict[str, NDArray]
) -> None:
    """Write a model folder; `model.json` comes last, so that it vouches for the weights."""
    folder = Path(folder)
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
    try:
        description = json.dumps(document, indent=2) + "\n"
    except RecursionError:  # the options of a model that was read are what its file says
        raise ValueError("options or facts of the model are nested too deeply to write") from None
    write_atomically(folder / "model.safetensors", weights)
    write_atomically(folder / "model.json", description.encode())


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


def read_model(folder: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Read a model folder, or refuse it in one sentence."""
    folder = find_model(folder)
    document = read_description(folder)
    try:
        weights = (folder / "model.safetensors").read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder}: model.safetensors is missing") from None
    if hashlib.sha256(weights).hexdigest() != document.get("sha256"):
        raise ValueError(
            f"{folder / 'model.safetensors'}: the checksum does not match model.json, "
            "the file is damaged or from another model"
        )
    try:
        return document, deserialise(weights)
    except Exception as error:  # types that NumPy lacks are no SafetensorError
        reason = " ".join(str(error).split())  # a name in the file may hold line breaks
        raise ValueError(f"{folder / 'model.safetensors'}: not readable ({reason})") from error


def read_description(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read `model.json` alone."""
    path = find_model(folder) / "model.json"
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        if holds_checkpoint(path.parent):
            raise FileNotFoundError(
                f"{folder}: its training is not finished; the same `bitprint train` goes on with it"
            ) from None
        raise FileNotFoundError(f"{folder}: not a model folder, model.json is missing") from None
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
    raise ValueError(f'{find_model(folder) / "model.json"}: invalid "about" section')


def _bitprint_version() -> str:
    try:
        return metadata.version("bitprint")
    except metadata.PackageNotFoundError:
        return "source tree"
