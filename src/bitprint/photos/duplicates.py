"""Near-identical pictures: groups that are linked by codes at most a few bits apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import Progress
from bitprint.photos.chains import Chains
from bitprint.search.stores.interface import Store

_QUERIES = 64  # at a time: each may find every code there is
_ROWS = 64


class Group(NamedTuple):
    """Pictures that look alike.

    Examples
    --------
    >>> group = Group(ids=["cats/tom.jpg", "cats/tom (copy).jpg"], distance=0)
    >>> keep, *spare = group.ids
    >>> spare
    ['cats/tom (copy).jpg']
    """

    ids: list[Any]
    """In insertion order."""
    distance: int
    """The largest distance between any two of them."""


def find_duplicates(
    index: Store, radius: int = 2, *, progress: Progress | None = None
) -> list[Group]:
    """Group the codes of an index that are linked by distances of at most `radius`.

    Two codes are in one group if a chain leads from one to the other whose links are no longer
    than `radius`; the ends of a chain may be farther apart, which `Group.distance` tells.

    Parameters
    ----------
    index : Index or another store
    radius : int, default=2
        In bits.
    progress : callable, optional
        Called with how many different codes are done, and how many there are.

    Returns
    -------
    list of Group
        Of two codes or more; the largest first, then in insertion order.

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
    ids = index.ids().tolist()
    codes = index.codes(ids)
    different, owners = _distinct(codes)
    number = dict(zip(ids, owners.tolist(), strict=True))
    chains = Chains(len(different))
    for start in range(0, len(different), _QUERIES):
        found, _ = index.within(different[start : start + _QUERIES], radius)
        for row, neighbours in enumerate(found, start=start):
            for neighbour in neighbours.tolist():
                # Another process may have added it since.
                if neighbour in number:
                    chains.link(row, number[neighbour])
        if progress is not None:
            progress(min(start + _QUERIES, len(different)), len(different))
    members: dict[int, list[int]] = {}
    for row, owner in enumerate(owners.tolist()):
        members.setdefault(chains.head(owner), []).append(row)
    groups = [
        Group([ids[row] for row in rows], diameter(codes[rows]))
        for rows in members.values()
        if len(rows) > 1
    ]
    return sorted(groups, key=lambda group: -len(group.ids))


def _distinct(codes: Codes) -> tuple[Codes, NDArray[np.int64]]:
    """Return the codes that differ, and for each code which of them it is."""
    packed, owners = np.unique(codes.packed, axis=0, return_inverse=True)
    return Codes(packed, codes.bits), owners.reshape(-1)


def diameter(codes: Codes) -> int:
    """Return the largest distance between any two codes."""
    different, _ = _distinct(codes)
    return max(
        int(different[start : start + _ROWS].hamming(different).max())
        for start in range(0, len(different), _ROWS)
    )
