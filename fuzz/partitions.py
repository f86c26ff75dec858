"""Parquet files of a cluster: the listing of the images and a partition of codes.

The first byte selects the file to fuzz; the other file is valid.
"""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from bitprint.cluster.listing import SourceListing
from bitprint.cluster.partitions import Job, _to_bytes, part_name, read_codes, start_job, to_parquet
from bitprint.codes import Codes
from fuzz.harness import Target
from fuzz.mutating import change_json

_NAMES = {b"l": "_listing.parquet", b"p": part_name(0)}


def parse(data: bytes, folder: Path) -> object:
    """Read the codes of a folder."""
    for kind, name in _NAMES.items():
        (folder / name).write_bytes(data[1:] if kind == data[:1] else _sample(kind)[1:])
    return list(read_codes(folder))


def seeds() -> list[bytes]:
    """Return the files of a folder with the codes of three images."""
    return [_sample(kind) for kind in _NAMES]


@cache
def _sample(kind: bytes) -> bytes:
    table = pa.table({"id": [4, 5, 6], "path": ["a.png", "b.png", "c.png"]})
    codes = Codes(np.arange(6, dtype=np.uint8).reshape(3, 2), 16)
    job = Job("somewhere", bits=16, model="itq", pictures=3, size=8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start_job(folder, job, SourceListing(table, failed=[], left_out=[]))
        ids, paths = (table[column].chunk(0) for column in ("id", "path"))
        content = to_parquet(ids, paths, codes, job.model, failed=[])
        (folder / part_name(0)).write_bytes(content)
        return kind + (folder / _NAMES[kind]).read_bytes()


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change a metadata field or a column, and write a valid file."""
    table = parquet.read_table(pa.BufferReader(data[1:]))
    metadata = {name.decode(): value.decode() for name, value in table.schema.metadata.items()}
    kind = rng.randrange(4)
    if kind < 2:
        name = rng.choice(list(metadata))
        text = change_json(metadata[name] if name == "failed" else "0", rng).decode()
        metadata[name] = text.strip('"')
    elif kind == 2:
        metadata.pop(rng.choice(list(metadata)))
    else:
        column = rng.randrange(table.num_columns)
        table = table.set_column(column, table.column_names[column], rng.choice(_COLUMNS))
    return data[:1] + _to_bytes(table.replace_schema_metadata(metadata))


_COLUMNS = (
    [pa.array(values) for values in ([1, None, 3], [0.5] * 3, ["x"] * 3, [b"ab"] * 3, [[1]] * 3)]
    + [pa.array([b"a" * width] * 3, pa.binary(width)) for width in (1, 2, 3)]
    + [pa.array([b"ab", None, b"cd"], pa.binary(2)), pa.array([None] * 3)]
)

TARGET = Target(parse, seeds, mutate)
