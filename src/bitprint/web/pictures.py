"""Pictures of strangers, decoded with care; files of the indexed folders; thumbnails, cached."""

from __future__ import annotations

import io
import os
import re
import stat
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bitprint.data.decoding import decode_image, decode_thumbnail
from bitprint.data.formats import FORMATS, PLAIN

CONTENT_TYPES = {
    "JPEG": "image/jpeg",
    "MPO": "image/jpeg",
    "PNG": "image/png",
    "WEBP": "image/webp",
    "GIF": "image/gif",
    "BMP": "image/bmp",
    "TIFF": "image/tiff",
    "AVIF": "image/avif",
    "HEIF": "image/heic",
}

_FORMAT_NAMES = ", ".join(PLAIN[:-1]) + f" or {PLAIN[-1]}"
_THUMBNAIL_SIDE = 320
# A progressive JPEG has some ten scans. A file can hold a hundred thousand, each of which costs
# the decoder a pass over all pixels.
_MOST_SCANS = 100
# Twenty megabytes of notes, as full as they may be, are some three hundred segments.
_MOST_SEGMENTS = 10_000
_START_OF_JPEG, _START_OF_SCAN, _END_OF_JPEG = b"\xff\xd8", b"\xff\xda", b"\xff\xd9"
# What begins a segment or ends the picture. The decoder passes over all else: stuffed zeros,
# restarts, and what is no marker.
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")


def decode_upload(data: bytes, size: int, most_pixels: int) -> NDArray[np.uint8]:
    """Decode a picture that anybody may have sent.

    Nothing is decoded before the size that the file announces is known to be acceptable.

    Parameters
    ----------
    data : bytes
        The file.
    size : int
        Height and width of the result.
    most_pixels : int
        The largest acceptable width times height of the picture.

    Returns
    -------
    ndarray of uint8, shape (size, size, 3)
        As `bitprint.data.decoding.decode_image` gives it.

    Raises
    ------
    ValueError
        If it is no picture, is damaged, or is too large.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 128).save(file, "PNG")
    >>> decode_upload(file.getvalue(), 8, most_pixels=2000).shape
    (8, 8, 3)
    """
    if data.startswith(_START_OF_JPEG):
        _check_scans(data)
    check_picture(io.BytesIO(data), most_pixels, PLAIN)
    try:
        return decode_image(io.BytesIO(data), size)
    except ValueError as error:
        raise ValueError("the picture is damaged and cannot be decoded") from error


def _check_scans(data: bytes) -> None:
    """Refuse a JPEG of too many scans; what follows its end, such as a film, is not looked at."""
    scans, place = 0, len(_START_OF_JPEG)
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, place)
        if found is None or found[0] == _END_OF_JPEG:
            return
        scans += found[0] == _START_OF_SCAN
        if scans > _MOST_SCANS:
            break
        # The length counts its own two bytes; the data of a scan follow its segment.
        start = found.end()
        place = start + max(2, int.from_bytes(data[start : start + 2]))
    raise ValueError(
        f"a JPEG of more than {_MOST_SCANS} scans, or of {_MOST_SEGMENTS:,} segments, is not "
        "decoded here"
    )


def check_picture(file: IO[bytes], most_pixels: int, formats: tuple[str, ...] = FORMATS) -> str:
    """Return the content type of a picture, found in its first bytes, whatever its name says.

    Raises
    ------
    ValueError
        If it is none of the formats, or larger than `most_pixels`.
    """
    try:
        with Image.open(file, formats=formats) as image:
            width, height = image.size
            kind = CONTENT_TYPES[str(image.format)]
    except Exception as error:  # A damaged file makes Pillow raise errors of almost any kind.
        raise ValueError(
            f"this is no picture that can be read here, or a damaged one; send {_FORMAT_NAMES}"
        ) from error
    if width * height > most_pixels:
        raise ValueError(
            f"the picture has {width} x {height} pixels, more than {most_pixels / 1e6:g} million; "
            "send a smaller one"
        )
    return kind


def open_inside(path: str, roots: Sequence[Path]) -> IO[bytes]:
    """Open a file if, links resolved, it is a plain file inside one of the folders.

    Raises
    ------
    FileNotFoundError
        If it is not; the message does not tell which.
    """
    missing = FileNotFoundError("there is no such picture")
    try:
        real = Path(path).resolve(strict=True)
        if not any(real.is_relative_to(root) for root in roots):
            raise missing
        # A pipe would block, and a link put in the file's place would lead outside.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, RuntimeError, ValueError):  # unreadable, a loop of links, a null character
        raise missing from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise missing
    return os.fdopen(descriptor, "rb")


def version_of(file: IO[bytes]) -> str:
    """Return a name for the present content of an open file."""
    facts = os.fstat(file.fileno())
    return f"{facts.st_dev:x}-{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


class Thumbnails:
    """JPEGs of at most 320 pixels to a side; the latest are kept in memory.

    Parameters
    ----------
    most_pixels : int
        The largest picture that is decoded.
    most_bytes : int
        How many bytes of thumbnails are kept; some 15,000 bytes are one picture.
    """

    def __init__(self, most_pixels: int, most_bytes: int = 64 * 2**20) -> None:
        self._most_pixels = most_pixels
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, file: IO[bytes]) -> bytes:
        """Return the thumbnail of an open file; raises ValueError if it is no picture."""
        version = version_of(file)
        with self._lock:
            if version in self._kept:
                self._kept.move_to_end(version)
                return self._kept[version]
        thumbnail = self._make(file)
        with self._lock:
            if version not in self._kept:
                self._kept[version] = thumbnail
                self._bytes += len(thumbnail)
            while self._bytes > self._most_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)
        return thumbnail

    def _make(self, file: IO[bytes]) -> bytes:
        check_picture(file, self._most_pixels)
        file.seek(0)
        small = Image.fromarray(decode_thumbnail(file, _THUMBNAIL_SIDE))
        output = io.BytesIO()
        small.save(output, "JPEG", quality=82, optimize=True)
        return output.getvalue()
