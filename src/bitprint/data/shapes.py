"""Shapes: synthetic scenes of one to three objects, a multi-label set without download."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bitprint.data.images import ImageSet

Floats = NDArray[np.float64]

_MOST_OBJECTS = 3
_CELLS = 4  # an image has 2 x 2 cells, with at most one object per cell
_CHUNK = 256


def draw_shapes(count: int, *, size: int = 32, seed: int = 0) -> ImageSet:
    """Draw scenes of one to three objects of different shapes; the shapes are the labels.

    Colors, textures, positions, rotations and noise are random and independent of the labels.
    Image i depends only on `seed` and i, so a larger set starts with the images of a smaller one.

    Parameters
    ----------
    count : int
        N, the number of images.
    size : int
        Height and width in pixels, at least 16.
    seed : int
        A nonnegative integer.

    Returns
    -------
    ImageSet
        Labels of shape (N, 8), one column for each shape.

    Examples
    --------
    >>> scenes = draw_shapes(100)
    >>> scenes.pixels.shape, scenes.labels.shape
    ((100, 32, 32, 3), (100, 8))
    >>> bool((draw_shapes(10).pixels == scenes.pixels[:10]).all())
    True
    """
    if count < 0 or size < 16 or seed < 0:
        raise ValueError(
            "draw_shapes needs count >= 0, size >= 16 and seed >= 0, "
            f"got count={count}, size={size}, seed={seed}"
        )
    pixels = np.empty((count, size, size, 3), np.uint8)
    labels = np.zeros((count, len(SHAPES)), np.uint8)
    for start in range(0, count, _CHUNK):
        rows = slice(start, min(start + _CHUNK, count))
        pixels[rows], labels[rows] = _draw_scenes(range(rows.start, rows.stop), size, seed)
    return ImageSet(
        pixels,
        labels=labels,
        label_names=list(SHAPES),
        name="shapes",
        protocol="general",
        backbone="small",
    )


def _circle(x: Floats, y: Floats) -> Floats:
    return 0.95 - np.hypot(x, y)


def _square(x: Floats, y: Floats) -> Floats:
    return 0.69 - np.maximum(np.abs(x), np.abs(y))


def _triangle(x: Floats, y: Floats) -> Floats:
    return 0.49 - np.maximum(-y, math.sqrt(0.75) * np.abs(x) + 0.5 * y)


def _star(x: Floats, y: Floats) -> Floats:
    # Fold the plane onto one of ten mirrored wedges, where the outline is a line.
    wedge = math.pi / 5
    angle = np.abs(np.mod(np.arctan2(y, x) + wedge, 2 * wedge) - wedge)
    radius = np.hypot(x, y)
    rise, run = 0.42 * math.sin(wedge), 1 - 0.42 * math.cos(wedge)
    outside = rise * (radius * np.cos(angle) - 1) + run * radius * np.sin(angle)
    return -outside / math.hypot(rise, run)


def _cross(x: Floats, y: Floats) -> Floats:
    long, short = np.maximum(np.abs(x), np.abs(y)), np.minimum(np.abs(x), np.abs(y))
    return np.minimum(0.95 - long, 0.26 - short)


def _ring(x: Floats, y: Floats) -> Floats:
    return 0.2 - np.abs(np.hypot(x, y) - 0.75)


def _bars(x: Floats, y: Floats) -> Floats:
    period = 0.54
    stripes = period / 4 - np.abs(np.mod(x + period / 2, period) - period / 2)
    return np.minimum(_square(x, y), stripes)


def _checkerboard(x: Floats, y: Floats) -> Floats:
    field = 0.345
    squares = np.sin(np.pi / field * x) * np.sin(np.pi / field * y)
    return np.minimum(_square(x, y), squares * field / np.pi)


# Each function returns the signed distance to the outline of its shape (positive inside,
# approximate away from the outline). The shapes lie within the unit circle.
SHAPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
    "bars": _bars,
    "checkerboard": _checkerboard,
}


def _draw_scenes(numbers: range, size: int, seed: int) -> tuple[NDArray[np.uint8], NDArray]:
    """Draw the scenes with these numbers: pixels (n, size, size, 3) and labels (n, 8)."""
    generators = [np.random.default_rng([seed, number]) for number in numbers]
    scene = np.array([rng.random(20) for rng in generators])
    objects = np.array([rng.random((_MOST_OBJECTS, 20)) for rng in generators])
    # The first three of a random permutation, so that no shape and no cell occurs twice.
    shapes = np.array([rng.permutation(len(SHAPES))[:_MOST_OBJECTS] for rng in generators])
    cells = np.array([rng.permutation(_CELLS)[:_MOST_OBJECTS] for rng in generators])
    noise = np.array([rng.random((size, size, 3)) for rng in generators])

    how_many = 1 + np.floor(scene[:, 0] * _MOST_OBJECTS).astype(int)
    background = 256 * scene[:, 1:4]
    canvas = _textured(background, scene[:, 4:8], size)
    labels = np.zeros((len(numbers), len(SHAPES)), np.uint8)
    for slot in range(_MOST_OBJECTS):
        for shape, outline in enumerate(SHAPES.values()):
            rows = np.flatnonzero((slot < how_many) & (shapes[:, slot] == shape))
            if len(rows):
                chance = objects[rows, slot]
                # At least 80 from the background in every channel, so that objects are visible.
                color = (background[rows] + 80 + 96 * chance[:, 4:7]) % 256
                paint = _textured(color, chance[:, 7:11], size)
                cover = _cover(outline, cells[rows, slot], chance[:, :4], size)[..., None]
                canvas[rows] += cover * (paint - canvas[rows])
                labels[rows, shape] = 1
    strength = 10 + 40 * scene[:, 8, None, None, None]
    canvas += strength * (noise - 0.5)
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8), labels


def _textured(color: Floats, chance: Floats, size: int) -> Floats:
    """Return colors (n, 3) with an added wave, shape (n, size, size, 3)."""
    y, x = np.mgrid[:size, :size] / size
    angle, waves, phase, height = (chance[:, k, None, None] for k in range(4))
    along = np.cos(2 * np.pi * angle) * x + np.sin(2 * np.pi * angle) * y
    wave = 20 * height * np.sin(2 * np.pi * ((1 + 5 * waves) * along + phase))
    textured: Floats = color[:, None, None, :] + wave[..., None]
    return textured


def _cover(
    outline: Callable[[Floats, Floats], Floats], cells: NDArray, chance: Floats, size: int
) -> Floats:
    """Return the share of each pixel that a shape covers, shape (n, size, size)."""
    cell = size / 2
    cells = cells[:, None, None]
    scale, right, down, turn = (chance[:, k, None, None] for k in range(4))
    radius = (0.42 + 0.08 * scale) * cell
    free = cell - 2 * radius
    y, x = np.mgrid[:size, :size] + 0.5
    x = (x - (cells % 2) * cell - radius - free * right) / radius
    y = (y - (cells // 2) * cell - radius - free * down) / radius
    cosine, sine = np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)
    distance = outline(cosine * x + sine * y, cosine * y - sine * x)
    return np.clip(0.5 + radius * distance, 0, 1)
