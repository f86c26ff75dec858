"""The hashing methods, one file each; `create` and `load` make them by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, get_type_hints

from torch import nn

from bitprint.arguments import check_seed, plain
from bitprint.devices import pick_device
from bitprint.methods._base import FeatureHasher, Hasher
from bitprint.methods._deep import DeepHasher
from bitprint.methods._options import check_kinds, check_names
from bitprint.methods._registry import METHODS, list_methods, method, register_method
from bitprint.methods._store import (
    check_about,
    find_model,
    parse_files,
    read_files,
    unpack_files,
)
from bitprint.methods.bre import BRE
from bitprint.methods.classifier import Classifier
from bitprint.methods.cnnh import CNNH, CNNHPlus
from bitprint.methods.dhn import DHN
from bitprint.methods.dlbhc import DLBHC
from bitprint.methods.dpsh import DPSH
from bitprint.methods.dqn import DQN
from bitprint.methods.drsch import DRSCH, DSCH
from bitprint.methods.dsdh import DSDH
from bitprint.methods.dsdh_ablations import DSDHA, DSDHB, DSDHC
from bitprint.methods.dsprh import DSPRH
from bitprint.methods.dsrh import DSRH
from bitprint.methods.dtsh import DTSH
from bitprint.methods.fasth import FastH
from bitprint.methods.itq import ITQ
from bitprint.methods.klsh import KLSH
from bitprint.methods.ksh import KSH
from bitprint.methods.lfh import LFH
from bitprint.methods.lsh import LSH
from bitprint.methods.ninh import NINH
from bitprint.methods.nmlsh import NMLSH
from bitprint.methods.oph import OPH
from bitprint.methods.sblsh import SBLSH
from bitprint.methods.sdh import SDH
from bitprint.methods.sh import SH
from bitprint.methods.splh import SPLH
from bitprint.methods.ssdh import SSDH
from bitprint.methods.vdsh import VDSH
from bitprint.nets.module import Module
from bitprint.training.plan import Training

__all__ = [
    "BRE",
    "CNNH",
    "DHN",
    "DLBHC",
    "DPSH",
    "DQN",
    "DRSCH",
    "DSCH",
    "DSDH",
    "DSDHA",
    "DSDHB",
    "DSDHC",
    "DSPRH",
    "DSRH",
    "DTSH",
    "ITQ",
    "KLSH",
    "KSH",
    "LFH",
    "LSH",
    "METHODS",
    "NINH",
    "NMLSH",
    "OPH",
    "SBLSH",
    "SDH",
    "SH",
    "SPLH",
    "SSDH",
    "VDSH",
    "CNNHPlus",
    "Classifier",
    "DeepHasher",
    "FastH",
    "FeatureHasher",
    "Hasher",
    "create",
    "list_methods",
    "load",
    "load_bytes",
    "method",
    "register_method",
]

_DATA_INDEPENDENT = (LSH, SBLSH, KLSH, NMLSH)
_UNSUPERVISED = (SH, ITQ)
_SUPERVISED = (BRE, KSH, SPLH, FastH, LFH, SDH, OPH, VDSH)
_DEEP = (CNNH, CNNHPlus, NINH, DSRH, DSCH, DRSCH, DQN, DHN, DPSH, DTSH, DLBHC, SSDH, DSPRH)
_DSDH = (DSDH, DSDHA, DSDHB, DSDHC)
_BASELINES = (Classifier,)

for _cls in (*_DATA_INDEPENDENT, *_UNSUPERVISED, *_SUPERVISED, *_DEEP, *_DSDH, *_BASELINES):
    register_method(_cls)


def create(name: str, bits: int, **options: Any) -> Hasher:
    """Make a hasher that is not yet fitted.

    Parameters
    ----------
    name : str
        One of `list_methods()`.
    bits : int
        Length of the codes.
    **options
        Arguments of the method's class. Every method takes a `seed` from 0 to 2^63 - 1, even one
        that draws nothing at random.

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
    """Load a model that `Hasher.save` wrote, or one that comes with Bitprint, by its name.

    Parameters
    ----------
    folder : path
    backbone : Module, optional
        For a model that was trained with ``backbone=module``: a module of the same class. A copy
        of it gets the stored weights. What its code does is not stored.

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
    """Load a model from the bytes that `Hasher.to_bytes` returned.

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
    """Load a model from the contents of `model.json` and `model.safetensors`, by these names.

    Parameters
    ----------
    files : dict of str to bytes
    place : path, optional
        Where the files are, for the errors.
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
    except Exception as error:  # values that do not fit make methods raise almost anything
        reason = " ".join(str(error).split())  # torch writes a line for each tensor
        where = f"{place}: " if str(place) else ""
        given = "model.json" if backbone is None else "model.json with the given backbone"
        raise ValueError(f"{where}{given} does not describe its weights ({reason})") from error
    hasher._about = check_about(place, document)
    return hasher


def _device_here(name: str) -> str:
    """Return a device that a model was stored with, or "auto" where this machine lacks it."""
    try:
        pick_device(name)
    except ValueError:
        return "auto"
    return name


def _check_module(
    folder: str | os.PathLike[str], document: dict[str, Any], backbone: nn.Module | None
) -> None:
    """Raise a ValueError unless a module is given for a model that needs one, and only then."""
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
            f"{where}this model needs its module, a {stored.get('class')}: {call}, backbone=module)"
        )
    if stored is None and backbone is not None:
        raise ValueError(f"{where}this model needs no module: {call})")


def _kinds(cls: type[Hasher]) -> dict[str, Any]:
    """The options of a method, with their annotations; one that has none takes anything."""
    annotations: dict[str, Any] = {}
    for owner in (DeepHasher, cls) if issubclass(cls, DeepHasher) else (cls,):
        try:
            annotations |= get_type_hints(owner.__init__)
        except NameError:  # a name that a method of one's own imports for type checkers alone
            continue
    kinds = {"seed": int} | {n: annotations.get(n, object) for n in cls._get_param_names()}
    kinds.pop("bits", None)
    return kinds
