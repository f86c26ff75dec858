"""Compare a collection with its files on disk: unchanged, moved or deleted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bitprint.photos.below import OrderedPaths, folder_labels
from bitprint.photos.files import (
    Listing,
    Picture,
    Skipped,
    absolute,
    content_digest,
    is_below,
    is_gone,
    list_folder,
    list_stored,
    named,
)
from bitprint.photos.ledger import Fact, Ledger
from bitprint.photos.sources import check_found, list_each, merge

Moved = list[tuple[str, Picture]]  # old path and new file


class Added(NamedTuple):
    """The result of `Photos.add`.

    Examples
    --------
    >>> skipped = [("/photos/a.jpg", "no such file")]
    >>> added = Added(new=2, unchanged=10, skipped=skipped, left_out=["/photos/b.dng"])
    >>> f"{added.new} of {added.new + added.unchanged} images were encoded"
    '2 of 12 images were encoded'
    """

    new: int
    """Number of encoded images, new or changed."""
    unchanged: int
    skipped: Skipped
    """Path and reason of each file that cannot be read."""
    left_out: list[str]
    """Paths of images in unsupported formats, and of linked folders (with a final slash)."""
    relabelled: int = 0
    """Number of unchanged images with new labels."""


class Synced(NamedTuple):
    """The result of `Photos.sync`.

    Examples
    --------
    >>> moved = [("/photos/a.jpg", "/photos/cats/tom.jpg")]
    >>> synced = Synced(0, 11, skipped=[], moved=moved, removed=["/photos/b.jpg"], left_out=[])
    >>> old, new = synced.moved[0]
    >>> new
    '/photos/cats/tom.jpg'
    """

    new: int
    """Number of encoded images, new or changed."""
    unchanged: int
    skipped: Skipped
    """Path and reason of each unreadable file or folder, and of each empty folder."""
    moved: list[tuple[str, str]]
    """Old and new paths of moved images."""
    removed: list[str]
    """Paths of removed images."""
    left_out: list[str]
    """Paths of images in unsupported formats, and of linked folders (with a final slash)."""
    relabelled: int = 0
    """Number of unchanged images with new labels."""


def list_folders(
    folders: Sequence[str | os.PathLike[str]], ledger: Ledger, facts: dict[str, Fact]
) -> Listing:
    """List the given folders; a folder that is new to the collection must contain images."""
    known = ledger.places().folders
    stored = OrderedPaths(facts)
    listings = list_each(folders, known)
    for folder, listing in zip(folders, listings, strict=True):
        place = absolute(named(folder)).as_posix()
        if not stored.below(place) and not any(is_below(place, root) for root in known):
            check_found(folder, listing)
    listing = merge(listings)
    below = {path for place in listing.folders for path in stored.below(place)}
    return _with_missed(listing, below)


def list_again(ledger: Ledger, facts: dict[str, Fact]) -> Listing:
    """List all added folders and all individually added files."""
    folders = ledger.places().folders
    for folder in folders:
        _check_exists(folder)
    # Use the stored paths: a folder may have been replaced by a link to the same images.
    known = [Path(folder) for folder in folders]
    listings = [list_folder(folder, folder, known) for folder in known]
    return _with_missed(merge(listings), facts)


def _with_missed(listing: Listing, paths: Collection[str]) -> Listing:
    """Add stored paths that a listing of folders has not found.

    They were added individually, or are in a folder that was replaced by a link. Such a link is not
    reported in `left_out`, because adding it would index its images twice.
    """
    stored = OrderedPaths(paths)
    left_out = [name for name in listing.left_out if not stored.below(name)]
    found = {picture.path for picture in listing.pictures}
    # Report an unreadable folder once, not each of its images.
    found.update(path for place, _ in listing.skipped for path in stored.below(place))
    missed = [path for path in paths if path not in found and not is_gone(path)]
    return merge([listing._replace(left_out=left_out), list_stored(missed)])


def _check_exists(folder: str) -> None:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder}: folder not found; mount its disk, sync its new location, "
            "or remove it from the index"
        )


def find_gone(listing: Listing, facts: dict[str, Fact]) -> list[str]:
    """Return the stored paths of images that no longer exist."""
    found = {picture.path for picture in listing.pictures}
    return [path for path in facts if path not in found and is_gone(path)]


def find_moved(pictures: Sequence[Picture], gone: Sequence[str], facts: dict[str, Fact]) -> Moved:
    """Match missing paths with new images of the same size, modification time and beginning.

    An image with another modification time also matches, if its size and beginning are unique
    among stored and new images. It is returned with the stored time, so that it is encoded again:
    the rest of the file may have changed.
    """
    similar: dict[str, list[str]] = {}
    for path in gone:
        similar.setdefault(facts[path].digest, []).append(path)
    sizes = {facts[path].size for path in gone}
    new = [picture for picture in pictures if picture.size in sizes and picture.path not in facts]
    digests = _digests(new)
    stored, found = Counter(fact.digest for fact in facts.values()), Counter(digests.values())
    moved = []
    for picture in new:
        digest = digests.get(picture.path, "")
        paths = similar.get(digest, [])
        old = next((path for path in paths if facts[path].modified == picture.modified), None)
        if old is None and paths and stored[digest] == found[digest] == 1:
            old = paths[0]
        if old is not None:
            paths.remove(old)
            moved.append((old, picture._replace(modified=facts[old].modified)))
    return moved


def _digests(pictures: Iterable[Picture]) -> dict[str, str]:
    """Return digests by path, except for unreadable files."""
    digests = {}
    for picture in pictures:
        with suppress(OSError):  # encoding reports it
            digests[picture.path] = content_digest(picture.path)
    return digests


def find_removed(
    listing: Listing, lost: Sequence[str], facts: dict[str, Fact]
) -> tuple[list[str], Skipped]:
    """Return the lost images (missing and not moved) to remove from the index.

    Images that may be on an unmounted disk are not removed. An added folder without any images
    left, and an empty or missing folder of individually added files, raise an error. Deleted
    sub-folders are normal. Empty sub-folders may be mount points; they are returned second, with
    the reason why their images are kept.
    """
    lost_paths = OrderedPaths(lost)
    found_paths = OrderedPaths(picture.path for picture in listing.pictures)
    for folder in listing.folders:
        _check_some_left(folder, lost_paths, found_paths)
    below = {path for folder in listing.folders for path in lost_paths.below(folder)}
    gone = set(lost)
    stored_paths = OrderedPaths(path for path in facts if path not in gone)
    for folder in sorted({Path(path).parent.as_posix() for path in gone - below}):
        if not stored_paths.below(folder):
            _check_exists(folder)
            if _may_be_mount_point(Path(folder)):
                _check_some_left(folder, lost_paths, stored_paths)
    empty = {path: place for path in sorted(below) if (place := _mount_point(path)) is not None}
    waiting = [
        (
            place,
            f"folder is empty, {count} of its images stay in the index; mount its disk, "
            "or delete the folder",
        )
        for place, count in Counter(empty.values()).items()
    ]
    return [path for path in lost if path not in empty], waiting


def _check_some_left(folder: str, lost: OrderedPaths, left: OrderedPaths) -> None:
    if (count := len(lost.below(folder))) and not left.below(folder):
        raise ValueError(
            f"{folder}: all images of this folder are missing ({count}); mount its disk, "
            "or remove the folder from the index"
        )


def _mount_point(path: str) -> str | None:
    """Return the innermost existing folder around a path, if it may be a mount point."""
    place = next(place for place in Path(path).parents if os.path.lexists(place))
    return place.as_posix() if _may_be_mount_point(place) else None


def _may_be_mount_point(place: Path) -> bool:
    """Return whether a folder may be a mount point: an empty folder or a broken link."""
    try:
        return not any(place.iterdir()) if place.is_dir() else place.is_symlink()
    except OSError:
        return False


def keep_labels(
    listing: Listing, moved: Moved, ledger: Ledger, facts: dict[str, Fact]
) -> tuple[Listing, Moved]:
    """Keep the stored labels of images, except those that came from a folder.

    Labels from a folder follow the current folder of an image; labels from a CSV are kept.
    """
    before = {picture.path: picture.path for picture in listing.pictures if picture.path in facts}
    before |= {picture.path: old for old, picture in moved}
    paths = list(before.values())
    stored = ledger.labels(paths)
    by_folder = folder_labels(paths, ledger.places().folders)

    def relabeled(picture: Picture) -> Picture:
        old = before.get(picture.path, "")
        labels = stored.get(old, ())
        given = not labels or labels == by_folder.get(old)
        return picture if given else picture._replace(labels=labels)

    pictures = [relabeled(picture) for picture in listing.pictures]
    return listing._replace(pictures=pictures), [(old, relabeled(new)) for old, new in moved]
