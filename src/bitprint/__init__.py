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
    from bitprint.methods import create, list_methods, load
    from bitprint.search.index import Index
    from bitprint.search.stores import open_index
    from bitprint.training.plan import Training
    from bitprint.workflows import evaluate_split, split, train

__all__ = [
    "Codes",
    "ImageSet",
    "Index",
    "Training",
    "__version__",
    "create",
    "evaluate",
    "evaluate_split",
    "list_methods",
    "load",
    "open_images",
    "open_index",
    "split",
    "train",
]

# Each name is imported when it is first used: torch alone takes seconds, and most commands start
# by parsing their arguments.
_HOMES = {
    "Codes": "bitprint.codes",
    "ImageSet": "bitprint.data.images",
    "Index": "bitprint.search.index",
    "Training": "bitprint.training.plan",
    "create": "bitprint.methods",
    "evaluate": "bitprint.evaluation.metrics",
    "evaluate_split": "bitprint.workflows",
    "list_methods": "bitprint.methods",
    "load": "bitprint.methods",
    "open_images": "bitprint.data",
    "open_index": "bitprint.search.stores",
    "split": "bitprint.workflows",
    "train": "bitprint.workflows",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitprint' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
