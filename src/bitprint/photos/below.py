"""What lies below a folder, found without comparing everything with everything."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from bitprint.photos.files import is_below


class OrderedPaths:
    """Paths, each given once.

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
        """Return the paths that are a place or lie below it, see `bitprint.photos.files`."""
        first = _key(place)
        return self._paths[bisect_left(self._keys, first) : bisect_left(self._keys, first + "\1")]


def outermost(places: Iterable[str]) -> list[str]:
    """Leave out the places that lie below another; return the rest sorted, each once.

    Examples
    --------
    >>> outermost(["/photos/cats", "/photos.old", "/photos"])
    ['/photos', '/photos.old']
    """
    kept: list[str] = []
    for place in sorted(places, key=_key):
        # What lies below a place follows it, so that the last one kept is the only candidate.
        if not kept or not is_below(place, kept[-1]):
            kept.append(place)
    return sorted(kept)


def folder_labels(paths: Iterable[str], folders: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the labels of paths that lie below a folder: the first-level sub-folder, if any.

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
    """Put the least of all characters in place of the slash: a folder precedes what it holds."""
    return path.rstrip("/").replace("/", "\0")
