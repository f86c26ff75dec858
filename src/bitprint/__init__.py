"""Bitprint: learn short binary codes for images and search them by Hamming distance."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bitprint.utils.discovery import decorated_classes
from bitprint.version import __version__

if TYPE_CHECKING:  # for editors and type checkers; a method that is missing here has type Any
    from bitprint.codes import Codes as Codes
    from bitprint.data import open_images as open_images
    from bitprint.data.images import ImageSet as ImageSet
    from bitprint.evaluation.metrics import evaluate as evaluate
    from bitprint.methods import create as create
    from bitprint.methods import list_methods as list_methods
    from bitprint.methods import load as load
    from bitprint.methods import load_bytes as load_bytes
    from bitprint.methods import register_method as register_method
    from bitprint.methods.bre import BRE as BRE
    from bitprint.methods.classifier import Classifier as Classifier
    from bitprint.methods.cnnh import CNNH as CNNH
    from bitprint.methods.cnnh import CNNHPlus as CNNHPlus
    from bitprint.methods.criterion import criterion as criterion
    from bitprint.methods.dch import DCH as DCH
    from bitprint.methods.dfh import DFH as DFH
    from bitprint.methods.dhn import DHN as DHN
    from bitprint.methods.dlbhc import DLBHC as DLBHC
    from bitprint.methods.dpsh import DPSH as DPSH
    from bitprint.methods.dqn import DQN as DQN
    from bitprint.methods.drsch import DRSCH as DRSCH
    from bitprint.methods.drsch import DSCH as DSCH
    from bitprint.methods.dsdh import DSDH as DSDH
    from bitprint.methods.dsdh_ablations import DSDHA as DSDHA
    from bitprint.methods.dsdh_ablations import DSDHB as DSDHB
    from bitprint.methods.dsdh_ablations import DSDHC as DSDHC
    from bitprint.methods.dsh import DSH as DSH
    from bitprint.methods.dsprh import DSPRH as DSPRH
    from bitprint.methods.dsrh import DSRH as DSRH
    from bitprint.methods.dtsh import DTSH as DTSH
    from bitprint.methods.fasth import FastH as FastH
    from bitprint.methods.greedyhash import GreedyHash as GreedyHash
    from bitprint.methods.hashnet import HashNet as HashNet
    from bitprint.methods.itq import ITQ as ITQ
    from bitprint.methods.jmlh import JMLH as JMLH
    from bitprint.methods.klsh import KLSH as KLSH
    from bitprint.methods.ksh import KSH as KSH
    from bitprint.methods.lfh import LFH as LFH
    from bitprint.methods.lsh import LSH as LSH
    from bitprint.methods.mihash import MIHash as MIHash
    from bitprint.methods.nested_itq import NestedITQ as NestedITQ
    from bitprint.methods.ninh import NINH as NINH
    from bitprint.methods.nmlsh import NMLSH as NMLSH
    from bitprint.methods.oph import OPH as OPH
    from bitprint.methods.rabitq import RaBitQ as RaBitQ
    from bitprint.methods.sblsh import SBLSH as SBLSH
    from bitprint.methods.sdh import SDH as SDH
    from bitprint.methods.sh import SH as SH
    from bitprint.methods.splh import SPLH as SPLH
    from bitprint.methods.ssdh import SSDH as SSDH
    from bitprint.methods.talr import TALR as TALR
    from bitprint.methods.vdsh import VDSH as VDSH
    from bitprint.nets import register_backbone as register_backbone
    from bitprint.photos import Photos as Photos
    from bitprint.search.index import Index as Index
    from bitprint.search.stores import open_index as open_index
    from bitprint.training.indexed import IndexedDataset as IndexedDataset
    from bitprint.training.plan import Training as Training
    from bitprint.vectors import VectorIndex as VectorIndex
    from bitprint.vectors import open_vectors as open_vectors
    from bitprint.workflows import evaluate_split as evaluate_split
    from bitprint.workflows import split as split
    from bitprint.workflows import train as train

# Names are imported on first use, because importing torch takes seconds.
_HOMES = {
    "Codes": "bitprint.codes",
    "ImageSet": "bitprint.data.images",
    "Index": "bitprint.search.index",
    "IndexedDataset": "bitprint.training.indexed",
    "Photos": "bitprint.photos",
    "Training": "bitprint.training.plan",
    "VectorIndex": "bitprint.vectors",
    "create": "bitprint.methods",
    "criterion": "bitprint.methods.criterion",
    "evaluate": "bitprint.evaluation.metrics",
    "evaluate_split": "bitprint.workflows",
    "list_methods": "bitprint.methods",
    "load": "bitprint.methods",
    "load_bytes": "bitprint.methods",
    "open_images": "bitprint.data",
    "open_index": "bitprint.search.stores",
    "open_vectors": "bitprint.vectors",
    "register_backbone": "bitprint.nets",
    "register_method": "bitprint.methods",
    "split": "bitprint.workflows",
    "train": "bitprint.workflows",
}
_METHODS = decorated_classes(Path(__file__).parent / "methods", "register_method")
_HOMES |= dict.fromkeys(_METHODS, "bitprint.methods")

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'bitprint' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
