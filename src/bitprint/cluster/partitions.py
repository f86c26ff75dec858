"""Folders of codes in Parquet, one file per partition.

`_listing.parquet` contains the ids and paths of all images; `part-00000.parquet` and so on contain
the codes of the readable ones. Each file is written atomically, so that the existing files show
which partitions are missing. Parquet readers ignore names that start with an underscore.
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

from bitprint.cluster.listing import FailedFiles, SourceListing
from bitprint.codes import Codes
from bitprint.utils.files import write_atomically

FAILED = "failed.csv"
_LISTING = "_listing.parquet"
_FORMAT = "bitprint.partitions"
_VERSION = 1


class Job(NamedTuple):
    """Description of a folder of codes, finished or not.

    Examples
    --------
    >>> Job("s3://bucket/photos", bits=48, model="ITQ", pictures=2500, size=1024).partitions
    3
    """

    source: str
    """Folder, list or object store location of the images."""
    bits: int
    """Code length."""
    model: str
    """Identity of the model, see `bitprint.photos.encoder.Encoder`."""
    pictures: int
    """Number of listed images."""
    size: int
    """Number of images per partition."""

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return -(-self.pictures // self.size)


class Partition(NamedTuple):
    """Ids, codes and paths of one partition, in the order of the parameters of `Index.add`.

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
    """Read the codes of a finished folder, partition by partition.

    Codes and integer ids are views of Arrow's memory and are not copied.

    Parameters
    ----------
    folder : path
        A finished output folder of `encode_collection`.

    Yields
    ------
    Partition
        Unpacks to (ids, codes, paths), as in ``index.add(*partition)``.

    Raises
    ------
    ValueError
        If a partition is missing, damaged or from another model.

    Examples
    --------
    >>> import tempfile
    >>> codes = Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1]])
    >>> listing = pa.table({"id": ["a.jpg", "b.jpg"], "path": ["/photos/a.jpg", "/photos/b.jpg"]})
    >>> job = Job("/photos", bits=4, model="a model", pictures=2, size=1024)
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = Path(name)  # encode_collection writes the same files
    ...     start_job(folder, job, SourceListing(listing, failed=[], left_out=[]))
    ...     ids, paths = (listing[column].chunk(0) for column in ("id", "path"))
    ...     content = to_parquet(ids, paths, codes, job.model, failed=[])
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
            "source into this folder again to resume"
        )
    return (_read_partition(folder / part_name(number), job) for number in finished)


def read_job(folder: str | os.PathLike[str]) -> Job:
    """Read the description of a folder of codes.

    Examples
    --------
    >>> import tempfile
    >>> listing = pa.table({"id": ["a.jpg", "b.jpg"], "path": ["/photos/a.jpg", "/photos/b.jpg"]})
    >>> job = Job("/photos", bits=4, model="a model", pictures=2, size=1024)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     start_job(Path(folder), job, SourceListing(listing, failed=[], left_out=[]))
    ...     read_job(folder)
    Job(source='/photos', bits=4, model='a model', pictures=2, size=1024)
    """
    path = Path(folder) / _LISTING
    if not path.is_file():
        raise FileNotFoundError(f"{folder}: not a folder of codes, {_LISTING} is missing")
    metadata = _read_metadata(path)
    try:
        count = parquet.read_metadata(path).num_rows
        bits, size = int(metadata["bits"]), int(metadata["size"])
        source, model = metadata["source"], metadata["model"]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error
    if count < 0 or not 1 <= bits < 2**31 or size < 1:
        raise _damaged(path, f"{count} images, {bits} bits, {size} images per partition")
    return Job(source, bits, model, count, size)


def start_job(folder: Path, job: Job, listing: SourceListing) -> None:
    """Write the listing of a job into an empty folder."""
    table = _with_metadata(
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
    """Read the ids and paths of all images of a job, and check their number."""
    path = folder / _LISTING
    try:
        listing = parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    if len(listing) != job.pictures:
        raise _damaged(path, f"{len(listing)} images instead of {job.pictures}")
    return listing


def read_left_out(folder: Path) -> list[str]:
    """Return the paths of images in unsupported formats; empty in folders of earlier versions."""
    return _metadata_list(folder / _LISTING, "left_out", str)


def part_name(number: int) -> str:
    """Return the file name of a partition.

    Examples
    --------
    >>> part_name(7)
    'part-00007.parquet'
    """
    return f"part-{number:05d}.parquet"


def finished_partitions(folder: Path, job: Job) -> list[int]:
    """Return the sorted numbers of the finished partitions.

    The loop is over the existing files, because a damaged listing may declare any number of
    partitions.
    """
    names = {path.name for path in folder.glob("part-*.parquet")}
    matches = (re.fullmatch(r"part-(\d+)\.parquet", name, re.ASCII) for name in names)
    numbers = {int(match[1]) for match in matches if match}
    return sorted(n for n in numbers if n < job.partitions and part_name(n) in names)


def to_parquet(
    ids: pa.Array, paths: pa.Array, codes: Codes, model: str, failed: FailedFiles
) -> bytes:
    """Serialize a partition; the failed files are stored in its metadata."""
    width = codes.packed.shape[1]
    column = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(width), len(codes), [None, pa.py_buffer(codes.packed)]
    )
    table = pa.table({"id": ids, "path": paths, "code": column})
    return _to_bytes(_with_metadata(table, failed, bits=codes.bits, model=model))


def count_codes(folder: Path, numbers: Iterable[int]) -> int:
    """Return the total number of codes in some partitions."""
    return sum(parquet.read_metadata(folder / part_name(number)).num_rows for number in numbers)


def write_failed(folder: Path, job: Job) -> int:
    """Write `failed.csv` with id, path and reason of each failed file; return their number."""
    finished = finished_partitions(folder, job)
    paths = [folder / _LISTING, *(folder / part_name(number) for number in finished)]
    failed = [row for path in paths for row in _metadata_list(path, "failed", list)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("id", "path", "reason"))
    writer.writerows(failed)
    write_atomically(folder / FAILED, text.getvalue().encode())
    return len(failed)


def _read_partition(path: Path, job: Job) -> Partition:
    metadata = _read_metadata(path)
    if (metadata.get("bits"), metadata.get("model")) != (str(job.bits), job.model):
        other = " ".join(metadata.get("model", "").split())
        raise ValueError(f"{path}: contains codes by {other}, not by {job.model}; delete it")
    try:
        table = parquet.read_table(path, page_checksum_verification=True).combine_chunks()
        ids, paths, codes = (_only_chunk(table[name]) for name in ("id", "path", "code"))
        return Partition(_as_ids(ids), _as_codes(codes, job.bits), _strings(paths))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, reason: object) -> ValueError:
    one_line = " ".join(str(reason).split())  # Arrow's messages have several lines
    return ValueError(f"{path}: damaged ({one_line}); delete it and encode again")


def _as_ids(column: pa.Array) -> NDArray[Any]:
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    return _strings(column)


def _as_codes(column: pa.Array, bits: int) -> Codes:
    width = -(-bits // 8)
    if column.type != pa.binary(width) or column.null_count:
        raise ValueError(f"codes have type {column.type} instead of {width} bytes each")
    data = np.frombuffer(column.buffers()[1], np.uint8)
    start = column.offset * width
    return Codes(data[start : start + len(column) * width].reshape(-1, width), bits)


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _strings(column: pa.Array) -> NDArray[Any]:
    if column.type != pa.string() or column.null_count:
        raise ValueError(f"names have type {column.type} instead of string")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _with_metadata(table: pa.Table, failed: FailedFiles, **fields: str | int) -> pa.Table:
    fields = {"format": _FORMAT, "version": _VERSION, **fields, "failed": json.dumps(failed)}
    return table.replace_schema_metadata({name: str(value) for name, value in fields.items()})


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


def _metadata_list(path: Path, name: str, kind: type) -> list[Any]:
    """Return a list from the metadata of a file; empty if the field is missing."""
    text = _read_metadata(path).get(name, "[]")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(rows, list) or not all(isinstance(row, kind) for row in rows):
        raise _damaged(path, f"its list {name}")
    return rows


def _read_metadata(path: Path) -> dict[str, str]:
    """Return the schema metadata of a file, and check its format and version."""
    try:
        raw = parquet.read_schema(path).metadata or {}
        metadata = {name.decode(): value.decode() for name, value in raw.items()}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: not Parquet, or damaged ({reason}); delete it") from error
    version = metadata.get("version", "")
    if metadata.get("format") != _FORMAT or not version.isdecimal():
        raise ValueError(f"{path}: not written by Bitprint; delete it or choose another folder")
    if version != str(_VERSION):
        raise ValueError(
            f"{path}: format version {version} is not supported, this release reads version "
            f"{_VERSION}; upgrade bitprint to read it"
        )
    return metadata
