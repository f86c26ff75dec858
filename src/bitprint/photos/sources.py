"""List several sources (folders, CSVs, files or listings) together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeVar

from bitprint.data.formats import SUFFIXES, describe_left_out
from bitprint.photos.files import Listing, Picture, Source, list_pictures, named
from bitprint.utils.text import printable

Entry = TypeVar("Entry")


def list_each(sources: Sequence[Source | Listing], known: Iterable[str] = ()) -> list[Listing]:
    """Return the listing of each source; a source that is a listing is returned unchanged.

    If a folder is below another source or a known folder, its labels are relative to the outermost
    of these folders.

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
    """Merge listings; the last labels of an image that occurs more than once are used.

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
    """List sources together; raise ValueError if one of them contains no images.

    Examples
    --------
    >>> list_some([[]])
    Traceback (most recent call last):
    ValueError: the list: no images found
    """
    listings = list_each(sources, known)
    for source, listing in zip(sources, listings, strict=True):
        check_found(source, listing)
    return merge(listings)


def check_found(source: Source | Listing, listing: Listing) -> None:
    """Raise a ValueError if a source contains no images.

    Examples
    --------
    >>> check_found("notes.csv", Listing([], [], [], [], []))
    Traceback (most recent call last):
    ValueError: notes.csv: no images found
    """
    if not listing.pictures and not listing.skipped:
        raise ValueError(f"{_name(source)}: no images found{_formats(listing)}")


def list_for_new(sources: Sequence[Source | Listing]) -> Listing:
    """List the first images of a collection; raise ValueError if none can be read.

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
    """Return the supported formats and those left out, if a folder was searched."""
    if not listing.folders:
        return ""
    found = f"; {describe_left_out(listing.left_out)}" if listing.left_out else ""
    return f" ({', '.join(sorted(SUFFIXES))}){found}"
