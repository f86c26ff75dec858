"""What has become of the files of a collection: still there, moved, or gone."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path

from bitprint.photos.below import OrderedPaths, folder_labels
from bitprint.photos.files import (
    Listing,
    Picture,
    absolute,
    content_digest,
    is_below,
    is_gone,
    list_folder,
    look_again,
)
from bitprint.photos.ledger import Fact, Ledger
from bitprint.photos.sources import check_found, list_each, merge

Moved = list[tuple[str, Picture]]  # old paths, with the pictures where they lie now


def list_folders(
    folders: Sequence[str | os.PathLike[str]], ledger: Ledger, facts: dict[str, Fact]
) -> Listing:
    """List folders that are named; one that is new to the collection must hold pictures."""
    known = ledger.places().folders
    held = OrderedPaths(facts)
    listings = list_each(folders, known)
    for folder, listing in zip(folders, listings, strict=True):
        place = absolute(Path(folder)).as_posix()
        if not held.below(place) and not any(is_below(place, root) for root in known):
            check_found(folder, listing)
    listing = merge(listings)
    below = {path for place in listing.folders for path in held.below(place)}
    return _with_missed(listing, below)


def list_again(ledger: Ledger, facts: dict[str, Fact]) -> Listing:
    """List every folder that was added, and the files that were named one by one."""
    folders = ledger.places().folders
    for folder in folders:
        if not Path(folder).is_dir():
            raise FileNotFoundError(
                f"{folder}: no such folder any more; mount the disk it lies on, sync the folder "
                "that it has moved to, or remove it from the index"
            )
    # By the names they are held under: a folder that has become a link holds the same pictures.
    listings = [list_folder(Path(folder), Path(folder)) for folder in folders]
    return _with_missed(merge(listings), facts)


def _with_missed(listing: Listing, paths: Collection[str]) -> Listing:
    """Add those of the paths that are held which a listing of folders has not found.

    They were named one by one, or lie in a folder that has become a link.
    """
    held = OrderedPaths(paths)
    found = {picture.path for picture in listing.pictures}
    # A folder that cannot be read is told once, not with all that is held of it.
    found.update(path for place, _ in listing.skipped for path in held.below(place))
    missed = [path for path in paths if path not in found and not is_gone(path)]
    return merge([listing, look_again(missed)])


def find_gone(listing: Listing, facts: dict[str, Fact]) -> list[str]:
    """Return the paths of pictures that are held but lie nowhere any more.

    A folder of which nothing is left is refused: it may be a disk that is not mounted.
    """
    found = {picture.path for picture in listing.pictures}
    gone = [path for path in facts if path not in found and is_gone(path)]
    gone_paths, found_paths = OrderedPaths(gone), OrderedPaths(found)
    for folder in listing.folders:
        lost = len(gone_paths.below(folder))
        if lost and not found_paths.below(folder):
            raise ValueError(
                f"{folder}: none of its {lost} pictures is there any more; mount the disk it lies "
                "on, or remove the folder from the index"
            )
    return gone


def find_moved(pictures: Sequence[Picture], gone: Sequence[str], facts: dict[str, Fact]) -> Moved:
    """Pair the paths that are gone with new pictures of the same size, date and beginning."""
    candidates: dict[tuple[int, int], list[str]] = {}
    for path in gone:
        candidates.setdefault((facts[path].size, facts[path].modified), []).append(path)
    moved = []
    for picture in pictures:
        similar = candidates.get((picture.size, picture.modified), [])
        if picture.path in facts or not similar:
            continue
        digest = content_digest(picture.path)
        old = next((path for path in similar if facts[path].digest == digest), None)
        if old is not None:
            similar.remove(old)
            moved.append((old, picture))
    return moved


def keep_labels(
    listing: Listing, moved: Moved, ledger: Ledger, facts: dict[str, Fact]
) -> tuple[Listing, Moved]:
    """Give pictures the labels that they are held with, unless a folder gave them these.

    Labels of a folder change with the folder that a picture lies in; those of a CSV stay.
    """
    before = {picture.path: picture.path for picture in listing.pictures if picture.path in facts}
    before |= {picture.path: old for old, picture in moved}
    paths = list(before.values())
    held = ledger.labels(paths)
    by_folder = folder_labels(paths, ledger.places().folders)

    def labelled(picture: Picture) -> Picture:
        old = before.get(picture.path, "")
        labels = held.get(old, ())
        given = not labels or labels == by_folder.get(old)
        return picture if given else picture._replace(labels=labels)

    pictures = [labelled(picture) for picture in listing.pictures]
    return listing._replace(pictures=pictures), [(old, labelled(new)) for old, new in moved]
