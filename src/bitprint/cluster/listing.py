"""Pictures of a folder, of a list in CSV or Parquet, or of an object store, as ids and paths."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from bitprint.data.formats import OTHER_SUFFIXES, SUFFIXES, say_left_out
from bitprint.photos.files import list_pictures, printable

Failed = list[tuple[str, str, str]]
"""Id, path and reason of files without a code."""


class Listing(NamedTuple):
    """The pictures of a source.

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
    failed: Failed
    """What was found and cannot be read, each with the reason."""
    left_out: list[str]
    """Paths of the pictures in formats that are not read."""


def list_source(source: str | os.PathLike[str]) -> Listing:
    """List the pictures of a source; every id occurs once.

    Parameters
    ----------
    source : path or URI
        A folder, or a place in an object store such as ``s3://bucket/photos`` (whatever fsspec
        opens): every picture in it and below it, hidden ones left out, ordered by path. The id is
        the path below the source. Or a list, which ends in ``.csv`` or ``.parquet``: the files in
        its column `path` or `file`, in order, relative ones below the folder of the list. The id
        is that of its column `id` (integers or strings) or else the path as it is written there.

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
        listing = Listing(_read_list(name), [], [])
    elif "://" in name:
        listing = _list_store(name)
    elif Path(name).exists():
        raise ValueError(f"{name}: neither a folder nor a list in CSV or Parquet")
    else:
        raise FileNotFoundError(f"{name}: no such folder or list")
    if not len(listing.table) and not listing.failed:
        found = f"; {say_left_out(listing.left_out)}" if listing.left_out else ""
        raise ValueError(f"{name}: no pictures found{found}")
    return listing


def _list_folder(name: str) -> Listing:
    listed = list_pictures(name)
    [root] = listed.folders
    failed = [(_below(path, root), path, reason) for path, reason in listed.skipped]
    paths = []
    for picture in listed.pictures:
        if _is_text(picture.path):
            paths.append(picture.path)
        else:
            failed.append((_below(picture.path, root), picture.path, "the name is not UTF-8"))
    shown = [(printable(id_), printable(path), reason) for id_, path, reason in failed]
    ids = pa.array([_below(path, root) for path in paths], pa.string())
    return Listing(_table(ids, paths), shown, [printable(path) for path in listed.left_out])


def _list_store(uri: str) -> Listing:
    filesystem, root = _filesystem(uri)
    names = sorted(filesystem.find(root))
    kept = [name for name in names if _is_one_of(SUFFIXES, _below(name, root))]
    left_out = [name for name in names if _is_one_of(OTHER_SUFFIXES, _below(name, root))]
    ids = pa.array([_below(name, root) for name in kept], pa.string())
    paths, others = (list(map(filesystem.unstrip_protocol, part)) for part in (kept, left_out))
    return Listing(_table(ids, paths), [], others)


def _filesystem(uri: str) -> tuple[Any, str]:
    try:
        filesystem, root = fsspec.core.url_to_fs(uri)
    except ImportError as error:
        raise ValueError(f"{uri}: {error}") from error
    return filesystem, str(root)


def _is_one_of(suffixes: Collection[str], name: str) -> bool:
    hidden = any(part.startswith(".") for part in name.split("/"))
    return not hidden and os.path.splitext(name)[1].lower() in suffixes  # noqa: PTH122


def _below(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


def _is_text(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def _read_list(name: str) -> pa.Table:
    table = _read_table(name)
    column = next((each for each in ("path", "file") if each in table.column_names), None)
    if column is None:
        raise ValueError(
            f"{name}: a list has a column path or file, found "
            f"{', '.join(table.column_names) or 'nothing'}"
        )
    written = table[column].cast(pa.string()).to_pylist()
    empty = next((row for row, path in enumerate(written, start=1) if not path), None)
    if empty is not None:
        raise ValueError(f"{name}: the path of row {empty} is missing")
    place = name.rpartition("/")[0] if "://" in name else Path(name).resolve().parent.as_posix()
    paths = [path if _stands_alone(path) else f"{place}/{path}" for path in written]
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
        raise ValueError(f"{name}: not a list that can be read ({error})") from error


def _stands_alone(path: str) -> bool:
    return "://" in path or Path(path).is_absolute()


def _as_ids(ids: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Ids as int64 or strings; texts that are all spelt as integers are (of a CSV) integers."""
    if ids.null_count:
        raise ValueError(f"{name}: an id is missing; give every row one, or have no such column")
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)):
        raise ValueError(f"{name}: ids are integers or strings, got {ids.type}")
    ids = ids.cast(pa.string())
    spelt = pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")
    if name.lower().endswith(".csv") and len(ids) and pc.all(spelt).as_py():
        return ids.cast(pa.int64())
    return ids


def _check_unique(ids: pa.ChunkedArray, name: str) -> None:
    counts = pc.value_counts(ids)
    repeated = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(repeated):
        raise ValueError(f"{name}: the id {repeated[0]['values'].as_py()!r} is given twice")


def _table(ids: pa.Array | pa.ChunkedArray, paths: list[str]) -> pa.Table:
    return pa.table({"id": ids, "path": pa.array(paths, pa.string())})
