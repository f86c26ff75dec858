"""Sources of pictures: several folders, CSVs, files or listings, listed as one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from bitprint.data.formats import SUFFIXES, say_left_out
from bitprint.data.names import printable
from bitprint.photos.files import Listing, Picture, Source, list_pictures, named

Entry = TypeVar("Entry")


def list_each(sources: Sequence[Source | Listing], known: Iterable[str] = ()) -> list[Listing]:
    """List each source as `list_pictures` does, or take a listing as it is.

    In a folder below another of them, as below one that is known, pictures have the labels that
    they have there.

    Examples
    --------
    >>> [listing.skipped for listing in list_each([["/no/such/tom.jpg"], []])]
    [[('/no/such/tom.jpg', 'no such file')], []]
    """
    paths = [named(source) for source in sources if isinstance(source, str | os.PathLike)]
    folders = [*known, *(path.resolve().as_posix() for path in paths if path.is_dir())]
    return [
        source if isinstance(source, Listing) else list_pictures(source, folders)
        for source in sources
    ]


def merge(listings: Iterable[Listing]) -> Listing:
    """Make one listing of several; of a picture in two of them the last labels count.

    Examples
    --------
    >>> merge([list_pictures(["/no/such/tom.jpg"])] * 2).skipped
    [('/no/such/tom.jpg', 'no such file')]
    """
    parts = list(listings)
    pictures: dict[str, Picture] = {}
    for picture in chain.from_iterable(part.pictures for part in parts):
        if picture.labels or picture.path not in pictures:
            pictures[picture.path] = picture
    return Listing(
        sorted(pictures.values()),
        _each_once(part.skipped for part in parts),
        _each_once(part.folders for part in parts),
        _each_once(part.parents for part in parts),
        _each_once(part.left_out for part in parts),
    )


def list_some(sources: Sequence[Source | Listing], known: Iterable[str] = ()) -> Listing:
    """List sources as one; raises a ValueError if one of them is empty.

    Examples
    --------
    >>> list_some([[]])
    Traceback (most recent call last):
    ValueError: the list: no pictures found
    """
    listings = list_each(sources, known)
    for source, listing in zip(sources, listings, strict=True):
        check_found(source, listing)
    return merge(listings)


def check_found(source: Source | Listing, listing: Listing) -> None:
    """Raise a ValueError if nothing was found in a source.

    Examples
    --------
    >>> check_found("notes.csv", Listing([], [], [], [], []))
    Traceback (most recent call last):
    ValueError: notes.csv: no pictures found
    """
    if not listing.pictures and not listing.skipped:
        raise ValueError(f"{_name(source)}: no pictures found{_formats(listing)}")


def list_for_new(sources: Sequence[Source | Listing]) -> Listing:
    """List what a new collection begins with; raises a ValueError if no picture can be read.

    Examples
    --------
    >>> list_for_new([["/no/such/tom.jpg"]])
    Traceback (most recent call last):
    ValueError: the list: no image can be read; the first, /no/such/tom.jpg: no such file
    """
    listing = list_some(sources)
    if not listing.pictures:
        name, reason = listing.skipped[0]
        raise ValueError(
            f"{', '.join(map(_name, sources))}: no image can be read; "
            f"the first, {printable(name)}: {reason}"
        )
    return listing


def _each_once(parts: Iterable[list[Entry]]) -> list[Entry]:
    return list(dict.fromkeys(chain.from_iterable(parts)))


def _name(source: Source | Listing) -> str:
    return str(source) if isinstance(source, str | os.PathLike) else "the list"


def _formats(listing: Listing) -> str:
    """Say which formats are read, where a folder was searched through, and which were found."""
    if not listing.folders:
        return ""
    found = f"; {say_left_out(listing.left_out)}" if listing.left_out else ""
    return f" ({', '.join(sorted(SUFFIXES))}){found}"
