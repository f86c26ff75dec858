"""Mutation of safetensors files with valid lengths, offsets and checksums."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from typing import NamedTuple

from fuzz.mutating import change_bytes, change_in_place, change_text

_WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "I16": 2, "BF16": 2, "F32": 4, "F64": 8}
_SHAPES: tuple[list[int], ...] = (
    [],
    [0],
    [1],
    [3],
    [2, 1],
    [5, 2],
    [0, 4],
    [2, 4, 3],
    [1, 1, 1, 1],
)


class Tensor(NamedTuple):
    """One tensor of a file."""

    dtype: str
    shape: list[int]
    content: bytes


class Tensors(NamedTuple):
    """Contents of a file."""

    metadata: dict[str, str]
    tensors: dict[str, Tensor]


def unpack(data: bytes) -> Tensors:
    """Parse a safetensors file."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    metadata = header.pop("__metadata__", {})
    tensors = {
        name: Tensor(about["dtype"], about["shape"], data[end:][slice(*about["data_offsets"])])
        for name, about in header.items()
    }
    return Tensors(metadata, tensors)


def pack(parts: Tensors) -> bytes:
    """Serialize a safetensors file."""
    header: dict[str, object] = {"__metadata__": parts.metadata}
    content = b""
    for name, tensor in parts.tensors.items():
        offsets = [len(content), len(content) + len(tensor.content)]
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
        content += tensor.content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def change_tensors(
    data: bytes,
    rng: random.Random,
    field: str | None = None,
    checksum: Callable[[bytes, dict[str, str]], str] | None = None,
) -> bytes:
    """Change a tensor or the metadata, and fix the checksum in the metadata field `field`."""
    parts = unpack(data)
    if parts.metadata and rng.random() < 0.4:
        parts = parts._replace(metadata=_change_metadata(parts.metadata, rng))
    else:
        parts = parts._replace(tensors=_change_one(parts.tensors, rng))
    if field is not None and checksum is not None:
        old = parts.metadata.pop(field, "")
        try:
            parts.metadata[field] = checksum(pack(parts), parts.metadata)
        except Exception:  # unreadable tensors have no valid checksum
            parts.metadata[field] = old
    return pack(parts)


def _change_metadata(metadata: dict[str, str], rng: random.Random) -> dict[str, str]:
    name = rng.choice(list(metadata))
    return metadata | {name: change_text(metadata[name], rng)}


def _change_one(tensors: dict[str, Tensor], rng: random.Random) -> dict[str, Tensor]:
    name = rng.choice(list(tensors))
    tensor = tensors[name]
    kind = rng.randrange(4)
    if kind == 0 and tensor.content:
        return tensors | {name: tensor._replace(content=change_in_place(tensor.content, rng))}
    rest = {other: value for other, value in tensors.items() if other != name}
    if kind == 1:
        return rest
    if kind == 2:
        return rest | {change_bytes(name.encode(), rng).decode("utf-8", "replace"): tensor}
    dtype, shape = rng.choice(list(_WIDTHS)), rng.choice((*_SHAPES, tensor.shape))
    size = _WIDTHS[dtype]
    for side in shape:
        size *= side
    return rest | {name: Tensor(dtype, list(shape), rng.randbytes(size))}
