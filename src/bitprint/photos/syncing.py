"""What has become of the files of a collection: still there, moved, or gone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

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
    look_again,
    named,
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
        place = absolute(named(folder)).as_posix()
        if not held.below(place) and not any(is_below(place, root) for root in known):
            check_found(folder, listing)
    listing = merge(listings)
    below = {path for place in listing.folders for path in held.below(place)}
    return _with_missed(listing, below)


def list_again(ledger: Ledger, facts: dict[str, Fact]) -> Listing:
    """List every folder that was added, and the files that were named one by one."""
    folders = ledger.places().folders
    for folder in folders:
        _check_there(folder)
    # By the names they are held under: a folder that has become a link holds the same pictures.
    known = [Path(folder) for folder in folders]
    listings = [list_folder(folder, folder, known) for folder in known]
    return _with_missed(merge(listings), facts)


def _with_missed(listing: Listing, paths: Collection[str]) -> Listing:
    """Add those of the paths that are held which a listing of folders has not found.

    They were named one by one, or lie in a folder that has become a link; that one is not told as
    left out, since adding it would index its pictures a second time.
    """
    held = OrderedPaths(paths)
    left_out = [name for name in listing.left_out if not held.below(name)]
    found = {picture.path for picture in listing.pictures}
    # A folder that cannot be read is told once, not with all that is held of it.
    found.update(path for place, _ in listing.skipped for path in held.below(place))
    missed = [path for path in paths if path not in found and not is_gone(path)]
    return merge([listing._replace(left_out=left_out), look_again(missed)])


def _check_there(folder: str) -> None:
    if not Path(folder).is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder any more; mount the disk it lies on, sync the folder "
            "that it has moved to, or remove it from the index"
        )


def find_gone(listing: Listing, facts: dict[str, Fact]) -> list[str]:
    """Return the paths of pictures that are held but lie nowhere any more."""
    found = {picture.path for picture in listing.pictures}
    return [path for path in facts if path not in found and is_gone(path)]


def find_moved(pictures: Sequence[Picture], gone: Sequence[str], facts: dict[str, Fact]) -> Moved:
    """Pair the paths that are gone with new pictures of the same size, date and beginning.

    A picture with another date, as a copy has, counts too if no other, held or new, has its size
    and beginning. It is returned with the date that is held, by which it is encoded again: beyond
    its beginning it may have changed.
    """
    similar: dict[str, list[str]] = {}
    for path in gone:
        similar.setdefault(facts[path].digest, []).append(path)
    sizes = {facts[path].size for path in gone}
    new = [picture for picture in pictures if picture.size in sizes and picture.path not in facts]
    digests = _digests(new)
    held, found = Counter(fact.digest for fact in facts.values()), Counter(digests.values())
    moved = []
    for picture in new:
        digest = digests.get(picture.path, "")
        paths = similar.get(digest, [])
        old = next((path for path in paths if facts[path].modified == picture.modified), None)
        if old is None and paths and held[digest] == found[digest] == 1:
            old = paths[0]
        if old is not None:
            paths.remove(old)
            moved.append((old, picture._replace(modified=facts[old].modified)))
    return moved


def _digests(pictures: Iterable[Picture]) -> dict[str, str]:
    """Digests by path, without those of files that cannot be read."""
    digests = {}
    for picture in pictures:
        with suppress(OSError):  # which is told when the picture is to be encoded
            digests[picture.path] = content_digest(picture.path)
    return digests


def find_removed(
    listing: Listing, lost: Sequence[str], facts: dict[str, Fact]
) -> tuple[list[str], Skipped]:
    """Return those of the lost pictures, gone and not moved, that are to be forgotten.

    What may lie on a disk that is not mounted is not. An added folder of which nothing is left is
    refused, and so is a folder of files that were named one by one if it is empty or missing. Of
    sub-folders of an added one people delete some every day: those that still are there, but empty
    as the place of a disk is, come second, with the reason why their pictures stay.
    """
    lost_paths = OrderedPaths(lost)
    found_paths = OrderedPaths(picture.path for picture in listing.pictures)
    for folder in listing.folders:
        _check_some_left(folder, lost_paths, found_paths)
    below = {path for folder in listing.folders for path in lost_paths.below(folder)}
    gone = set(lost)
    held_paths = OrderedPaths(path for path in facts if path not in gone)
    for folder in sorted({Path(path).parent.as_posix() for path in gone - below}):
        if not held_paths.below(folder):
            _check_there(folder)
            if _awaits_disk(Path(folder)):
                _check_some_left(folder, lost_paths, held_paths)
    empty = {path: place for path in sorted(below) if (place := _empty_place(path)) is not None}
    waiting = [
        (
            place,
            f"empty now, {count} of its pictures stay in the index; mount the disk, "
            "or delete the folder",
        )
        for place, count in Counter(empty.values()).items()
    ]
    return [path for path in lost if path not in empty], waiting


def _check_some_left(folder: str, lost: OrderedPaths, left: OrderedPaths) -> None:
    if (count := len(lost.below(folder))) and not left.below(folder):
        raise ValueError(
            f"{folder}: none of its {count} pictures is there any more; mount the disk it lies "
            "on, or remove the folder from the index"
        )


def _empty_place(path: str) -> str | None:
    """Return the innermost folder around a path that still is there, if a disk may belong in it."""
    place = next(place for place in Path(path).parents if os.path.lexists(place))
    return place.as_posix() if _awaits_disk(place) else None


def _awaits_disk(place: Path) -> bool:
    """Whether a disk may belong there: an empty folder, or a link that leads nowhere."""
    try:
        return not any(place.iterdir()) if place.is_dir() else place.is_symlink()
    except OSError:
        return False


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
