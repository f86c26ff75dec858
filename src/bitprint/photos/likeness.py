"""Likeness: by how much two pictures differ, however they were saved.

Pictures are reduced to 32 x 32 cells and brought to the same mean and spread, which takes away the
size of a file, its compression and its brightness. A cell differs by as much as it lies outside of
what the other picture has in the same place and in the eight around it: so edges may be displaced
by a cell, as those of a copy are that was cropped a little. The difference of two pictures is the
mean over all cells and colours, in standard deviations, from the first to the second or back,
whichever is larger. Mirrored and turned copies are other pictures by this.

Of two plain pictures, such as a black frame and a white one, that would leave nothing to compare.
They differ by their colour as well, as far as noise does not explain it.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 32
"""Height and width that pictures are reduced to."""

ALIKE = 0.07
"""Two pictures that differ by no more are copies of one (`benchmarks/duplicates.py`)."""

_NOISE = 4.0  # grey levels, so that what is left of compression in a plain picture does not count
_MIDDLE, _SPREAD = 128, 40  # of the levels: a byte holds three standard deviations either way
_PAIRS = 512  # at a time

Levels = NDArray[np.uint8]


class Reduced(NamedTuple):
    """N pictures, reduced to be compared."""

    levels: Levels
    """Shape (N, cells)."""
    lowest: Levels
    """The same of each cell and the eight around it."""
    highest: Levels
    colours: NDArray[np.float32]
    """The mean of each picture, shape (N, 3)."""
    plain: NDArray[np.bool_]
    """Whether a picture shows no more than noise around its mean."""


def reduce_pixels(pixels: NDArray[np.uint8]) -> Reduced:
    """Reduce pictures of shape (N, 32, 32, 3) to what `differences` compares."""
    values = pixels.astype(np.float32)
    colours = values.mean(axis=(1, 2))
    plain = values.var(axis=(1, 2)).mean(axis=1) <= _NOISE**2
    values -= values.mean(axis=(1, 2, 3), keepdims=True)
    variance = np.square(values).mean(axis=(1, 2, 3), keepdims=True)
    values *= _SPREAD / np.sqrt(variance + _NOISE**2)
    levels = np.clip(np.rint(values + _MIDDLE), 0, 255).astype(np.uint8)
    around = np.pad(levels, ((0, 0), (1, 1), (1, 1), (0, 0)), "edge")
    shifted = [around[:, y : y + SIDE, x : x + SIDE] for y in range(3) for x in range(3)]
    lowest, highest = reduce(np.minimum, shifted), reduce(np.maximum, shifted)
    levels, lowest, highest = (part.reshape(len(pixels), -1) for part in (levels, lowest, highest))
    return Reduced(levels, lowest, highest, colours, plain)


def differences(
    reduced: Reduced, one: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return how much pictures differ, given P pairs of them by their numbers.

    Examples
    --------
    >>> from bitprint.data import draw_shapes
    >>> scenes = draw_shapes(2, size=32).pixels
    >>> darker = (scenes[0] * 0.8).astype(np.uint8)
    >>> reduced = reduce_pixels(np.stack([*scenes, darker]))
    >>> found = differences(reduced, np.array([0, 0]), np.array([2, 1]))
    >>> (found <= ALIKE).tolist()
    [True, False]
    """
    found = np.empty(len(one))
    for start in range(0, len(one), _PAIRS):
        part = slice(start, start + _PAIRS)
        there, back = (
            _outside(reduced, one[part], other[part]),
            _outside(reduced, other[part], one[part]),
        )
        found[part] = np.maximum(there, back) / _SPREAD
    plain = reduced.plain[one] & reduced.plain[other]
    apart = np.abs(reduced.colours[one[plain]] - reduced.colours[other[plain]]).mean(axis=1)
    found[plain] = np.maximum(found[plain], apart / _NOISE - 1)
    return found


def _outside(
    reduced: Reduced, one: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Levels by which the cells of one picture lie outside of the other, on average."""
    levels, lowest, highest = reduced.levels[one], reduced.lowest[other], reduced.highest[other]
    # Never both: one of the two is zero.
    above, below = np.maximum(levels, highest) - highest, lowest - np.minimum(levels, lowest)
    return np.asarray((above + below).mean(axis=1))
