"""Decode image files from clients of the server, which may be hostile."""

from __future__ import annotations

import io
import re
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bitprint.data.decoding import decode_image, decode_thumbnail
from bitprint.data.decoding_limits import ON_DISK, DecodingLimits, TooLargeError
from bitprint.data.formats import FORMATS, PLAIN

_FORMAT_NAMES = ", ".join(PLAIN[:-1]) + f" or {PLAIN[-1]}"
_LONGEST_SIDE = 20_000
_SMALL_IMAGE = 32 * 2**20  # memory for an image of a few pixels
# A progressive JPEG has about ten scans, but a file may contain 100,000. The decoder needs one pass
# over all pixels for each of them.
_MOST_SCANS = 100
# 20 MB of metadata in segments of maximum length are about 300 segments.
_MOST_SEGMENTS = 10_000
_START_OF_JPEG, _START_OF_SCAN, _END_OF_JPEG = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
# Markers that start a segment or end the image. The decoder skips everything else: stuffed zeros,
# restart markers and invalid markers.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")


def upload_limits(most_pixels: int) -> DecodingLimits:
    """Return the limits on an uploaded image: 8 bytes per pixel of the largest one.

    Examples
    --------
    >>> limits = upload_limits(64_000_000)
    >>> limits.side, limits.bytes // 2**20
    (20000, 520)
    """
    return DecodingLimits(_LONGEST_SIDE, 8 * most_pixels + _SMALL_IMAGE)


def stored_limits(most_pixels: int) -> DecodingLimits:
    """Return the limits on an image of the collection: 16 bytes per pixel of the largest one.

    Examples
    --------
    >>> limits = stored_limits(64_000_000)
    >>> limits.side, limits.bytes // 2**20
    (65535, 1008)
    """
    return DecodingLimits(ON_DISK.side, 16 * most_pixels + _SMALL_IMAGE)


def decode_upload(data: bytes, size: int, most_pixels: int) -> NDArray[np.uint8]:
    """Decode an uploaded image file.

    The size in the file header is checked before any pixels are decoded.

    Parameters
    ----------
    data : bytes
        The contents of the file.
    size : int
        Height and width of the result.
    most_pixels : int
        Maximum width x height of the image.

    Returns
    -------
    ndarray of uint8, shape (size, size, 3)
        The same pixels as from `bitprint.data.decoding.decode_image`.

    Raises
    ------
    ValueError
        If the file is not an image, is damaged, or is too large.
    MemoryError
        If the file takes more memory than its header states.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 128).save(file, "PNG")
    >>> decode_upload(file.getvalue(), 8, most_pixels=2000).shape
    (8, 8, 3)
    """
    if data.startswith(_START_OF_JPEG):
        _check_scans(data)
    find_format(io.BytesIO(data), most_pixels, PLAIN)
    try:
        return decode_image(io.BytesIO(data), size, upload_limits(most_pixels))
    except ValueError as error:
        raise _explained(error) from error


def decode_stored(file: IO[bytes], side: int, most_pixels: int) -> NDArray[np.uint8]:
    """Decode an image file of the collection to a thumbnail.

    Parameters
    ----------
    file : binary file
    side : int
        Maximum height and width of the result.
    most_pixels : int
        Maximum width x height of the image.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        As from `bitprint.data.decoding.decode_thumbnail`.

    Raises
    ------
    ValueError, MemoryError
        As `decode_upload`.
    """
    find_format(file, most_pixels)
    file.seek(0)
    try:
        return decode_thumbnail(file, side, stored_limits(most_pixels))
    except ValueError as error:
        raise _explained(error) from error


def _explained(error: ValueError) -> Exception:
    """Return the error to raise for an error of `decode_image`."""
    cause = error.__cause__
    if isinstance(cause, MemoryError):
        return cause
    if isinstance(cause, TooLargeError):
        return ValueError(f"the photo is {cause}")
    return ValueError("the photo is damaged and cannot be decoded")


def _check_scans(data: bytes) -> None:
    """Raise a ValueError if a JPEG has too many scans; ignore data after its end."""
    scans, place = 0, len(_START_OF_JPEG)
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, place)
        if found is None or found[0] == _END_OF_JPEG:
            return
        scans += found[0] == _START_OF_SCAN
        if scans > _MOST_SCANS:
            break
        # The length includes its own two bytes. Scan data follows the segment.
        start = found.end()
        place = start + max(2, int.from_bytes(data[start : start + 2]))
    raise ValueError(
        f"JPEG photos with more than {_MOST_SCANS} scans or {_MOST_SEGMENTS:,} segments are not "
        "supported"
    )


def find_format(file: IO[bytes], most_pixels: int, formats: tuple[str, ...] = FORMATS) -> str:
    """Return the format of an image file, determined from its contents.

    Raises
    ------
    ValueError
        If it has none of the formats, or more than `most_pixels` pixels.
    """
    try:
        with Image.open(file, formats=formats) as image:
            width, height = image.size
            found = str(image.format)
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises many types for damaged files
        raise ValueError(
            f"the file is damaged or not in a supported photo format; send {_FORMAT_NAMES}"
        ) from error
    if width * height > most_pixels:
        raise ValueError(
            f"the photo has {width} x {height} pixels, more than {most_pixels / 1e6:g} million; "
            "send a smaller one"
        )
    return found
