"""Reader for MatConvNet networks in .mat files, in both published layouts."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

# Kinds of layers, by the names in both layouts.
_KINDS = {"conv": "conv", "relu": "relu", "pool": "pool", "normalize": "lrn", "lrn": "lrn"}

_COMPRESSED = 15  # type of an element that is compressed by zlib
_BLOCK = 2**20


@dataclass(frozen=True)
class MatLayer:
    """One layer of a file.

    Attributes
    ----------
    name : str
        "conv1", "relu1", ...
    kind : str
        "conv", "relu", "pool", "lrn", or another type in the file.
    filters : ndarray of float32, shape (out, in, height, width), or None
        In the axis order of PyTorch.
    biases : ndarray of float32, shape (out,), or None
    stride : tuple of int, or None
        (vertical, horizontal).
    pad : tuple of int, or None
        (top, bottom, left, right).
    normalization : tuple of float, or None
        (n, kappa, alpha, beta) of local response normalization, alpha not divided by n.
    """

    name: str
    kind: str
    filters: NDArray[np.float32] | None = None
    biases: NDArray[np.float32] | None = None
    stride: tuple[int, ...] | None = None
    pad: tuple[int, ...] | None = None
    normalization: tuple[float, ...] | None = None


@dataclass(frozen=True)
class MatNetwork:
    """Layers of a file, in order, and its mean image: (3, height, width) or (3, 1, 1)."""

    layers: list[MatLayer]
    mean: NDArray[np.float32]


def read_matconvnet(path: str | os.PathLike[str]) -> MatNetwork:
    """Read a MatConvNet file of MATLAB version 5 in either layout.

    Old files store `filters` and `biases` in a layer and `normalization` at the top level; newer
    files store `weights` in a layer and `normalization` inside `meta`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such MatConvNet file")
    content = _load(path)
    try:
        if "meta" in content:
            normalization = _struct(_struct(content["meta"])["normalization"])
        else:
            normalization = _struct(content["normalization"])
        mean = np.asarray(normalization["averageImage"], np.float32)
        layers = [_read_layer(_struct(cell)) for cell in content["layers"].ravel()]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a MatConvNet network ({error})") from error
    if mean.ndim == 1:
        mean = mean.reshape(1, 1, -1)
    if mean.ndim != 3 or mean.shape[2] != 3:
        raise ValueError(f"{path}: the mean image has shape {mean.shape}, not (height, width, 3)")
    return MatNetwork(layers, np.ascontiguousarray(mean.transpose(2, 0, 1)))


def _load(path: Path) -> dict[str, Any]:
    try:
        _check_compressed(path)
        return loadmat(path, appendmat=False, variable_names=["layers", "meta", "normalization"])
    except NotImplementedError as error:  # raised by SciPy for version 7.3, which is HDF5
        raise ValueError(
            f"{path}: a MATLAB 7.3 file; save it again in MATLAB with the option -v7"
        ) from error
    except Exception as error:  # SciPy raises many types for damaged files
        raise ValueError(f"{path}: not a MATLAB file, or damaged ({error})") from error


def _check_compressed(path: Path) -> None:
    """Raise zlib.error for a damaged compressed element, which would crash SciPy's reader."""
    with path.open("rb") as file:
        order: Literal["little", "big"] = "little" if file.read(128)[126:] == b"IM" else "big"
        while len(tag := file.read(8)) == 8:
            kind, size = (int.from_bytes(tag[place : place + 4], order) for place in (0, 4))
            if kind != _COMPRESSED:
                file.seek(size, os.SEEK_CUR)
                continue
            inflater = zlib.decompressobj()
            while size > 0 and (block := file.read(min(size, _BLOCK))):
                size -= len(block)
                while block:
                    inflater.decompress(block, _BLOCK)
                    block = inflater.unconsumed_tail
            if not inflater.eof:
                raise zlib.error("a compressed part ends too early")


def _struct(value: Any) -> dict[str, Any]:
    """Return a 1 x 1 MATLAB struct as a dict."""
    record = np.asarray(value)
    if record.dtype.names is None or record.size != 1:
        raise ValueError("a struct was expected")
    return {name: record[name].item() for name in record.dtype.names}


def _read_layer(layer: dict[str, Any]) -> MatLayer:
    kind = _text(layer["type"])
    kind = _KINDS.get(kind, kind)
    filters, biases = _weights(layer) if kind == "conv" else (None, None)
    return MatLayer(
        name=_text(layer["name"]),
        kind=kind,
        filters=filters,
        biases=biases,
        stride=_integers(layer, "stride", 2),
        pad=_integers(layer, "pad", 4),
        normalization=_four_numbers(layer["param"]) if kind == "lrn" else None,
    )


def _weights(layer: dict[str, Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    if np.size(layer.get("weights", ())) == 2:
        filters, biases = np.ravel(layer["weights"])
    else:
        filters, biases = layer["filters"], layer["biases"]
    if np.ndim(filters) != 4:
        raise ValueError(f"filters of {_text(layer['name'])} have shape {np.shape(filters)}")
    # MATLAB stores filters as height x width x in x out and correlates as PyTorch does.
    filters = np.ascontiguousarray(np.transpose(filters, (3, 2, 0, 1)), np.float32)
    return filters, np.asarray(biases, np.float32).ravel()


def _integers(layer: dict[str, Any], field: str, count: int) -> tuple[int, ...] | None:
    """Return `count` integers, which a file may abbreviate to one; None if it has none."""
    values = np.asarray(layer.get(field, ())).ravel()
    if values.size == 0:
        return None
    return tuple(int(value) for value in np.broadcast_to(values, count))


def _four_numbers(values: Any) -> tuple[float, ...]:
    numbers = np.asarray(values, np.float64).ravel()
    if numbers.size != 4:
        raise ValueError(f"normalization needs 4 numbers, got {numbers.size}")
    return tuple(numbers.tolist())


def _text(value: Any) -> str:
    return str(np.asarray(value).ravel()[0])
