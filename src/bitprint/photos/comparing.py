"""A look at the pictures behind codes that are near: those that are really alike stay together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import Progress, decode_ahead
from bitprint.photos.chains import Chains
from bitprint.photos.duplicates import Group, diameter
from bitprint.photos.files import Skipped
from bitprint.photos.likeness import ALIKE, SIDE, differences, reduce_pixels
from bitprint.search.details import Item
from bitprint.search.stores.interface import Store

_ROWS = 64  # at a time

Pixels = NDArray[np.uint8]


class Compared(NamedTuple):
    """What `compare_pictures` found.

    Examples
    --------
    >>> group = Group(ids=["cats/tom.jpg", "cats/tom (copy).jpg"], distance=0)
    >>> compared = Compared([group], skipped=[("cats/kitty.jpg", "no such file")], without_file=0)
    >>> f"{len(compared.groups)} group, {len(compared.skipped)} picture not looked at"
    '1 group, 1 picture not looked at'
    """

    groups: list[Group]
    """Of two or more; the largest first."""
    skipped: Skipped
    """Pictures that have gone or cannot be read, each with the reason; they are in no group."""
    without_file: int
    """How many codes have no file here; they are grouped by themselves, by codes alone."""


def compare_pictures(
    index: Store,
    groups: Sequence[Group],
    radius: int = 2,
    *,
    difference: float = ALIKE,
    progress: Progress | None = None,
) -> Compared:
    """Open the pictures of groups that codes have made, and split these where pictures differ.

    Two pictures are in one group if a chain leads from one to the other in which neighbours have
    codes at most `radius` apart and pixels that differ little, see `bitprint.photos.likeness`. So
    do copies that were saved again, resized, brightened or cropped by some hundredths, and mirrored
    or turned ones do not.

    Parameters
    ----------
    index : Index or another store
    groups : sequence of Group
        What `find_duplicates` found in it. Only their pictures are opened.
    radius : int, default=2
        In bits, as it was there.
    difference : float
        How much two pictures may differ, in standard deviations of their pixels.
    progress : callable, optional
        Called with how many pictures have been opened, and how many there are to open.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from bitprint.data import draw_shapes
    >>> from bitprint.photos import find_duplicates
    >>> from bitprint.search.index import Index
    >>> first, second = map(Image.fromarray, draw_shapes(2, size=64).pixels)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first.save(f"{folder}/first.png")
    ...     first.resize((48, 48)).save(f"{folder}/smaller.jpg")
    ...     second.save(f"{folder}/second.png")
    ...     names = ["first.png", "second.png", "smaller.jpg"]
    ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         codes = Codes.from_signs(np.ones((3, 4)))  # which cannot tell them apart
    ...         index.add(names, codes, paths=[f"{folder}/{name}" for name in names])
    ...         compare_pictures(index, find_duplicates(index)).groups
    [Group(ids=['first.png', 'smaller.jpg'], distance=0)]
    """
    ids = [name for group in groups for name in group.ids]
    if not ids:
        return Compared([], [], 0)
    files, codes = [_file(item) for item in index.items(ids)], index.codes(ids)
    opened = _open([file for file in files if file is not None], progress)
    kept: list[Group] = []
    skipped: Skipped = []
    start = 0
    for group in groups:
        rows = range(start, start + len(group.ids))
        start = rows.stop
        seen: dict[int, Pixels] = {}
        blind = []
        for row in rows:
            file = files[row]
            if file is None:
                blind.append(row)
            elif isinstance(found := next(opened), str):
                skipped.append((file, found))
            else:
                seen[row] = found
        parts = _linked(codes, list(seen), radius, list(seen.values()), difference)
        parts += _linked(codes, blind, radius)
        kept += [Group([ids[row] for row in part], diameter(codes[part])) for part in parts]
    kept.sort(key=lambda group: -len(group.ids))
    return Compared(kept, skipped, files.count(None))


def _file(item: Item) -> str | None:
    """The file of a picture, unless it has none or lies in an object store."""
    return None if item.path is None or "://" in item.path else item.path


def _open(files: Sequence[str], progress: Progress | None) -> Iterator[Pixels | str]:
    """Yield the pixels of each file, or why it has none."""
    done = 0
    for batch in decode_ahead(files, SIDE):
        found = dict(zip(batch.rows, batch.pixels, strict=True)) | batch.skipped
        done += len(found)
        if progress is not None:
            progress(done, len(files))
        for row in sorted(found):
            yield found[row]


def _linked(
    codes: Codes,
    rows: list[int],
    radius: int,
    pixels: Sequence[Pixels] | None = None,
    difference: float = ALIKE,
) -> list[list[int]]:
    """Groups of two rows or more that are linked by codes and, where there are some, by pixels."""
    if len(rows) < 2:
        return []
    codes = codes[rows]
    reduced = None if pixels is None else reduce_pixels(np.stack(pixels))
    chains = Chains(len(rows))
    for start in range(0, len(rows), _ROWS):
        one, other = np.nonzero(codes[start : start + _ROWS].hamming(codes) <= radius)
        one += start
        heads = np.array([chains.head(member) for member in range(len(rows))])
        # Of many copies of one picture, few pairs have to be compared.
        apart = (one < other) & (heads[one] != heads[other])
        one, other = one[apart], other[apart]
        if reduced is not None:
            alike = differences(reduced, one, other) <= difference
            one, other = one[alike], other[alike]
        for pair in zip(one.tolist(), other.tolist(), strict=True):
            chains.link(*pair)
    return [[rows[member] for member in group] for group in chains.groups() if len(group) > 1]
