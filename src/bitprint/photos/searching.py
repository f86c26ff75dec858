"""Search an index by example; hits have paths and labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bitprint.codes import Codes
from bitprint.data.decoding import convert_image, decode_image
from bitprint.photos.files import named
from bitprint.search.stores.interface import Store

CANDIDATES = 100
"""Number of nearest codes that are ordered by the real-valued outputs of the query."""

_TRIES = 3
_MANY = 1000

Described = TypeVar("Described")
Describe = Callable[[list[Any], list[int]], Iterable[Described]]


Query = str | os.PathLike[str] | Image.Image | NDArray[np.uint8] | Codes
"""An image or a code."""

Outputs = NDArray[np.floating[Any]]


class Hit(NamedTuple):
    """One result of a search.

    Examples
    --------
    >>> hit = Hit("/photos/tom.jpg", "/photos/tom.jpg", distance=3, labels=("cats",))
    >>> f"{hit.distance} bits: {hit.path}"
    '3 bits: /photos/tom.jpg'
    """

    id: int | str
    path: str | None
    """Path of the image; None if the index contains only its code."""
    distance: int
    """Hamming distance between its code and the code of the query."""
    labels: tuple[str, ...]


def find_hits(
    index: Store,
    codes: Codes,
    k: int = 10,
    label: str | None = None,
    outputs: Outputs | None = None,
) -> list[list[Hit]]:
    """Return the hits of each query, nearest first.

    Parameters
    ----------
    index : Index or another store
    codes : Codes
        N queries.
    k : int, default=10
        Maximum number of hits per query.
    label : str, optional
        Return only items with this label.
    outputs : ndarray of float, shape (N, bits), optional
        The real-valued outputs of the model for the queries. The `CANDIDATES` nearest codes, or k
        if that is more, are ordered by their inner product with these outputs instead of by
        Hamming distance.

    Returns
    -------
    list of list of Hit
        Of length N.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/codes.bp", bits=4) as index:
    ...         index.add(["tom", "rex"], codes, labels=[["cat"], ["dog"]])
    ...         find_hits(index, codes[:1], k=1)
    [[Hit(id='tom', path=None, distance=0, labels=('cat',))]]
    """

    def describe(ids: list[Any], distances: list[int]) -> list[Hit]:
        return [
            Hit(identifier, item.path, distance, item.labels)
            for identifier, item, distance in zip(ids, index.items(ids), distances, strict=True)
        ]

    return find_described(index, codes, k, label, describe, outputs=outputs)


def find_described(
    index: Store,
    codes: Codes,
    k: int,
    label: str | None,
    describe: Describe[Described],
    radii: NDArray[Any] | None = None,
    outputs: Outputs | None = None,
) -> list[list[Described]]:
    """Search and describe the hits; repeat the search if a hit was removed in between.

    Parameters
    ----------
    index, codes, k, label, outputs
        As in `find_hits`.
    describe : callable
        Called with the ids and distances of all hits; returns a description of each. It raises
        ValueError if another process has removed one of the ids.
    radii : ndarray of int, shape (N,), optional
        Largest distance of the hits of each query, in bits.
    """
    if k > _MANY:  # a search allocates memory for k hits per query
        k = min(k, max(len(index), 1))
    wanted = k if outputs is None else max(k, CANDIDATES)
    for tries_left in reversed(range(_TRIES)):
        ids, distances = index.search(codes, wanted, label)
        try:
            if outputs is not None:
                order = _order(index, ids, distances, outputs)[:, :k]
                ids = np.take_along_axis(ids, order, axis=1)
                distances = np.take_along_axis(distances, order, axis=1)
            near = distances >= 0
            if radii is not None:
                near &= distances <= radii[:, None]
            found = iter(describe(ids[near].tolist(), distances[near].tolist()))
        except ValueError:
            if not tries_left:
                raise
        else:
            return [list(islice(found, count)) for count in near.sum(axis=1).tolist()]
    raise AssertionError("the last try returns or raises")


def _order(
    index: Store, ids: NDArray[Any], distances: NDArray[np.int32], outputs: Outputs
) -> NDArray[np.int64]:
    """Return the order of the results of each query by the inner product of code and outputs."""
    found = distances >= 0
    signs = np.zeros((*ids.shape, index.bits), np.int8)
    signs[found] = index.codes(ids[found].tolist()).signs()
    scores = np.einsum("nkb,nb->nk", signs, outputs, dtype=np.float64)
    scores[~found] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")


def read_query(query: str | os.PathLike[str] | Image.Image | NDArray[np.uint8], size: int) -> Any:
    """Return the pixels of a query; files and PIL images are resized to size x size.

    Examples
    --------
    >>> read_query(Image.new("L", (40, 30), 128), size=8).shape
    (8, 8, 3)
    >>> read_query(["a.jpg", "b.jpg"], size=8)
    Traceback (most recent call last):
    ValueError: search expects one image (a path, a PIL image or an array) or one code, got list
    """
    if isinstance(query, np.ndarray):
        return query
    if isinstance(query, Image.Image):
        return convert_image(query, size)
    if not isinstance(query, str | os.PathLike):
        raise ValueError(
            "search expects one image (a path, a PIL image or an array) or one code, "
            f"got {type(query).__name__}"
        )
    path = named(query)
    if path.is_dir():
        raise ValueError(f"{path}: is a folder; give one image file")
    return decode_image(path, size)
