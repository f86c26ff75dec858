"""Group images whose codes are at most a few bits apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import Progress
from bitprint.search.stores.interface import Store

_QUERIES = 1024  # at a time
_MATCHES = 2**20  # at a time, because a query may find all codes of the index
_ROWS = 64


class Group(NamedTuple):
    """Images with similar codes.

    Examples
    --------
    >>> group = Group(ids=["cats/tom.jpg", "cats/tom (copy).jpg"], distance=0)
    >>> keep, *spare = group.ids
    >>> spare
    ['cats/tom (copy).jpg']
    """

    ids: list[Any]
    """The ids in insertion order."""
    distance: int
    """The largest distance between two codes of the group, in bits."""


def default_radius(bits: int, codes_alone: bool = False) -> int:
    """Return the code distance, in bits, up to which images are compared.

    Longer codes have a larger radius in relation to their length, because other images are rarely
    that near.

    Parameters
    ----------
    bits : int
        Code length.
    codes_alone : bool
        Whether the pixels of the images are not compared, which requires a smaller radius.

    Examples
    --------
    >>> default_radius(64), default_radius(256), default_radius(256, codes_alone=True)
    (10, 48, 16)
    """
    if bits < 128:
        return 2 if codes_alone else max(2, 10 * bits // 64)
    return bits // 16 if codes_alone else 3 * bits // 16


def find_duplicates(
    index: Store, radius: int | None = None, *, progress: Progress | None = None
) -> list[Group]:
    """Group the codes of an index that are linked by distances of at most `radius`.

    The groups are the connected components of the links. Two codes of a group can therefore be
    more than `radius` bits apart; `Group.distance` is the largest distance in a group.

    Parameters
    ----------
    index : Index or another store
    radius : int, optional
        Largest distance of a link in bits; by default that of `default_radius` for codes alone.
    progress : callable, optional
        Called with (done, total) distinct codes.

    Returns
    -------
    list of Group
        Groups of at least two codes, largest first, then in insertion order.

    Examples
    --------
    >>> import tempfile
    >>> from bitprint.search.index import Index
    >>> codes = Codes.from_signs([[1, 1, 1, 1], [-1, -1, -1, -1], [1, 1, 1, -1], [1, 1, -1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add(["a", "b", "c", "d"], codes)
    ...         find_duplicates(index, radius=1)
    [Group(ids=['a', 'c', 'd'], distance=2)]
    """
    if radius is None:
        radius = default_radius(index.bits, codes_alone=True)
    stored = index.ids()
    ids = stored.tolist()
    codes = index.codes(ids)
    distinct, owners = _distinct(codes)
    place = _Places(stored)
    components = np.arange(len(distinct))
    links: list[NDArray[np.int64]] = []
    # In random order, so that a batch finds about as many matches per query as the last one.
    order = np.random.default_rng(0).permutation(len(distinct))
    done, size = 0, 1
    while done < len(order):
        rows = order[done : done + size]
        found, _ = index.within(distinct[rows], radius)
        counts = [len(near) for near in found]
        places = place(np.concatenate(found))
        # Another process may have added codes that have no place here.
        known = places >= 0
        near = np.stack([np.repeat(rows, counts)[known], owners[places[known]]], axis=1)
        links.append(near[near[:, 0] < near[:, 1]])
        done += len(rows)
        size = max(1, min(2 * size, _QUERIES, _MATCHES * len(rows) // max(1, sum(counts))))
        if sum(map(len, links)) >= len(distinct) or done == len(order):
            components = connect(components, np.concatenate(links))
            links = []
        if progress is not None:
            progress(done, len(order))
    groups = [
        Group([ids[row] for row in rows], diameter(codes[rows]))
        for rows in members(components[owners])
    ]
    return sorted(groups, key=lambda group: -len(group.ids))


class _Places:
    """Find the places of ids in an array of distinct ids; -1 for other ids."""

    def __init__(self, ids: NDArray[Any]) -> None:
        self._numbers: dict[Any, int] | None = None
        if ids.dtype.kind == "i":
            self._order = np.argsort(ids, kind="stable")
            self._sorted = ids[self._order]
        else:
            self._numbers = {name: place for place, name in enumerate(ids.tolist())}

    def __call__(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        if self._numbers is not None:
            return np.array([self._numbers.get(name, -1) for name in ids.tolist()], np.int64)
        at = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        return np.where(self._sorted[at] == ids, self._order[at], -1)


def connect(components: NDArray[np.int64], links: NDArray[np.int64]) -> NDArray[np.int64]:
    """Merge the connected components of rows that are linked.

    Parameters
    ----------
    components : ndarray of int, shape (N,)
        The component of each row, from 0 to N - 1.
    links : ndarray of int, shape (L, 2)
        Pairs of rows.

    Returns
    -------
    ndarray of int, shape (N,)
        The component of each row after merging.

    Examples
    --------
    >>> connected = connect(np.arange(5), np.array([[3, 1], [4, 3]]))
    >>> members(connected)
    [[1, 3, 4]]
    """
    from scipy.sparse import csr_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    first, second = components[links].T
    ones = np.ones(len(links), np.bool_)
    graph = csr_array((ones, (first, second)), shape=(len(components), len(components)))
    _, merged = connected_components(graph, directed=False)
    return np.asarray(merged[components], np.int64)


def members(components: NDArray[np.int64]) -> list[list[int]]:
    """Return the components of at least two rows, ordered by their first rows."""
    several = np.flatnonzero(np.bincount(components)[components] > 1)
    rows: dict[int, list[int]] = {}
    for row, component in zip(several.tolist(), components[several].tolist(), strict=True):
        rows.setdefault(component, []).append(row)
    return list(rows.values())


def _distinct(codes: Codes) -> tuple[Codes, NDArray[np.int64]]:
    """Return the distinct codes, and the number of the distinct code of each row."""
    packed, owners = np.unique(codes.packed, axis=0, return_inverse=True)
    return Codes(packed, codes.bits), owners.reshape(-1)


def diameter(codes: Codes) -> int:
    """Return the largest distance between two codes."""
    distinct = codes if len(codes) <= _ROWS else _distinct(codes)[0]
    return max(
        int(distinct[start : start + _ROWS].hamming(distinct).max())
        for start in range(0, len(distinct), _ROWS)
    )
