"""Export codes and ids to the files and databases of other programs.

No export changes the bytes of a code: the first bit is the most significant bit of the first byte.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.search.copying import one_state
from bitprint.search.ids import Ids, kind_of
from bitprint.search.stores.interface import Store
from bitprint.utils.files import write_atomically

_BATCH = 65_536

Progress = Callable[[int, int], None]


def export_codes(index: Store, path: str | Path, *, progress: Progress | None = None) -> Path:
    r"""Write the codes and ids of an index to a file, in the format that its suffix names.

    Parameters
    ----------
    index : Index or another store
    path : path
        An existing file is replaced.

        - `.faiss`: a faiss `IndexBinaryIDMap` over `IndexBinaryFlat`
        - `.usearch`: a usearch index with `b1` vectors and Hamming distance
        - `.parquet`: the columns `id` and `code` (binary of fixed length)
        - `.npy`: the packed codes, uint8 (N, bits / 8); the ids are in a second file, whose name
          ends in `.ids.npy` for integers and in `.ids.txt` (one per line) for strings
        - `.copy`: for `COPY table (id, code) FROM STDIN` of PostgreSQL with a column `bit(K)`
    progress : callable, optional
        Called with (done, total) codes.

    Returns
    -------
    Path
        The written file.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(["cat", "dog"], [[1, 1, -1, 1], [-1, -1, -1, 1]])
    ...         export_codes(index, f"{folder}/photos.copy").read_text()
    'cat\t1101\ndog\t0001\n'
    """
    path = Path(path).expanduser()
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise ValueError(f"{path}: unknown format; use a suffix of {', '.join(_WRITERS)}")
    with one_state(index):
        ids = _all_ids(index)
        write(index, ids, path, progress or (lambda done, total: None))
    return path


def export_to_milvus(
    index: Store,
    uri: str,
    collection: str,
    *,
    token: str = "",
    progress: Progress | None = None,
) -> int:
    """Insert the codes and ids of an index into a new collection of Milvus.

    The collection has the primary key `id` and the field `code`, a BINARY_VECTOR with an index for
    Hamming distance. `bitprint index copy` writes an index that Bitprint itself can search.

    Parameters
    ----------
    index : Index or another store
        The code length must be a multiple of 8.
    uri : str
        Address of the server, or the path of a file of Milvus Lite.
    collection : str
        Must not exist yet.
    token : str, optional
        As for `pymilvus.MilvusClient`.
    progress : callable, optional
        Called with (done, total) codes.

    Returns
    -------
    int
        Number of inserted codes.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=8) as index:
    ...         index.add(["cat"], [[1, 1, -1, 1, 1, 1, 1, 1]])
    ...         export_to_milvus(index, f"{folder}/milvus.db", "photos")
    1
    """
    pymilvus = _module("pymilvus", "'pymilvus<2.7'")
    _check_bytes(index, "a BINARY_VECTOR")
    client = pymilvus.MilvusClient(uri=uri, token=token)
    with closing(client), one_state(index):
        ids = _all_ids(index)
        if client.has_collection(collection):
            raise FileExistsError(f"{uri}: a collection {collection} exists already")
        kinds = pymilvus.DataType
        schema = client.create_schema()
        if kind_of(ids) == "integer":
            schema.add_field("id", kinds.INT64, is_primary=True)
        else:
            schema.add_field("id", kinds.VARCHAR, is_primary=True, max_length=65_535)
        schema.add_field("code", kinds.BINARY_VECTOR, dim=index.bits)
        search = client.prepare_index_params()
        search.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
        client.create_collection(collection, schema=schema, index_params=search)
        done = 0
        for some, codes in _batches(index, ids, 4096):
            rows = zip(some.tolist(), codes.packed, strict=True)
            client.insert(collection, [{"id": i, "code": code.tobytes()} for i, code in rows])
            done += len(some)
            if progress is not None:
                progress(done, len(ids))
        client.flush(collection)
    return done


def _all_ids(index: Store) -> Ids:
    ids = index.ids()
    if not len(ids):
        raise ValueError(f"{index.path}: the index is empty")
    return ids


def _batches(index: Store, ids: Ids, rows: int = _BATCH) -> Iterator[tuple[Ids, Codes]]:
    for start in range(0, len(ids), rows):
        some = ids[start : start + rows]
        yield some, index.codes(some)


def _packed(index: Store, ids: Ids, progress: Progress) -> NDArray[np.uint8]:
    """Return all codes as packed bytes."""
    packed = np.empty((len(ids), -(-index.bits // 8)), np.uint8)
    done = 0
    for some, codes in _batches(index, ids):
        packed[done : done + len(some)] = codes.packed
        done += len(some)
        progress(done, len(ids))
    return packed


def _write_faiss(index: Store, ids: Ids, path: Path, progress: Progress) -> None:
    faiss = _module("faiss", "faiss-cpu")
    _check_bytes(index, "faiss")
    if kind_of(ids) != "integer":
        raise ValueError(f"{index.path}: faiss needs integer ids, this index has string ids")
    target = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(index.bits))
    done = 0
    for some, codes in _batches(index, ids):
        target.add_with_ids(codes.packed, some)
        done += len(some)
        progress(done, len(ids))
    write_atomically(path, faiss.serialize_index_binary(target).tobytes())


def _write_usearch(index: Store, ids: Ids, path: Path, progress: Progress) -> None:
    usearch = _module("usearch.index", "usearch")
    _check_bytes(index, "usearch")
    if kind_of(ids) != "integer" or ids.min() < 0:
        raise ValueError(f"{index.path}: usearch needs integer ids of at least 0")
    target = usearch.Index(ndim=index.bits, metric=usearch.MetricKind.Hamming, dtype="b1")
    done = 0
    for some, codes in _batches(index, ids):
        target.add(some.astype(np.uint64), codes.packed)
        done += len(some)
        progress(done, len(ids))
    write_atomically(path, bytes(target.save()))


def _write_parquet(index: Store, ids: Ids, path: Path, progress: Progress) -> None:
    pa, parquet = _module("pyarrow", "pyarrow"), _module("pyarrow.parquet", "pyarrow")
    width = -(-index.bits // 8)
    kind = pa.int64() if kind_of(ids) == "integer" else pa.string()
    fields = [pa.field("id", kind), pa.field("code", pa.binary(width))]
    schema = pa.schema(fields, {"bits": str(index.bits), "model": index.model or ""})
    content = pa.BufferOutputStream()
    done = 0
    with parquet.ParquetWriter(content, schema) as writer:
        for some, codes in _batches(index, ids):
            names = pa.array(some if kind_of(ids) == "integer" else some.tolist(), kind)
            code = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(width), len(codes), [None, pa.py_buffer(codes.packed)]
            )
            writer.write_table(pa.table([names, code], schema=schema))
            done += len(some)
            progress(done, len(ids))
    write_atomically(path, content.getvalue())


def _write_npy(index: Store, ids: Ids, path: Path, progress: Progress) -> None:
    content = io.BytesIO()
    np.save(content, _packed(index, ids, progress))
    if kind_of(ids) == "integer":
        listed = io.BytesIO()
        np.save(listed, ids)
        write_atomically(path.with_suffix(".ids.npy"), listed.getvalue())
    else:
        _check_lines(index, ids)
        text = "".join(f"{name}\n" for name in ids).encode("utf-8", "surrogateescape")
        write_atomically(path.with_suffix(".ids.txt"), text)
    write_atomically(path, content.getvalue())


def _write_copy(index: Store, ids: Ids, path: Path, progress: Progress) -> None:
    lines = []
    done = 0
    for some, codes in _batches(index, ids):
        bits = np.unpackbits(codes.packed, axis=1, count=index.bits) + ord("0")
        for name, row in zip(some.tolist(), bits, strict=True):
            lines.append(f"{_escaped(str(name))}\t{row.tobytes().decode()}\n")
        done += len(some)
        progress(done, len(ids))
    write_atomically(path, "".join(lines).encode("utf-8", "surrogateescape"))


_WRITERS: dict[str, Callable[[Store, Ids, Path, Progress], None]] = {
    ".faiss": _write_faiss,
    ".usearch": _write_usearch,
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".copy": _write_copy,
}


def _escaped(name: str) -> str:
    """Escape the special characters of PostgreSQL's text format."""
    for character, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        name = name.replace(character, escape)
    return name


def _check_lines(index: Store, ids: Ids) -> None:
    for name in ids:
        if "\n" in name or "\r" in name:
            raise ValueError(
                f"{index.path}: the id {name!r} contains a line break, which a text file of ids "
                "cannot contain; export to .parquet"
            )


def _check_bytes(index: Store, target: str) -> None:
    if index.bits % 8:
        raise ValueError(
            f"{index.path}: {target} needs a code length that is a multiple of 8, got "
            f"{index.bits}; export to .parquet, .npy or .copy"
        )


def _module(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"this export needs {error.name}: pip install {package}") from error
