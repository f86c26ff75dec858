"""GIST: the spatial envelope (Oliva & Torralba, 2001), 512 features per image."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from threadpoolctl import threadpool_limits

from bitprint.data.decoding import Progress
from bitprint.data.images import ImageSet
from bitprint.utils.parallel import on_every_core

Planes = NDArray[np.float32]

SCALES, ORIENTATIONS, CELLS = 4, 8, 4
FEATURES = SCALES * ORIENTATIONS * CELLS * CELLS

PREFILTER_PADDING = 5
PREFILTER_CYCLES = 4
"""Frequency at which the gain of the prefilter's low-pass is 0.5, in cycles per padded image."""

FILTER_PADDING = 32
TOP_FREQUENCY, SCALE_RATIO = 0.3, 1.85
"""Center frequency of the finest scale in cycles per pixel, and its ratio to the next scale's."""

_NEGLIGIBLE = 1e-7
"""Smaller gains are negligible in float32; the peak of a filter is 1."""
_BATCH_PIXELS = 2**17
"""Padded pixels per batch, so that spectra and filter responses fit into a core's cache."""
_ROUND = 32
"""Batches between two calls of `progress`."""


def gist(
    images: ImageSet | NDArray[np.uint8],
    *,
    size: int | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """Compute GIST descriptors as the authors' LMgist with 8 orientations at 4 scales.

    The gray image is whitened and its local contrast is normalized. Then the magnitude of each of
    32 Gabor-like filters is averaged over the cells of a 4 x 4 grid. The result is not normalized;
    it is zero for a constant image.

    Parameters
    ----------
    images : ImageSet or ndarray of uint8, shape (N, height, width, 3)
        RGB. Square, unless `size` is given.
    size : int, optional
        Resize the images (bilinear, to a square) to this height and width first. By default they
        keep their size. Descriptors of different sizes are not comparable.
    progress : callable, optional
        Called with the number of images done, and N.

    Returns
    -------
    ndarray of float32, shape (N, 512)
        Feature ``((scale * 8 + orientation) * 4 + column) * 4 + row``: scales from fine to
        coarse, orientation j at frequencies of angle -22.5 j degrees, cells column by column.

    References
    ----------
    Oliva & Torralba, Modeling the shape of the scene, IJCV 2001.

    Examples
    --------
    >>> stripes = np.zeros((1, 32, 32, 3), np.uint8)
    >>> stripes[:, :, ::4] = stripes[:, :, 1::4] = 255
    >>> features = gist(stripes)
    >>> features.shape
    (1, 512)
    >>> int(features.reshape(4, 8, 16)[0].mean(axis=1).argmax())
    0
    """
    if not isinstance(images, ImageSet):
        images = ImageSet(np.asarray(images))
    height, width = images.size
    side = height if size is None else size
    if size is None and height != width:
        raise ValueError(f"GIST needs square images, got {height} x {width}; set size")
    if side < CELLS:
        raise ValueError(f"GIST needs images of at least {CELLS} x {CELLS} pixels, got {side}")
    bank = FilterBank(side)
    features = np.empty((len(images), FEATURES), np.float32)
    # Images are divided among threads, so matrix products must not start more threads.
    with threadpool_limits(1, user_api="blas"):
        for start in range(0, len(images), _ROUND * bank.batch):
            stop = min(start + _ROUND * bank.batch, len(images))
            features[start:stop] = _describe(images.subset(np.arange(start, stop)), bank)
            if progress is not None:
                progress(stop, len(images))
    return features


def _describe(images: ImageSet, bank: FilterBank) -> Planes:
    def work(rows: slice) -> Planes:
        return bank.energies(prefilter(gray_squares(images.read(rows), bank.side)))

    return np.concatenate(on_every_core(work, len(images), bank.batch))


def gray_squares(pixels: NDArray[np.uint8], side: int) -> Planes:
    """(n, height, width, 3) -> gray (n, side, side), each image stretched to 0..255."""
    gray: NDArray = pixels.mean(axis=3, dtype=np.float32)
    height, width = gray.shape[1:]
    if (height, width) != (side, side):
        # Subtract the minimum first: the weights sum to 1 except for rounding, which would add
        # texture to a constant image.
        gray -= gray.min(axis=(1, 2), keepdims=True)
        gray = bilinear_weights(height, side) @ gray @ bilinear_weights(width, side).T
    gray -= gray.min(axis=(1, 2), keepdims=True)
    gray *= 255 / np.maximum(1, gray.max(axis=(1, 2), keepdims=True))
    return gray


def bilinear_weights(before: int, after: int) -> Planes:
    """Return the matrix (after, before) that resizes a line, with antialiasing when shrinking."""
    ratio = before / after
    centers = (np.arange(after) + 0.5) * ratio
    distances = np.abs(np.arange(before) + 0.5 - centers[:, None])
    weights = np.maximum(0, 1 - distances / max(1, ratio)).astype(np.float32)
    scaled: Planes = weights / weights.sum(axis=1, keepdims=True)
    return scaled


def prefilter(gray: Planes) -> Planes:
    """Take the logarithm, remove low frequencies and divide by the local contrast."""
    side = gray.shape[1]
    x = mirror(np.log1p(gray), PREFILTER_PADDING, PREFILTER_PADDING)
    x = mirror(x, 0, x.shape[1] % 2)
    count = x.shape[1]
    across, down = frequencies(count)
    gain = np.exp(-(across**2 + down**2) * np.log(2) / PREFILTER_CYCLES**2)
    low_pass = gain[:, : count // 2 + 1].astype(np.float32)
    x -= fft.irfft2(fft.rfft2(x) * low_pass, (count, count))
    power = fft.irfft2(fft.rfft2(x**2) * low_pass, (count, count))
    x /= 0.2 + np.sqrt(np.abs(power))
    inside = slice(PREFILTER_PADDING, PREFILTER_PADDING + side)
    return x[:, inside, inside]


class Filter(NamedTuple):
    """One filter, cropped to the rows and columns of the spectrum with nonzero gain."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    gain: Planes


class FilterBank:
    """The 32 filters for images of side x side pixels.

    The images are padded by 32 mirrored pixels, and the responses in the padding are dropped.
    Since only part of the response is needed and a filter passes few frequencies, two small matrix
    products are faster than an inverse FFT.
    """

    def __init__(self, side: int) -> None:
        count = side + 2 * FILTER_PADDING
        self.side = side
        self.batch = max(1, _BATCH_PIXELS // count**2)
        across, down = frequencies(count)
        self._filters = [
            _cut(filter_gain(across / count, down / count, scale, orientation))
            for scale in range(SCALES)
            for orientation in range(ORIENTATIONS)
        ]
        positions = np.arange(FILTER_PADDING, FILTER_PADDING + side)
        waves = np.exp(2j * np.pi * positions[:, None] * across / count)
        self._inverse = (waves / count).astype(np.complex64)
        self._averages = _cell_averages(side)

    def energies(self, images: Planes) -> Planes:
        """(n, side, side) -> (n, 512): mean magnitude of each filter in each cell."""
        spectra = fft.fft2(mirror(images, FILTER_PADDING, FILTER_PADDING))
        features = np.empty((len(images), len(self._filters), CELLS, CELLS), np.float32)
        for number, (rows, columns, gain) in enumerate(self._filters):
            passed = spectra[:, rows[:, None], columns] * gain
            lines = passed @ self._inverse[:, columns].T
            responses = self._inverse[:, rows] @ lines
            cells = self._averages @ np.abs(responses) @ self._averages.T
            features[:, number] = cells.transpose(0, 2, 1)
        return features.reshape(len(images), FEATURES)


def filter_gain(across: NDArray, down: NDArray, scale: int, orientation: int) -> NDArray:
    """Return the gain at frequencies in cycles per pixel: a Gaussian in radius and angle."""
    center = TOP_FREQUENCY / SCALE_RATIO**scale
    radius = np.hypot(across, down)
    angle = np.arctan2(down, across) + np.pi * orientation / ORIENTATIONS
    angle = np.where(angle > np.pi, angle - 2 * np.pi, angle)
    gain: NDArray = np.exp(-3.5 * (radius / center - 1) ** 2 - 2 * np.pi * angle**2)
    return gain


def mirror(images: Planes, before: int, after: int) -> Planes:
    """Pad (n, side, side) symmetrically; the outermost pixels are repeated."""
    return np.pad(images, ((0, 0), (before, after), (before, after)), "symmetric")


def frequencies(count: int) -> tuple[NDArray, NDArray]:
    """Return the frequencies of a spectrum in cycles per image, shapes (1, n) and (n, 1)."""
    cycles = np.fft.fftfreq(count, 1 / count)
    return cycles[None, :], cycles[:, None]


def _cut(gain: NDArray) -> Filter:
    passes = gain > _NEGLIGIBLE
    rows, columns = np.flatnonzero(passes.any(axis=1)), np.flatnonzero(passes.any(axis=0))
    return Filter(rows, columns, gain[np.ix_(rows, columns)].astype(np.float32))


def _cell_averages(side: int) -> Planes:
    """Return the matrix (4, side) whose rows average over the quarters of a line."""
    edges = [side * cell // CELLS for cell in range(CELLS + 1)]
    averages = np.zeros((CELLS, side), np.float32)
    for cell, (start, stop) in enumerate(pairwise(edges)):
        averages[cell, start:stop] = 1 / (stop - start)
    return averages
