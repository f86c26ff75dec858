"""Added and Synced: what became of the pictures of a collection."""

from __future__ import annotations

from typing import NamedTuple

from bitprint.photos.files import Skipped


class Added(NamedTuple):
    """What `Photos.add` did.

    Examples
    --------
    >>> skipped = [("/photos/a.jpg", "no such file")]
    >>> added = Added(new=2, unchanged=10, skipped=skipped, left_out=["/photos/b.dng"])
    >>> f"{added.new} of {added.new + added.unchanged} pictures were encoded"
    '2 of 12 pictures were encoded'
    """

    new: int
    """How many pictures were encoded: new ones, and those that have changed."""
    unchanged: int
    skipped: Skipped
    """The files that cannot be read, each with the reason."""
    left_out: list[str]
    """Paths of pictures in formats that are not read, and of links to folders, with a slash."""
    relabelled: int = 0
    """How many of the unchanged pictures have other labels now."""


class Synced(NamedTuple):
    """What `Photos.sync` did.

    Examples
    --------
    >>> moved = [("/photos/a.jpg", "/photos/cats/tom.jpg")]
    >>> synced = Synced(0, 11, skipped=[], moved=moved, removed=["/photos/b.jpg"], left_out=[])
    >>> old, new = synced.moved[0]
    >>> new
    '/photos/cats/tom.jpg'
    """

    new: int
    """How many pictures were encoded: new ones, and those that have changed."""
    unchanged: int
    skipped: Skipped
    """The files that cannot be read, each with the reason."""
    moved: list[tuple[str, str]]
    """Old and new path of the pictures that lie elsewhere now."""
    removed: list[str]
    """Paths of the pictures that are gone."""
    left_out: list[str]
    """Paths of pictures in formats that are not read, and of links to folders, with a slash."""
    relabelled: int = 0
    """How many of the unchanged pictures have other labels now."""
