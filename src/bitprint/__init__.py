"""Bitprint: learn short binary codes for images and search them by Hamming distance."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bitprint.version import __version__

if TYPE_CHECKING:
    from bitprint.codes import Codes
    from bitprint.data.images import ImageSet
    from bitprint.evaluation.metrics import evaluate
    from bitprint.methods import create, list_methods, load
    from bitprint.methods.criterion import criterion
    from bitprint.search.index import Index
    from bitprint.search.stores import open_index
    from bitprint.training.plan import Training

__all__ = [
    "Codes",
    "ImageSet",
    "Index",
    "Training",
    "__version__",
    "create",
    "criterion",
    "evaluate",
    "list_methods",
    "load",
    "open_index",
]

# Each name is imported when it is first used: torch alone takes seconds, and most commands start
# by parsing their arguments.
_HOMES = {
    "Codes": "bitprint.codes",
    "ImageSet": "bitprint.data.images",
    "Index": "bitprint.search.index",
    "Training": "bitprint.training.plan",
    "create": "bitprint.methods",
    "criterion": "bitprint.methods.criterion",
    "evaluate": "bitprint.evaluation.metrics",
    "list_methods": "bitprint.methods",
    "load": "bitprint.methods",
    "open_index": "bitprint.search.stores",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitprint' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
