"""Bitprint: learn short binary codes for images and search them by Hamming distance."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bitprint.version import __version__

if TYPE_CHECKING:
    from bitprint.codes import Codes
    from bitprint.data import open_images
    from bitprint.data.images import ImageSet
    from bitprint.evaluation.metrics import evaluate
    from bitprint.methods import (
        BRE,
        CNNH,
        DHN,
        DLBHC,
        DPSH,
        DQN,
        DRSCH,
        DSCH,
        DSDH,
        DSDHA,
        DSDHB,
        DSDHC,
        DSPRH,
        DSRH,
        DTSH,
        ITQ,
        KLSH,
        KSH,
        LFH,
        LSH,
        NINH,
        NMLSH,
        OPH,
        SBLSH,
        SDH,
        SH,
        SPLH,
        SSDH,
        VDSH,
        Classifier,
        CNNHPlus,
        FastH,
        create,
        list_methods,
        load,
        load_bytes,
        register_method,
    )
    from bitprint.methods.criterion import criterion
    from bitprint.nets import register_backbone
    from bitprint.photos import Photos
    from bitprint.search.index import Index
    from bitprint.search.stores import open_index
    from bitprint.training.indexed import IndexedDataset
    from bitprint.training.plan import Training
    from bitprint.workflows import evaluate_split, split, train

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
    "Codes",
    "FastH",
    "ImageSet",
    "Index",
    "IndexedDataset",
    "Photos",
    "Training",
    "__version__",
    "create",
    "criterion",
    "evaluate",
    "evaluate_split",
    "list_methods",
    "load",
    "load_bytes",
    "open_images",
    "open_index",
    "register_backbone",
    "register_method",
    "split",
    "train",
]

# Each name is imported when it is first used, because importing torch alone takes seconds.
_METHODS = "bitprint.methods"  # home of the names that are not listed here
_HOMES = {
    "Codes": "bitprint.codes",
    "ImageSet": "bitprint.data.images",
    "Index": "bitprint.search.index",
    "IndexedDataset": "bitprint.training.indexed",
    "Photos": "bitprint.photos",
    "Training": "bitprint.training.plan",
    "criterion": "bitprint.methods.criterion",
    "evaluate": "bitprint.evaluation.metrics",
    "evaluate_split": "bitprint.workflows",
    "open_images": "bitprint.data",
    "open_index": "bitprint.search.stores",
    "register_backbone": "bitprint.nets",
    "split": "bitprint.workflows",
    "train": "bitprint.workflows",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bitprint' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, _METHODS)), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
