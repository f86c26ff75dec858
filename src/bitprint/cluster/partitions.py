"""A folder of codes in Parquet: what is to be encoded, and partition by partition what has been.

`_listing.parquet` holds the ids and paths of all pictures, `part-00000.parquet` and so on the
codes of those that could be read. Each file is written at once or not at all, so that the folder
says at any moment which partitions are missing. Readers of Parquet folders leave out names that
begin with an underscore.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from bitprint.cluster.listing import Failed, Listing
from bitprint.codes import Codes
from bitprint.files import write_atomically

FAILED = "failed.csv"
_LISTING = "_listing.parquet"
_FORMAT = "bitprint.partitions"
_VERSION = 1


class Job(NamedTuple):
    """What a folder of codes holds, or will hold when all is done.

    Examples
    --------
    >>> Job("s3://bucket/photos", bits=48, model="ITQ", pictures=2500, size=1024).partitions
    3
    """

    source: str
    """Where the pictures come from."""
    bits: int
    model: str
    """The identity of what makes the codes, see `bitprint.photos.encoder.Encoder`."""
    pictures: int
    """How many are listed."""
    size: int
    """How many of them a partition covers."""

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return -(-self.pictures // self.size)


class Partition(NamedTuple):
    """Codes of some pictures; `Index.add` takes the three as they come.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1]])
    >>> partition = Partition(np.array([7, 8]), codes, np.array(["/photos/a.jpg", "/photos/b.jpg"]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(*partition)
    ...         index.items([8])
    [Item(path='/photos/b.jpg', labels=())]
    """

    ids: NDArray[Any]
    """Shape (n,): int64, or strings."""
    codes: Codes
    """n codes."""
    paths: NDArray[Any]
    """Shape (n,): strings."""


def read_codes(folder: str | os.PathLike[str]) -> Iterator[Partition]:
    """Read the codes of a finished folder, one partition after the other, in order.

    Codes and integer ids are views of Arrow's memory: no Python object is made for any of them.

    Parameters
    ----------
    folder : path
        What `encode_collection` has written, complete.

    Yields
    ------
    Partition
        Unpacks to (ids, codes, paths), as in ``index.add(*partition)``.

    Raises
    ------
    ValueError
        If partitions are missing, or one is damaged or by another model.

    Examples
    --------
    >>> import tempfile
    >>> codes = Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1]])
    >>> listing = pa.table({"id": ["a.jpg", "b.jpg"], "path": ["/photos/a.jpg", "/photos/b.jpg"]})
    >>> job = Job("/photos", bits=4, model="a model", pictures=2, size=1024)
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)  # which a call of encode_collection would fill like this
    ...     start_job(folder, job, Listing(listing, failed=[], left_out=[]))
    ...     ids, paths = (listing[column].chunk(0) for column in ("id", "path"))
    ...     content = serialise(ids, paths, codes, job.model, failed=[])
    ...     _ = (folder / part_name(0)).write_bytes(content)
    ...     for ids, codes, paths in read_codes(folder):
    ...         print(ids, codes, paths)
    ['a.jpg' 'b.jpg'] Codes(2 x 4 bits) ['/photos/a.jpg' '/photos/b.jpg']
    """
    folder = Path(folder)
    job = read_job(folder)
    finished = finished_partitions(folder, job)
    missing = job.partitions - len(finished)
    if missing:
        raise ValueError(
            f"{folder}: {missing} of {job.partitions} partitions are missing; encode the same "
            "source into it again, which goes on from here"
        )
    return (_read_partition(folder / part_name(number), job) for number in finished)


def read_job(folder: str | os.PathLike[str]) -> Job:
    """Read what a folder of codes is about: source, bits, model and how many pictures.

    Examples
    --------
    >>> import tempfile
    >>> listing = pa.table({"id": ["a.jpg", "b.jpg"], "path": ["/photos/a.jpg", "/photos/b.jpg"]})
    >>> job = Job("/photos", bits=4, model="a model", pictures=2, size=1024)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start_job(Path(folder), job, Listing(listing, failed=[], left_out=[]))
    ...     read_job(folder)
    Job(source='/photos', bits=4, model='a model', pictures=2, size=1024)
    """
    path = Path(folder) / _LISTING
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: not a folder of codes, {_LISTING} is missing")
    facts = _facts(path)
    try:
        numbers = parquet.read_metadata(path).num_rows, int(facts["bits"]), int(facts["size"])
        source, model = facts["source"], facts["model"]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error
    count, bits, size = numbers
    if count < 0 or not 1 <= bits < 2**31 or size < 1:
        raise _damaged(path, f"{count} pictures, {bits} bits, {size} pictures in a partition")
    return Job(source, bits, model, count, size)


def start_job(folder: Path, job: Job, listing: Listing) -> None:
    """Write what is to be encoded into a folder, which holds nothing yet."""
    table = _described(
        listing.table,
        listing.failed,
        source=job.source,
        bits=job.bits,
        model=job.model,
        size=job.size,
        left_out=json.dumps(listing.left_out),
    )
    write_atomically(folder / _LISTING, _to_bytes(table))


def read_listing(folder: Path, job: Job) -> pa.Table:
    """Read the ids and paths of all pictures of a folder, as many as it says that there are."""
    path = folder / _LISTING
    try:
        listing = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    if len(listing) != job.pictures:
        raise _damaged(path, f"{len(listing)} pictures in place of {job.pictures}")
    return listing


def read_left_out(folder: Path) -> list[str]:
    """Read the paths of pictures in other formats, none where an earlier version has listed."""
    return _listed(folder / _LISTING, "left_out", str)


def part_name(number: int) -> str:
    """Name of a partition's file.

    Examples
    --------
    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{number:05d}.parquet"


def finished_partitions(folder: Path, job: Job) -> list[int]:
    """Numbers of the partitions that have been made, in order.

    It goes through the files: how many partitions there should be, a damaged file may say.
    """
    names = {path.name for path in folder.glob("part-*.parquet")}
    spelt = (re.fullmatch(r"part-(\d+)\.parquet", name, re.ASCII) for name in names)
    numbers = {int(match[1]) for match in spelt if match}
    return sorted(n for n in numbers if n < job.partitions and part_name(n) in names)


def serialise(ids: pa.Array, paths: pa.Array, codes: Codes, model: str, failed: Failed) -> bytes:
    """Return a partition as the content of its file; files without a code go with it."""
    width = codes.packed.shape[1]
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(codes), [None, pa.py_buffer(codes.packed)]
    )
    table = pa.table({"id": ids, "path": paths, "code": column})
    return _to_bytes(_described(table, failed, bits=codes.bits, model=model))


def count_codes(folder: Path, numbers: Iterable[int]) -> int:
    """How many codes some partitions hold."""
    return sum(parquet.read_metadata(folder / part_name(number)).num_rows for number in numbers)


def write_failed(folder: Path, job: Job) -> int:
    """Write `failed.csv`: id, path and reason of every file without a code; return how many."""
    finished = finished_partitions(folder, job)
    paths = [folder / _LISTING, *(folder / part_name(number) for number in finished)]
    failed = [row for path in paths for row in _listed(path, "failed", list)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "path", "reason"))
    writer.writerows(failed)
    write_atomically(folder / FAILED, text.getvalue().encode())
    return len(failed)


def _read_partition(path: Path, job: Job) -> Partition:
    facts = _facts(path)
    if (facts.get("bits"), facts.get("model")) != (str(job.bits), job.model):
        other = " ".join(facts.get("model", "").split())
        raise ValueError(f"{path}: holds codes by {other}, not by {job.model}; delete it")
    try:
        table = parquet.read_table(path, page_checksum_verification=True).combine_chunks()
        ids, paths, codes = (_only_chunk(table[name]) for name in ("id", "path", "code"))
        return Partition(_as_ids(ids), _as_codes(codes, job.bits), _strings(paths))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> ValueError:
    one_line = " ".join(str(reason).split())  # Arrow writes several
    return ValueError(f"{path}: damaged ({one_line}); delete it and encode again")


def _as_ids(column: pa.Array) -> NDArray[Any]:
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    return _strings(column)


def _as_codes(column: pa.Array, bits: int) -> Codes:
    width = -(-bits // 8)
    if column.type != pa.binary(width) or column.null_count:
        raise ValueError(f"codes are {column.type}, not {width} bytes each")
    data = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * width
    return Codes(data[start : start + len(column) * width].reshape(-1, width), bits)


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _strings(column: pa.Array) -> NDArray[Any]:
    if column.type != pa.string() or column.null_count:
        raise ValueError(f"names are {column.type}, not text")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _described(table: pa.Table, failed: Failed, **facts: str | int) -> pa.Table:
    facts = {"format": _FORMAT, "version": _VERSION, **facts, "failed": json.dumps(failed)}
    return table.replace_schema_metadata({name: str(value) for name, value in facts.items()})


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(
        table,
        sink,
        row_group_size=max(1, len(table)),
        use_dictionary=False,
        write_page_checksum=True,
    )
    return bytes(sink.getvalue())


def _listed(path: Path, name: str, kind: type) -> list[Any]:
    """A list of some kind in the metadata of one of our files; empty where there is none."""
    text = _facts(path).get(name, "[]")
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(listed, list) or not all(isinstance(row, kind) for row in listed):
        raise _damaged(path, f"its list {name}")
    return listed


def _facts(path: Path) -> dict[str, str]:
    """What the schema's metadata of one of our files says."""
    try:
        metadata = parquet.read_schema(path).metadata or {}
        facts = {name.decode(): value.decode() for name, value in metadata.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not Parquet, or damaged ({reason}); delete it") from error
    version = facts.get("version", "")
    if facts.get("format") != _FORMAT or not version.isdecimal():
        raise ValueError(f"{path}: not written by Bitprint; delete it, or choose another folder")
    if version != str(_VERSION):
        raise ValueError(
            f"{path}: of version {version}, this is version {_VERSION}; upgrade bitprint to read it"
        )
    return facts
