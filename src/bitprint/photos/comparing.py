"""Compare the pixels of images with similar codes, and keep only true near-duplicates together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import Progress, decode_ahead
from bitprint.photos.duplicates import Group, connect, default_radius, diameter, members
from bitprint.photos.files import Skipped
from bitprint.photos.likeness import ALIKE, SIDE, Reduced, differences, reduce_stream
from bitprint.search.details import Item
from bitprint.search.stores.interface import Store

_ROWS = 64  # compared with all others at a time,
_PAIRS = 2**22  # but no more pairs of codes than this

Pixels = NDArray[np.uint8]


class Compared(NamedTuple):
    """The result of `compare_pictures`.

    Examples
    --------
    >>> group = Group(ids=["cats/tom.jpg", "cats/tom (copy).jpg"], distance=0)
    >>> compared = Compared([group], skipped=[("cats/kitty.jpg", "no such file")], without_file=0)
    >>> f"{len(compared.groups)} group, {len(compared.skipped)} image skipped"
    '1 group, 1 image skipped'
    """

    groups: list[Group]
    """Groups of at least two images, largest first."""
    skipped: Skipped
    """Missing and unreadable files with the reason. They are in no group."""
    without_file: int
    """Number of codes without a local file. They are grouped separately, by codes alone."""


def compare_pictures(
    index: Store,
    groups: Sequence[Group],
    radius: int | None = None,
    *,
    difference: float = ALIKE,
    progress: Progress | None = None,
) -> Compared:
    """Open the images of groups with similar codes, and split groups whose pixels differ.

    Two images are linked if their codes are at most `radius` bits apart and their pixels differ
    little, see `bitprint.photos.likeness`. The new groups are the connected components of these
    links. Copies that were compressed again, resized, brightened, cropped by a few percent,
    mirrored or turned by 90, 180 or 270 degrees stay in one group.

    Parameters
    ----------
    index : Index or another store
    groups : sequence of Group
        The result of `find_duplicates` on this index. Only images of these groups are opened.
    radius : int, optional
        Largest code distance of a link in bits, as given to `find_duplicates`.
    difference : float
        Largest pixel difference of a link, in standard deviations of the pixels.
    progress : callable, optional
        Called with (done, total) images.

    Returns
    -------
    Compared

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
    ...         codes = Codes.from_signs(np.ones((3, 4)))  # the same code for all three
    ...         index.add(names, codes, paths=[f"{folder}/{name}" for name in names])
    ...         compare_pictures(index, find_duplicates(index)).groups
    [Group(ids=['first.png', 'smaller.jpg'], distance=0)]
    """
    if radius is None:
        radius = default_radius(index.bits, codes_alone=True)
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
        with_file = [row for row in rows if files[row] is not None]
        without_file = [row for row in rows if files[row] is None]
        read: list[int] = []

        def readable(with_file: list[int] = with_file, read: list[int] = read) -> Iterator[Pixels]:
            for row, found in zip(with_file, opened, strict=False):
                if isinstance(found, str):
                    skipped.append((str(files[row]), found))
                else:
                    read.append(row)
                    yield found

        reduced = reduce_stream(readable(), len(with_file))
        parts = _linked(codes, read, radius, reduced, difference)
        parts += _linked(codes, without_file, radius)
        kept += [Group([ids[row] for row in part], diameter(codes[part])) for part in parts]
    kept.sort(key=lambda group: -len(group.ids))
    return Compared(kept, skipped, files.count(None))


def _file(item: Item) -> str | None:
    """Return the path of a local file; None if there is none or it is in an object store."""
    return None if item.path is None or "://" in item.path else item.path


def _open(files: Sequence[str], progress: Progress | None) -> Iterator[Pixels | str]:
    """Yield the pixels of each file, or the reason why it cannot be read."""
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
    reduced: Reduced | None = None,
    difference: float = ALIKE,
) -> list[list[int]]:
    """Return groups of at least two rows linked by codes and, if given, by pixels."""
    if len(rows) < 2:
        return []
    codes = codes[rows]
    components = np.arange(len(rows))
    size = max(1, min(_ROWS, _PAIRS // len(rows)))
    for start in range(0, len(rows), size):
        one, other = np.nonzero(codes[start : start + size].hamming(codes) <= radius)
        one += start
        # Pairs that are already in one component need no comparison.
        apart = (one < other) & (components[one] != components[other])
        one, other = one[apart], other[apart]
        if reduced is not None:
            alike = differences(reduced, one, other) <= difference
            rest = np.flatnonzero(~alike)
            turned = differences(reduced, one[rest], other[rest], turned=True)
            alike[rest] = turned <= difference
            one, other = one[alike], other[alike]
        if len(one):
            components = connect(components, np.stack([one, other], axis=1))
    return [[rows[member] for member in group] for group in members(components)]
