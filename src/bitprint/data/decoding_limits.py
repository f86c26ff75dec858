"""Limits on the sides of an image and on the memory that decoding it takes."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from PIL import Image, TiffImagePlugin
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile


class DecodingLimits(NamedTuple):
    """Limits on one image, checked before it is decoded.

    Examples
    --------
    >>> try:
    ...     check_image(Image.new("RGB", (1, 30_000)), DecodingLimits(20_000, 2**30), 256)
    ... except TooLargeError as error:
    ...     print(error)
    too large: 1 x 30000 pixels, more than 20,000 on one side; resize it
    """

    side: int
    """Maximum width and height. Those of a JPEG file are what it is decoded to."""
    bytes: int
    """Maximum memory for decoding, estimated from the header."""


ON_DISK = DecodingLimits(side=65_535, bytes=3 * 2**30)
"""Limits on the user's own files: a JPEG file of 500 million pixels may take 6 bytes per pixel."""


class TooLargeError(ValueError):
    """An image exceeds the limits."""


_FIXED = 16 * 2**20
"""Bytes for everything that does not grow with the image."""
_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes per pixel of Pillow's modes; 4 for all others."""
_CONVERTED = 4
"""Bytes per pixel of the image after it was converted to RGB or rotated."""
_BUFFERS = {"WEBP": 10, "AVIF": 8, "HEIF": 8, "BMP": 2, "GIF": 1}
"""Bytes per pixel that the decoder of a format uses in addition, measured by `fuzz/bombs.py`."""
_ALPHA_BUFFERS = {"AVIF": 6, "HEIF": 6}
"""The same for an alpha channel."""
_PER_SIDE = 40
"""Bytes per row and column: a pointer to the row, and the four coefficients of bicubic resizing."""


def check_image(image: Image.Image, limits: DecodingLimits, size: int) -> int:
    """Check an open image that is not decoded yet; return the memory to reserve for it.

    Parameters
    ----------
    image, size
        As in `estimate_memory`.
    limits : DecodingLimits

    Returns
    -------
    int
        In bytes. All of `limits.bytes` for AVIF, whose data can have more pixels than the header
        states: up to 16,384 x 16,384.

    Raises
    ------
    TooLargeError
        If the image exceeds the limits.
    """
    width, height = image.size
    shown = f"{width} x {height} pixels"
    if max(width, height) > limits.side:
        raise TooLargeError(f"too large: {shown}, more than {limits.side:,} on one side; resize it")
    needed = estimate_memory(image, size)
    if needed > limits.bytes:
        raise TooLargeError(
            f"too large: decoding {shown} takes {needed / 2**20:,.0f} MiB, "
            f"more than {limits.bytes / 2**20:,.0f}; resize it"
        )
    return limits.bytes if image.format == "AVIF" else needed


def estimate_memory(image: Image.Image, size: int) -> int:
    """Estimate the memory for decoding an image, converting it to RGB and resizing it.

    Parameters
    ----------
    image : PIL.Image.Image
        An open file. If it is a JPEG file, after `draft`.
    size : int
        Largest side of the result.

    Returns
    -------
    int
        Upper bound in bytes, for files that decode to what their header states.

    Examples
    --------
    >>> estimate_memory(Image.new("RGBA", (4000, 3000)), 256) // 2**20
    111
    """
    width, height = image.size
    kind = image.format or ""
    per_pixel = _STORED.get(image.mode, 4) + _CONVERTED + _BUFFERS.get(kind, 0)
    if image.mode.endswith("A"):
        per_pixel += _ALPHA_BUFFERS.get(kind, 0)
    resizing = (width + height) * _PER_SIDE + max(width, height) * size * _CONVERTED
    return _FIXED + width * height * per_pixel + resizing + _coefficients(image) + _strip(image)


def _coefficients(image: Image.Image) -> int:
    """Return the bytes of the coefficients of a JPEG, which progressive files need as a whole."""
    if not isinstance(image, JpegImageFile) or not image.layer or not image.tile:
        return 0
    scale = image.decoderconfig[0] if image.decoderconfig else 1
    most = [max(1, *(layer[axis] for layer in image.layer)) for axis in (1, 2)]
    # A layer consists of whole blocks of 8 x 8, several in one unit of all layers.
    width, height = (side * scale + 8 * max(most) for side in image.size)
    samples = sum(layer[1] * layer[2] for layer in image.layer) / (most[0] * most[1])
    return round(2 * width * height * samples)


def _strip(image: Image.Image) -> int:
    """Return the bytes of a strip of all rows of a TIFF, or of a tile, which are decoded whole."""
    if not isinstance(image, TiffImageFile):
        return 0

    def tag(number: int, default: int) -> int:
        value = image.tag_v2.get(number, default)
        return int(max(value) if isinstance(value, tuple) else value)

    tile = tag(TiffImagePlugin.TILEWIDTH, 0) * tag(TiffImagePlugin.TILELENGTH, 0)
    bits = tag(TiffImagePlugin.BITSPERSAMPLE, 8) * tag(TiffImagePlugin.SAMPLESPERPIXEL, 1)
    return max(image.width * image.height, tile) * max(4, bits // 8)


_LARGE = 64 * 2**20
"""Bytes of a part whose memory is returned to the system."""


class MemoryBudget:
    """Memory that the threads of a process share; a thread waits until its part is free.

    Parameters
    ----------
    total : int
        In bytes. A part that is larger needs all of it.
    """

    def __init__(self, total: int) -> None:
        self._total = self._free = total
        self._changed = threading.Condition()

    @contextmanager
    def reserve(self, part: int) -> Iterator[None]:
        """Reserve a part of the memory for the duration of a block."""
        part = min(part, self._total)
        with self._changed:
            self._changed.wait_for(lambda: part <= self._free)
            self._free -= part
        try:
            yield
        finally:
            if part >= _LARGE:
                _return_memory()
            with self._changed:
                self._free += part
                self._changed.notify_all()


def _return_memory() -> None:
    """Return freed memory to the system; the C library of Linux keeps some for each thread."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # in glibc
            trim(0)
