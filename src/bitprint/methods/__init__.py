"""The hashing methods, one file each; `create` and `load` return them by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

from torch import nn

from bitprint.methods._base import FeatureHasher, Hasher
from bitprint.methods._deep import DeepHasher
from bitprint.methods._options import check_kinds, check_names
from bitprint.methods._registry import (
    METHODS,
    list_methods,
    method,
    register_method,
    sort_methods,
)
from bitprint.methods._store import (
    check_about,
    find_model,
    parse_files,
    read_files,
    unpack_files,
)
from bitprint.nets.module import Module
from bitprint.training.plan import Training
from bitprint.utils.arguments import check_seed, plain
from bitprint.utils.devices import pick_device
from bitprint.utils.discovery import decorated_classes

__all__ = [
    "METHODS",
    "DeepHasher",
    "FeatureHasher",
    "Hasher",
    "create",
    "list_methods",
    "load",
    "load_bytes",
    "method",
    "register_method",
]

# Import the modules of this folder that register a method, and export their classes.
_BUILT_IN = decorated_classes(Path(__file__).parent, "register_method")
for _class, _module in _BUILT_IN.items():
    globals()[_class] = getattr(import_module(f"{__name__}.{_module}"), _class)
__all__ += _BUILT_IN.keys()
sort_methods()


def create(name: str, bits: int, **options: Any) -> Hasher:
    """Create an unfitted hasher.

    Parameters
    ----------
    name : str
        One of `list_methods()`.
    bits : int
        Length of the codes.
    **options
        Arguments of the method's class. Every method accepts a `seed` from 0 to 2^63 - 1, also a
        method without randomness.

    Examples
    --------
    >>> create("dsdh", bits=48, epochs=40)
    DSDH(bits=48, epochs=40)
    """
    cls = method(name)
    kinds = _kinds(cls)
    options = {option: plain(value) for option, value in options.items()}
    check_names(name, options, set(kinds))
    check_kinds(name, options, kinds)
    check_seed(options.get("seed", 0))
    if "seed" not in cls._get_param_names():
        options.pop("seed", None)
    hasher = cls(plain(bits), **options)
    if isinstance(hasher, DeepHasher):
        hasher._check_numbers()
    return hasher


def load(folder: str | os.PathLike[str], *, backbone: nn.Module | None = None) -> Hasher:
    """Load a saved model.

    Parameters
    ----------
    folder : path
        Folder written by `Hasher.save`, or the name of a model that is included in Bitprint.
    backbone : Module, optional
        For a model that was trained with ``backbone=module``: a module of the same class. The
        stored weights are loaded into a copy of it. The code of the module is not stored.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> features = np.random.default_rng(0).normal(size=(100, 8))
    >>> hasher = create("itq", bits=4).fit(features)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hasher.save(folder)
    ...     again = load(folder)
    >>> again, again.encode(features) == hasher.encode(features)
    (ITQ(bits=4), True)
    >>> load("coco-64").bits
    64
    """
    return load_files(read_files(folder), find_model(folder), backbone=backbone)


def load_bytes(data: bytes, *, backbone: nn.Module | None = None) -> Hasher:
    """Load a model from the bytes returned by `Hasher.to_bytes`.

    Parameters
    ----------
    data : bytes
    backbone : Module, optional
        As in `load`.

    Examples
    --------
    >>> import numpy as np
    >>> hasher = create("lsh", bits=4).fit(np.eye(8))
    >>> load_bytes(hasher.to_bytes())
    LSH(bits=4)
    """
    return load_files(unpack_files(data), backbone=backbone)


def load_files(
    files: Mapping[str, bytes],
    place: str | os.PathLike[str] = "",
    *,
    backbone: nn.Module | None = None,
) -> Hasher:
    """Load a model from the contents of its two files.

    Parameters
    ----------
    files : dict of str to bytes
        Contents of `model.json` and `model.safetensors`, with these names as keys.
    place : path, optional
        Location of the files, used in error messages.
    backbone : Module, optional
        As in `load`.

    Examples
    --------
    >>> load_files({"model.json": b"{}"})
    Traceback (most recent call last):
    ValueError: model.safetensors: missing
    """
    document, arrays = parse_files(files, place)
    _check_module(place, document, backbone)
    try:
        cls, options = method(document["method"]), dict(document["options"])
        if issubclass(cls, DeepHasher):
            options.setdefault("recipe", "original")  # models of versions without recipes
        if "training" in options:
            options["training"] = Training(**options["training"])
        if backbone is not None:
            options["backbone"] = backbone
        if "device" in options:
            options["device"] = _device_here(options["device"])
        hasher = cls(**options)
        hasher._restore(arrays, document["fitted"])
    except Exception as error:  # invalid values can raise almost any exception
        reason = " ".join(str(error).split())  # torch reports one line per tensor
        where = f"{place}: " if str(place) else ""
        given = "model.json" if backbone is None else "model.json with the given backbone"
        raise ValueError(f"{where}{given} does not match the weights ({reason})") from error
    hasher._about = check_about(place, document)
    return hasher


def _device_here(name: str) -> str:
    """Return the stored device name, or "auto" if this machine has no such device."""
    try:
        pick_device(name)
    except ValueError:
        return "auto"
    return name


def _check_module(
    folder: str | os.PathLike[str], document: dict[str, Any], backbone: nn.Module | None
) -> None:
    """Raise a ValueError if a module is missing for a model that needs one, or superfluous."""
    fitted = document.get("fitted")
    trunk = fitted.get("trunk") if isinstance(fitted, dict) else None
    stored = trunk if isinstance(trunk, dict) and trunk.get("name") == Module.name else None
    where, call = (
        (f"{folder}: ", f"bp.load({os.fspath(folder)!r}")
        if str(folder)
        else (
            "",
            "bp.load_bytes(data",
        )
    )
    if backbone is not None and not isinstance(backbone, nn.Module):
        raise ValueError(f"backbone must be a torch module, got {type(backbone).__name__}")
    if stored is not None and backbone is None:
        raise ValueError(
            f"{where}this model needs a {stored.get('class')} as its backbone: {call}, "
            "backbone=module)"
        )
    if stored is None and backbone is not None:
        raise ValueError(f"{where}this model takes no backbone: {call})")


def _kinds(cls: type[Hasher]) -> dict[str, Any]:
    """Return the options of a method with their annotations; without annotation, `object`."""
    annotations: dict[str, Any] = {}
    for owner in (DeepHasher, cls) if issubclass(cls, DeepHasher) else (cls,):
        try:
            annotations |= get_type_hints(owner.__init__)
        except NameError:  # the annotation uses a name imported under TYPE_CHECKING
            continue
    kinds = {"seed": int} | {n: annotations.get(n, object) for n in cls._get_param_names()}
    kinds.pop("bits", None)
    return kinds
