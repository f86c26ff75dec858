"""OrderedPaths: all that lies below a folder, found without going through the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class OrderedPaths:
    """Paths, each given once.

    Examples
    --------
    >>> paths = OrderedPaths(["/photos/b.jpg", "/photos/cats/tom.jpg", "/photos.old/a.jpg"])
    >>> paths.below("/photos"), paths.below("/photos/b.jpg"), paths.below("/photos/dogs")
    (['/photos/b.jpg', '/photos/cats/tom.jpg'], ['/photos/b.jpg'], [])
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._keys = sorted(map(_key, paths))

    def below(self, place: str) -> list[str]:
        """Return the paths that are a place or lie below it, see `bitprint.photos.files`."""
        first = _key(place)
        found = self._keys[bisect_left(self._keys, first) : bisect_left(self._keys, first + "\1")]
        return [key.replace("\0", "/") for key in found]


def _key(path: str) -> str:
    """Put the least of all characters in place of the slash: a folder precedes what it holds."""
    return path.rstrip("/").replace("/", "\0")
