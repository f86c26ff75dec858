"""List the images of a folder, a CSV or Parquet list, or an object store, as ids and paths."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from bitprint.data.formats import OTHER_SUFFIXES, SUFFIXES, describe_left_out
from bitprint.photos.files import list_pictures
from bitprint.utils.text import printable

FailedFiles = list[tuple[str, str, str]]
"""Id, path and reason of files without a code."""


class SourceListing(NamedTuple):
    """Images of a source.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.png").write_bytes(b"...")
    ...     (Path(folder) / "b.jpg").symlink_to("nowhere.jpg")
    ...     _ = (Path(folder) / "c.dng").write_bytes(b"...")
    ...     table, failed, left_out = list_source(folder)
    >>> table["id"].to_pylist(), [(name, reason) for name, _, reason in failed]
    (['a.png'], [('b.jpg', 'no such file')])
    >>> [Path(path).name for path in left_out]
    ['c.dng']
    """

    table: pa.Table
    """Columns id (int64 or string) and path (string), N rows."""
    failed: FailedFiles
    """Files that cannot be read, with the reasons."""
    left_out: list[str]
    """Paths of images in unsupported formats."""


def list_source(source: str | os.PathLike[str]) -> SourceListing:
    """List the images of a source with unique ids.

    Parameters
    ----------
    source : path or URI
        One of these:

        - A folder, or an object store location that fsspec can open, such as
          ``s3://bucket/photos``: all images in it and its subfolders, ordered by path, except
          hidden ones. Ids are the paths relative to the source.
        - A list with the suffix ``.csv`` or ``.parquet``: the files in its column `path` or
          `file`, in order; relative paths start at the folder of the list. Ids are taken from the
          column `id` (integers or strings), or else are the paths as written in the list.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("b.jpg", "a.png", "notes.txt"):
    ...         _ = (Path(folder) / name).write_bytes(b"...")
    ...     list_source(folder).table["id"].to_pylist()
    ['a.png', 'b.jpg']
    """
    name = os.fspath(source)
    if Path(name).is_dir():
        listing = _list_folder(name)
    elif name.lower().endswith((".csv", ".parquet")):
        listing = SourceListing(_read_list(name), [], [])
    elif "://" in name:
        listing = _list_store(name)
    elif Path(name).exists():
        raise ValueError(f"{name}: neither a folder nor a list in CSV or Parquet")
    else:
        raise FileNotFoundError(f"{name}: no such folder or list")
    if not len(listing.table) and not listing.failed:
        found = f"; {describe_left_out(listing.left_out)}" if listing.left_out else ""
        raise ValueError(f"{name}: no images found{found}")
    return listing


def _list_folder(name: str) -> SourceListing:
    listed = list_pictures(name)
    [root] = listed.folders
    failed = [(_relative(path, root), path, reason) for path, reason in listed.skipped]
    paths = []
    for image in listed.pictures:
        if _is_text(image.path):
            paths.append(image.path)
        else:
            failed.append((_relative(image.path, root), image.path, "the name is not UTF-8"))
    shown = [(printable(id_), printable(path), reason) for id_, path, reason in failed]
    ids = pa.array([_relative(path, root) for path in paths], pa.string())
    return SourceListing(_table(ids, paths), shown, [printable(path) for path in listed.left_out])


def _list_store(uri: str) -> SourceListing:
    filesystem, root = _filesystem(uri)
    names = sorted(filesystem.find(root))
    kept = [name for name in names if _has_suffix(_relative(name, root), SUFFIXES)]
    left_out = [name for name in names if _has_suffix(_relative(name, root), OTHER_SUFFIXES)]
    ids = pa.array([_relative(name, root) for name in kept], pa.string())
    paths, others = (list(map(filesystem.unstrip_protocol, part)) for part in (kept, left_out))
    return SourceListing(_table(ids, paths), [], others)


def _filesystem(uri: str) -> tuple[Any, str]:
    try:
        filesystem, root = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise ValueError(f"{uri}: {error}") from error
    return filesystem, str(root)


def _has_suffix(name: str, suffixes: Collection[str]) -> bool:
    """Return whether a name that is not hidden has one of the suffixes."""
    hidden = any(part.startswith(".") for part in name.split("/"))
    return not hidden and os.path.splitext(name)[1].lower() in suffixes  # noqa: PTH122


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def _read_list(name: str) -> pa.Table:
    table = _read_table(name)
    column = next((each for each in ("path", "file") if each in table.column_names), None)
    if column is None:
        raise ValueError(
            f"{name}: a list must have a column path or file, found "
            f"{', '.join(table.column_names) or 'no columns'}"
        )
    written = table[column].cast(pa.string()).to_pylist()
    empty = next((row for row, path in enumerate(written, start=1) if not path), None)
    if empty is not None:
        raise ValueError(f"{name}: the path in row {empty} is missing")
    place = name.rpartition("/")[0] if "://" in name else Path(name).resolve().parent.as_posix()
    paths = [path if _is_absolute(path) else f"{place}/{path}" for path in written]
    ids = table["id"] if "id" in table.column_names else pa.chunked_array([written], pa.string())
    listed = _table(_as_ids(ids, name), paths)
    _check_unique(listed["id"], name)
    return listed


def _read_table(name: str) -> pa.Table:
    filesystem, path = _filesystem(name)
    try:
        with filesystem.open(path, "rb") as file:
            if name.lower().endswith(".parquet"):
                return parquet.read_table(file)
            texts = dict.fromkeys(("id", "path", "file"), pa.string())
            return csv.read_csv(file, convert_options=csv.ConvertOptions(column_types=texts))
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: no such list") from None
    except pa.ArrowException as error:
        raise ValueError(f"{name}: cannot read the list ({error})") from error


def _is_absolute(path: str) -> bool:
    return "://" in path or Path(path).is_absolute()


def _as_ids(ids: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return ids as int64 or strings; CSV ids that are all decimal integers become int64."""
    if ids.null_count:
        raise ValueError(f"{name}: an id is missing; fill the column id in all rows or remove it")
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        raise ValueError(f"{name}: ids must be integers or strings, got {ids.type}")
    ids = ids.cast(pa.string())
    is_integer = pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")
    if name.lower().endswith(".csv") and len(ids) and pc.all(is_integer).as_py():
        return ids.cast(pa.int64())
    return ids


def _check_unique(ids: pa.ChunkedArray, name: str) -> None:
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise ValueError(f"{name}: duplicate id {repeated[0]['values'].as_py()!r}")


def _table(ids: pa.Array | pa.ChunkedArray, paths: list[str]) -> pa.Table:
    return pa.table({"id": ids, "path": pa.array(paths, pa.string())})
