"""open_index: open or create an index in a file, on PostgreSQL or on Milvus."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from bitprint.search.closing import on_error
from bitprint.search.index import Index
from bitprint.search.stores.interface import Store

__all__ = ["Store", "index_exists", "is_uri", "open_index"]

_POSTGRES = ("bitprint.search.stores.postgres", "PostgresIndex", "'psycopg[binary]'")
# Module, class and driver package of each scheme.
_STORES = {
    "postgresql": _POSTGRES,
    "postgres": _POSTGRES,
    "milvus": ("bitprint.search.stores.milvus", "MilvusIndex", "'pymilvus<2.7'"),
}


def open_index(
    uri: str | os.PathLike[str],
    *,
    bits: int | None = None,
    model: str | None = None,
    create: bool = False,
    attachments: Mapping[str, bytes] | None = None,
    timeout: float = 30.0,
) -> Store:
    """Open or create an index in a file or on a server.

    Parameters
    ----------
    uri : str or path
        The path of a file, or the address of a store: `postgresql://user@host/database` for
        PostgreSQL with the extension pgvector, `milvus://host:19530` for a Milvus server, or
        `milvus:///photos.db` for Milvus Lite in a file. A database can contain several indexes;
        append `?index=NAME` to choose one.
    bits : int, optional
        Code length. Required to create an index; otherwise it is checked.
    model : str, optional
        Identity of the hasher that computes the codes. Stored in a new index; otherwise it is
        checked.
    create : bool, default=False
        Create an empty index that must not exist yet.
    attachments : dict of str to bytes, optional
        Attachments of a new index.
    timeout : float, default=30.0
        Seconds to wait for a server or for another writer.

    Returns
    -------
    Store
        An `Index`, `PostgresIndex` or `MilvusIndex`. They have the same methods, and `promises`
        lists the guarantees of each.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_index(f"{folder}/photos.bp", bits=4, create=True) as index:
    ...         index.add(["a", "b"], codes)
    ...         index.search(codes[1], k=1).ids.tolist()
    [['b']]
    """
    store = _store_of(uri)
    if create:
        if bits is None:
            raise ValueError("a new index needs the number of bits of its codes; give bits=")
        made: Store = store.create(uri, bits, model=model, attachments=attachments, timeout=timeout)
        return made
    if attachments is not None:
        raise ValueError("attachments are only for a new index; call attach on an existing index")
    index: Store = store.open(uri, timeout=timeout)
    with on_error(index.close):
        check_same(index, bits, model)
    return index


def index_exists(place: str | os.PathLike[str]) -> bool:
    """Return whether an index, or any other file, exists at a path or address.

    Examples
    --------
    >>> index_exists("no such folder/photos.bp")
    False
    """
    if not is_uri(place):
        return Path(place).exists()
    try:
        open_index(place).close()
    except FileNotFoundError:
        return False
    return True


def is_uri(place: str | os.PathLike[str]) -> bool:
    """Return whether a place is the address of a store, not the path of a file.

    Examples
    --------
    >>> is_uri("postgresql://localhost/photos"), is_uri("photos.bp")
    (True, False)
    """
    return isinstance(place, str) and "://" in place


def shown_place(place: str | os.PathLike[str]) -> str:
    """Return a path, or the address of a store without its password.

    It equals the `path` of the index there.

    Examples
    --------
    >>> shown_place("photos.bp")
    'photos.bp'
    """
    store = _store_of(place)
    return str(place) if store is Index else str(store.shown(place))


def _store_of(uri: str | os.PathLike[str]) -> Any:
    if not is_uri(uri):
        return Index
    scheme = str(uri).partition("://")[0]
    if scheme not in _STORES:
        raise ValueError(
            f"{scheme}:// is not supported; give a path, postgresql://... or milvus://..."
        )
    module, name, package = _STORES[scheme]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"an index at {scheme}:// needs {error.name}: pip install {package}"
        ) from error


def check_same(index: Store, bits: int | None = None, model: str | None = None) -> None:
    """Raise ValueError if an index has another code length or another model."""
    if bits is not None and bits != index.bits:
        raise ValueError(
            f"{index.path}: the index has codes of {index.bits} bits, not {bits}; create another "
            "index"
        )
    if model is not None and model != index.model:
        raise ValueError(
            f"{index.path}: the codes were computed by {index.model} and cannot be compared with "
            f"those of {model}; create another index"
        )
