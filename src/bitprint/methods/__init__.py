"""The hashing methods, one file each; `create` and `load` make them by name."""

from __future__ import annotations

import os
from typing import Any, get_type_hints

from bitprint.arguments import check_seed, plain
from bitprint.methods._base import FeatureHasher, Hasher
from bitprint.methods._deep import DeepHasher
from bitprint.methods._options import check_kinds, check_names
from bitprint.methods._registry import METHODS, list_methods, method, register_method
from bitprint.methods._store import check_about, read_model
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


def load(folder: str | os.PathLike[str]) -> Hasher:
    """Load a model that `Hasher.save` wrote, or one that comes with Bitprint, by its name.

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
    document, arrays = read_model(folder)
    try:
        cls, options = method(document["method"]), dict(document["options"])
        if issubclass(cls, DeepHasher):
            options.setdefault("recipe", "original")  # models of versions without recipes
        if "training" in options:
            options["training"] = Training(**options["training"])
        hasher = cls(**options)
        hasher._restore(arrays, document["fitted"])
    except Exception as error:  # values that do not fit make methods raise almost anything
        reason = " ".join(str(error).split())  # torch writes a line for each tensor
        raise ValueError(
            f"{folder}: model.json does not describe its weights ({reason})"
        ) from error
    hasher._about = check_about(folder, document)
    return hasher


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
