"""Measure how much two images differ, ignoring size, compression and brightness.

Images are reduced to 32 x 32 cells and normalized to the same mean and standard deviation. The
difference of a cell is its distance to the range of values of the 3 x 3 neighborhood in the other
image, so edges may be displaced by one cell, as in a slightly cropped copy. The difference of two
images is the mean over all cells and color channels, in standard deviations, computed in both
directions; the larger value is used. Mirrored images and quarter turns can be compared, too.

Normalization removes everything from uniform images, such as a black and a white one. Their colors
are compared in addition, with a tolerance for noise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import reduce
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 32
"""Height and width of reduced images."""

ALIKE = 0.07
"""Two images that differ by at most this are copies (`benchmarks/duplicates.py`)."""

_CELLS = np.arange(3 * SIDE**2).reshape(SIDE, SIDE, 3)
_UPRIGHT = _CELLS.ravel()
_TURNED = [
    np.rot90(cells, turns).ravel() for cells in (_CELLS, _CELLS[:, ::-1]) for turns in range(4)
][1:]
"""The order of the cells of an image that is mirrored or turned, or both."""

_NOISE = 4.0  # gray levels; larger than the compression noise of a uniform image
_MIDDLE, _SPREAD = 128, 40  # mean and standard deviation of the levels; a byte covers +-3 of them
_PAIRS = 512  # compared at a time
_IMAGES = 512  # reduced at a time
_IN_MEMORY = 2**26  # bytes of reduced images; more are written to a temporary file

Levels = NDArray[np.uint8]


class Reduced(NamedTuple):
    """N images, reduced for comparison."""

    levels: Levels
    """Shape (N, cells)."""
    lowest: Levels
    """Minimum of the 3 x 3 neighborhood of each cell, shape (N, cells)."""
    highest: Levels
    """Maximum of the 3 x 3 neighborhood of each cell, shape (N, cells)."""
    colors: NDArray[np.float32]
    """Mean color of each image, shape (N, 3)."""
    uniform: NDArray[np.bool_]
    """Whether an image is uniform except for noise, shape (N,)."""


def reduce_pixels(pixels: NDArray[np.uint8]) -> Reduced:
    """Reduce images of shape (N, 32, 32, 3) to the input of `differences`."""
    values = pixels.astype(np.float32)
    colors = values.mean(axis=(1, 2))
    uniform = values.var(axis=(1, 2)).mean(axis=1) <= _NOISE**2
    values -= values.mean(axis=(1, 2, 3), keepdims=True)
    variance = np.square(values).mean(axis=(1, 2, 3), keepdims=True)
    values *= _SPREAD / np.sqrt(variance + _NOISE**2)
    levels = np.clip(np.rint(values + _MIDDLE), 0, 255).astype(np.uint8)
    around = np.pad(levels, ((0, 0), (1, 1), (1, 1), (0, 0)), "edge")
    shifted = [around[:, y : y + SIDE, x : x + SIDE] for y in range(3) for x in range(3)]
    lowest, highest = reduce(np.minimum, shifted), reduce(np.maximum, shifted)
    flat = (len(pixels), 3 * SIDE**2)
    return Reduced(
        levels.reshape(flat), lowest.reshape(flat), highest.reshape(flat), colors, uniform
    )


def reduce_stream(pixels: Iterable[NDArray[np.uint8]], count: int) -> Reduced:
    """Reduce up to `count` images of shape (32, 32, 3) in small batches, in bounded memory.

    If the reduced images take more than 64 MiB, they are in a temporary file without a name, which
    disappears with the result.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    >>> reduced = reduce_stream(iter(images), 3)
    >>> all(map(np.array_equal, reduced, reduce_pixels(images)))
    True
    """
    waiting = iter(pixels)
    reduced: Reduced | None = None
    start = 0
    while batch := list(islice(waiting, _IMAGES)):
        part = reduce_pixels(np.stack(batch))
        if reduced is None:
            reduced = Reduced._make(_space((count, *each.shape[1:]), each.dtype) for each in part)
        for whole, each in zip(reduced, part, strict=True):
            whole[start : start + len(batch)] = each
        start += len(batch)
    if reduced is None:
        return reduce_pixels(np.empty((0, SIDE, SIDE, 3), np.uint8))
    return Reduced._make(each[:start] for each in reduced)


def _space(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array in memory, or in a temporary file if it is large."""
    if np.prod(shape) * dtype.itemsize <= _IN_MEMORY // 3:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:  # the array keeps the file open
        return np.memmap(file, dtype, "w+", shape=shape)


def differences(
    reduced: Reduced, one: NDArray[np.int64], other: NDArray[np.int64], *, turned: bool = False
) -> NDArray[np.float64]:
    """Return how much the images of P pairs differ.

    Parameters
    ----------
    reduced : Reduced
    one, other : ndarray of int, shape (P,)
        Rows of the images to compare.
    turned : bool
        Whether the second image is mirrored, turned by 90, 180 or 270 degrees, or both. The
        smallest of these 7 differences is returned.

    Returns
    -------
    ndarray of float, shape (P,)

    Examples
    --------
    >>> from bitprint.data import draw_shapes
    >>> scenes = draw_shapes(2, size=32).pixels
    >>> darker = (scenes[0] * 0.8).astype(np.uint8)
    >>> reduced = reduce_pixels(np.stack([*scenes, darker]))
    >>> found = differences(reduced, np.array([0, 0]), np.array([2, 1]))
    >>> (found <= ALIKE).tolist()
    [True, False]
    >>> mirrored = reduce_pixels(np.stack([scenes[0], scenes[0][:, ::-1]]))
    >>> float(differences(mirrored, np.array([0]), np.array([1]), turned=True)[0])
    0.0
    """
    found = np.empty(len(one))
    orders = _TURNED if turned else [_UPRIGHT]
    for start in range(0, len(one), _PAIRS):
        part = slice(start, start + _PAIRS)
        first = _cells(reduced, one[part])
        second = _cells(reduced, other[part])
        each = [_difference(first, [cells[:, order] for cells in second]) for order in orders]
        found[part] = np.min(each, axis=0) / _SPREAD
    uniform = reduced.uniform[one] & reduced.uniform[other]
    apart = np.abs(reduced.colors[one[uniform]] - reduced.colors[other[uniform]]).mean(axis=1)
    found[uniform] = np.maximum(found[uniform], apart / _NOISE - 1)
    return found


def _cells(reduced: Reduced, rows: NDArray[np.int64]) -> list[Levels]:
    return [reduced.levels[rows], reduced.lowest[rows], reduced.highest[rows]]


def _difference(first: list[Levels], second: list[Levels]) -> NDArray[np.float64]:
    return np.maximum(_outside(first[0], *second[1:]), _outside(second[0], *first[1:]))


def _outside(levels: Levels, lowest: Levels, highest: Levels) -> NDArray[np.float64]:
    """Return the mean distance of the cells of one image to the ranges of the other."""
    # At most one of the two is nonzero.
    above, below = np.maximum(levels, highest) - highest, lowest - np.minimum(levels, lowest)
    return np.asarray((above + below).mean(axis=1))
