"""Read vectors and ids from files in batches: .npy, Parquet and safetensors."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import as_array
from bitprint.search.ids import IdList, Ids, as_ids
from bitprint.vectors.checking import as_vectors, check_form

Path_ = str | os.PathLike[str]

_BATCH_BYTES = 1 << 26
_BATCH_ROWS = 65_536
_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2",
    "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "u1",
}  # fmt: skip


class Source(ABC):
    """Vectors that are read in batches, so that a file may be larger than the memory.

    Attributes
    ----------
    place : str
        The file, for error messages.
    count, width : int
        Number and length of the vectors.
    ids : ndarray or None
        The ids of the vectors, if the source has any.

    Examples
    --------
    >>> source = as_source(np.zeros((5, 3), np.float32))
    >>> source.count, source.width, [batch.shape for batch in source.batches()]
    (5, 3, [(5, 3)])
    >>> source.sample(2, seed=0).shape
    (2, 3)
    """

    place: str
    count: int
    width: int
    ids: Ids | None = None

    def batches(self) -> Iterator[NDArray[Any]]:
        """Yield the vectors in batches of at most 64 MiB as float32."""
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (4 * self.width)))
        return self._read(rows)

    def sample(self, count: int, seed: int) -> NDArray[np.float32]:
        """Return `count` random vectors in order, or all vectors if there are fewer."""
        if self.count <= count:
            chosen = np.arange(self.count)
        else:
            chosen = np.sort(np.random.default_rng(seed).choice(self.count, count, replace=False))
        return as_vectors(self._take(chosen), f"{self.place} (a random sample)")

    @abstractmethod
    def _read(self, rows: int) -> Iterator[NDArray[Any]]:
        """Yield batches of `rows` vectors."""

    def _take(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """Return the vectors in ascending rows."""
        parts, first = [np.empty((0, self.width), np.float32)], 0
        for batch in self.batches():
            start, stop = np.searchsorted(chosen, (first, first + len(batch)))
            parts.append(as_array(batch)[chosen[start:stop] - first])
            first += len(batch)
        return np.concatenate(parts)


class _Array(Source):
    """Vectors in an array in memory or mapped into memory."""

    def __init__(self, array: NDArray[Any], place: str = "vectors") -> None:
        self.place, self.count = place, len(array)
        self.width = check_form(place, array.dtype, array.shape)
        self._array = array

    def _open(self) -> NDArray[Any]:
        return self._array

    def _read(self, rows: int) -> Iterator[NDArray[Any]]:
        for start in range(0, self.count, rows):
            yield self._open()[start : start + rows]

    def _take(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        return self._open()[chosen]


class _Mapped(_Array):
    """Vectors in a file, which is mapped into memory again for each batch.

    The pages of a mapping count as resident memory of the process until it is closed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(self._open(), str(path))
        del self._array

    def _read(self, rows: int) -> Iterator[NDArray[Any]]:
        for start in range(0, self.count, rows):
            yield np.array(self._open()[start : start + rows])


class _Npy(_Mapped):
    def _open(self) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(self._path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError, SyntaxError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{self._path}: not a .npy file of numbers, or truncated ({reason})"
            ) from error
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{self._path}: contains several arrays; save one with np.save")
        return array


class _Safetensors(_Mapped):
    def __init__(self, path: Path, column: str | None) -> None:
        self._column = column
        super().__init__(path)

    def _open(self) -> NDArray[Any]:
        from safetensors import safe_open

        try:
            with safe_open(self._path, framework="np"):  # checks the header and the file size
                pass
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{self._path}: not a safetensors file, or truncated ({reason})"
            ) from error
        with self._path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        matrices = {name for name, entry in header.items() if len(entry["shape"]) == 2}
        name = _choose(self._path, "tensor", self._column, sorted(matrices))
        kind, shape = header[name]["dtype"], tuple(header[name]["shape"])
        if kind not in _SAFETENSORS:
            raise ValueError(f"{self._path}: vectors must be real numbers, got {kind}")
        offset = 8 + length + header[name]["data_offsets"][0]
        if 0 in shape:
            return np.empty(shape, np.float32)
        array = np.memmap(self._path, _SAFETENSORS[kind], "r", offset, shape)
        return _FromBfloat16(array) if kind == "BF16" else array  # type: ignore[return-value]


class _FromBfloat16:
    """Rows of bfloat16, which NumPy does not have, converted to float32."""

    dtype = np.dtype(np.float32)

    def __init__(self, halves: NDArray[np.uint16]) -> None:
        self._halves = halves
        self.shape = halves.shape

    def __len__(self) -> int:
        return len(self._halves)

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        words: NDArray[np.uint32] = self._halves[rows].astype(np.uint32) << 16
        return words.view(np.float32)


class _Parquet(Source):
    """Vectors in a column of lists or of lists of fixed size."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        self._path, self.place = path, str(path)
        self._pyarrow = _import_pyarrow(path)
        with self._file() as file:
            schema = file.schema_arrow
            lists = [field.name for field in schema if hasattr(field.type, "value_type")]
            self._column = _choose(path, "column of lists", column, lists)
            self.count = file.metadata.num_rows
        try:
            self.width = next(self._read(1)).shape[1]
        except StopIteration:
            self.width = max(1, getattr(schema.field(self._column).type, "list_size", 1))
        if id_column is not None:
            self.ids = self._read_ids(id_column, schema.names)

    def _file(self) -> Any:
        # Without pre_buffer, batches are read one by one; otherwise a whole row group is.
        try:
            return self._pyarrow.parquet.ParquetFile(
                self._path, pre_buffer=False, buffer_size=1 << 20
            )
        except self._pyarrow.ArrowInvalid as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ValueError:
        reason = " ".join(str(error).split())
        return ValueError(f"{self._path}: not a Parquet file, or damaged ({reason})")

    def _read(self, rows: int) -> Iterator[NDArray[Any]]:
        first, width = 0, None
        with self._file() as file:
            batches = file.iter_batches(rows, columns=[self._column], use_threads=False)
            while True:
                try:
                    batch = next(batches, None)
                except (self._pyarrow.ArrowException, OSError) as error:
                    raise self._damaged(error) from error
                if batch is None:
                    return
                vectors = self._matrix(batch.column(0), first, width)
                width = vectors.shape[1]
                first += len(vectors)
                yield vectors

    def _matrix(self, lists: Any, first: int, width: int | None) -> NDArray[Any]:
        """Return the lists as an array, or raise ValueError if their lengths differ."""
        lengths = lists.value_lengths()
        if lists.null_count:
            row = first + lists.is_null().index(True).as_py()
            raise ValueError(f"{self._path}: row {row} has no vector; remove it")
        sizes = np.asarray(lengths)
        expected = int(sizes[0]) if width is None else width
        other = np.flatnonzero(sizes != expected)
        if len(other):
            raise ValueError(
                f"{self._path}: row {first + other[0]} has {sizes[other[0]]} numbers, others "
                f"have {expected}"
            )
        values = lists.flatten()
        if values.null_count:
            row = first + values.is_null().index(True).as_py() // expected
            raise ValueError(f"{self._path}: row {row} contains an empty number; remove it")
        array: NDArray[Any] = values.to_numpy(zero_copy_only=False).reshape(len(lists), expected)
        check_form(self.place, array.dtype, array.shape)
        return array

    def _read_ids(self, column: str, names: Sequence[str]) -> Ids:
        if column not in names:
            raise ValueError(
                f"{self._path}: no column {column!r}; its columns are {', '.join(names)}"
            )
        with self._file() as file:
            try:
                values = file.read(columns=[column], use_threads=False).column(0)
            except (self._pyarrow.ArrowException, OSError) as error:
                raise self._damaged(error) from error
        if values.null_count:
            raise ValueError(f"{self._path}: the column {column!r} has rows without an id")
        kind = str(values.type)
        if kind not in ("string", "large_string", "string_view") and "int" not in kind:
            raise ValueError(
                f"{self._path}: ids must be integers or strings, the column {column!r} is {kind}"
            )
        return _checked_ids(f"{self._path}: column {column!r}", values.to_pylist())


class _Joined(Source):
    """Several sources, one after the other."""

    def __init__(self, parts: Sequence[Source]) -> None:
        self._parts = parts
        self.place = parts[0].place
        self.count = sum(part.count for part in parts)
        self.width = parts[0].width
        for part in parts[1:]:
            if part.width != self.width:
                raise ValueError(
                    f"{part.place}: vectors of length {part.width}, but {self.place} has vectors "
                    f"of length {self.width}"
                )
        found = [part.ids for part in parts if part.ids is not None]
        if found:
            self.ids = _checked_ids("the files", [value for ids in found for value in ids.tolist()])

    def _read(self, rows: int) -> Iterator[NDArray[Any]]:
        for part in self._parts:
            yield from part._read(rows)

    def _take(self, chosen: NDArray[np.int64]) -> NDArray[Any]:
        taken, first = [], 0
        for part in self._parts:
            start, stop = np.searchsorted(chosen, (first, first + part.count))
            taken.append(as_vectors(part._take(chosen[start:stop] - first), part.place))
            first += part.count
        return np.concatenate(taken)


def open_vectors(
    *paths: Path_,
    column: str | None = None,
    ids: Path_ | None = None,
    id_column: str | None = None,
) -> Source:
    r"""Open files of vectors, which are then read in batches.

    Parameters
    ----------
    *paths : path
        Each is a `.npy` file, a `.safetensors` file, or a `.parquet` file with a column of lists.
    column : str, optional
        Name of the Parquet column or of the tensor; needed if there are several.
    ids : path, optional
        A file with one id per vector: text with one id per line, or `.npy`.
    id_column : str, optional
        Name of the Parquet column with the ids.

    Returns
    -------
    Source

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/vectors.npy", np.eye(3, dtype=np.float16))
    ...     _ = Path(f"{folder}/ids.txt").write_text("ant\nbee\ncat\n")
    ...     source = open_vectors(f"{folder}/vectors.npy", ids=f"{folder}/ids.txt")
    ...     source.count, source.width, source.ids.tolist()
    (3, 3, ['ant', 'bee', 'cat'])
    """
    if not paths:
        raise ValueError("give at least one file of vectors")
    if ids is not None and id_column is not None:
        raise ValueError("give a file of ids or the column of the ids, not both")
    parts = [_open_one(Path(path).expanduser(), column, id_column) for path in paths]
    source = parts[0] if len(parts) == 1 else _Joined(parts)
    if ids is not None:
        source.ids = read_ids(Path(ids).expanduser(), source.count)
    return source


def as_source(vectors: Any) -> Source:
    """Return a source of vectors given as an array, as the path of a file, or as a source."""
    if isinstance(vectors, Source):
        return vectors
    if isinstance(vectors, str | os.PathLike):
        return open_vectors(vectors)
    try:
        array = as_array(vectors)
    except ValueError:
        raise ValueError("vectors: the vectors have different lengths") from None
    return _Array(array)


def read_ids(path: Path, count: int | None = None) -> Ids:
    """Read ids from a text file, one per line, or from a `.npy` file of integers or strings.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/ids.npy", [30, 10, 20])
    ...     read_ids(Path(f"{folder}/ids.npy")).tolist()
    [30, 10, 20]
    """
    _check_file(path)
    if path.suffix == ".npy":
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError, SyntaxError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{path}: not a .npy file of ids, or truncated ({reason})") from error
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            raise ValueError(
                f"{path}: ids must be integers or strings of shape (N,), got {array.dtype} of "
                f"shape {array.shape}"
            )
        values: Any = array if array.dtype.kind == "i" else array.tolist()
    else:
        try:
            values = path.read_text("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}: not a text file in UTF-8 ({error})") from error
        values = [line.removesuffix("\r") for line in values]
        if values[-1] == "":
            values.pop()
    if count is not None and len(values) != count:
        raise ValueError(f"{path}: {len(values)} ids for {count} vectors; give one id per vector")
    return _checked_ids(str(path), values)


def _open_one(path: Path, column: str | None, id_column: str | None) -> Source:
    _check_file(path)
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return _Parquet(path, column, id_column)
    if id_column is not None:
        raise ValueError(f"{path}: only Parquet files have columns of ids; give a file of ids")
    if suffix == ".safetensors":
        return _Safetensors(path, column)
    if suffix == ".npy":
        if column is not None:
            raise ValueError(f"{path}: a .npy file has no columns")
        return _Npy(path)
    raise ValueError(
        f"{path}: vectors are read from .npy, .parquet and .safetensors files; save them with "
        "np.save"
    )


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; give its files")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")


def _choose(path: Path, what: str, wanted: str | None, found: Sequence[str]) -> str:
    """Return the wanted name, or the only one; raise ValueError otherwise."""
    if wanted is None and len(found) == 1:
        return found[0]
    if not found:
        raise ValueError(f"{path}: contains no {what} with vectors")
    if wanted is None or wanted not in found:
        named = "choose one" if wanted is None else f"there is none named {wanted!r}"
        raise ValueError(f"{path}: {named} of {', '.join(islice(found, 10))} (column)")
    return wanted


def _checked_ids(place: str, values: IdList) -> Ids:
    try:
        return as_ids(values)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise ValueError(f"{path}: Parquet files need pyarrow: pip install pyarrow") from error
    return pyarrow
