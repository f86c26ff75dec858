"""Select the paths below a folder by binary search in a sorted list."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from bitprint.photos.files import is_below


class OrderedPaths:
    """Sorted paths without duplicates.

    Parameters
    ----------
    paths : iterable of str
        Each path at most once.

    Examples
    --------
    >>> paths = OrderedPaths(["/photos/b.jpg", "/photos/cats/tom.jpg", "/photos.old/a.jpg"])
    >>> paths.below("/photos"), paths.below("/photos/b.jpg"), paths.below("/photos/dogs")
    (['/photos/b.jpg', '/photos/cats/tom.jpg'], ['/photos/b.jpg'], [])
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted(paths, key=_key)
        self._keys = [_key(path) for path in self._paths]

    def below(self, place: str) -> list[str]:
        """Return the paths that equal `place` or are below it, see `files.is_below`."""
        first = _key(place)
        return self._paths[bisect_left(self._keys, first) : bisect_left(self._keys, first + "\1")]


def outermost(places: Iterable[str]) -> list[str]:
    """Return the paths that are not below another one, sorted and without duplicates.

    Examples
    --------
    >>> outermost(["/photos/cats", "/photos.old", "/photos"])
    ['/photos', '/photos.old']
    """
    kept: list[str] = []
    for place in sorted(places, key=_key):
        # Paths below a folder follow it directly, so comparing with the last one is enough.
        if not kept or not is_below(place, kept[-1]):
            kept.append(place)
    return sorted(kept)


def folder_labels(paths: Iterable[str], folders: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the label that each path below a folder has: its first-level sub-folder, if any.

    Examples
    --------
    >>> folder_labels(["/photos/cats/wild/tom.jpg", "/photos/a.jpg", "/b.jpg"], ["/photos"])
    {'/photos/a.jpg': (), '/photos/cats/wild/tom.jpg': ('cats',)}
    """
    ordered = OrderedPaths(paths)
    return {
        path: tuple(path.removeprefix(folder.rstrip("/") + "/").split("/")[:-1][:1])
        for folder in folders
        for path in ordered.below(folder)
    }


def _key(path: str) -> str:
    """Replace slashes by the smallest character, so that a folder sorts just before its files."""
    return path.rstrip("/").replace("/", "\0")
