"""open_index: one way to indexes in local files, on PostgreSQL and on Milvus."""

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
# By scheme: the module, its class, and the package with its driver.
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
    """Open an index, or make one, wherever it is kept.

    Parameters
    ----------
    uri : str or path
        The path of a file, or the address of a store. `postgresql://user@host/database` is
        PostgreSQL with the extension pgvector, `milvus://host:19530` a Milvus server, and
        `milvus:///photos.db` Milvus Lite in a file. One database may hold several indexes, each
        by the name that follows `?index=`.
    bits : int, optional
        The length of the codes: needed to create, otherwise checked.
    model : str, optional
        The identity of the hasher whose codes the index holds: kept in a new index, otherwise
        checked.
    create : bool, default=False
        Make an empty index where none is yet.
    attachments : dict of str to bytes, optional
        What a new index holds besides codes from the beginning.
    timeout : float, default=30.0
        Seconds to wait for a server or for another writer before giving up.

    Returns
    -------
    Store
        `Index`, `PostgresIndex` or `MilvusIndex`, which have the same methods.

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
            raise ValueError("a new index needs to know how many bits its codes have; give bits")
        made: Store = store.create(uri, bits, model=model, attachments=attachments, timeout=timeout)
        return made
    if attachments is not None:
        raise ValueError("attachments are for a new index; use attach on one that exists")
    index: Store = store.open(uri, timeout=timeout)
    with on_error(index.close):
        check_same(index, bits, model)
    return index


def index_exists(place: str | os.PathLike[str]) -> bool:
    """Whether there is something at a place, so that no index can be made there.

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
    """Whether a place is the address of a store rather than the path of a file.

    Examples
    --------
    >>> is_uri("postgresql://localhost/photos"), is_uri("photos.bp")
    (True, False)
    """
    return isinstance(place, str) and "://" in place


def shown_place(place: str | os.PathLike[str]) -> str:
    """Return a place as it may be shown: a path, or the address of a store without its password.

    It is the `path` of the index that is there, or will be.

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
            f"no index can be kept at {scheme}://; give a path, postgresql:// or milvus://"
        )
    module, name, package = _STORES[scheme]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"an index at {scheme}:// needs {error.name}: pip install {package}"
        ) from error


def check_same(index: Store, bits: int | None = None, model: str | None = None) -> None:
    """Raise a ValueError unless an index holds codes of so many bits, by this model."""
    if bits is not None and bits != index.bits:
        raise ValueError(f"{index.path}: holds codes of {index.bits} bits, not of {bits}")
    if model is not None and model != index.model:
        raise ValueError(
            f"{index.path}: holds codes by {index.model}, which do not compare with those by "
            f"{model}; make another index"
        )
