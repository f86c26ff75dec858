"""Open files of indexed folders, cache thumbnails."""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from PIL import Image

from bitprint.web.collection import Pixels

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

_THUMBNAIL_SIDE = 320


def open_inside(path: str, roots: Sequence[Path]) -> IO[bytes]:
    """Open a regular file whose resolved path is in one of the folders.

    Raises
    ------
    FileNotFoundError
        If it is not, for any reason; the message does not reveal the reason.
    OSError
        If there are too many open files.
    """
    missing = FileNotFoundError("there is no such photo")
    try:
        real = Path(path).resolve(strict=True)
        if not any(real.is_relative_to(root) for root in roots):
            raise missing
        # Opening a pipe would block; a link that replaced the file could lead outside.
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise missing from None  # unreadable, a loop of links, a null character
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise missing
    return os.fdopen(descriptor, "rb")


def version_of(file: IO[bytes]) -> str:
    """Return an identifier of the current contents of an open file."""
    facts = os.fstat(file.fileno())
    return f"{facts.st_dev:x}-{facts.st_ino:x}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


class Thumbnails:
    """Create JPEG thumbnails of at most 320 x 320 pixels; cache the latest in memory.

    Parameters
    ----------
    decode : callable
        Returns the pixels of an open file with both sides at most a given number; raises
        ValueError if it is not an image.
    most_bytes : int
        Size of the cache; a thumbnail has about 15,000 bytes.
    """

    def __init__(
        self, decode: Callable[[IO[bytes], int], Pixels], most_bytes: int = 64 * 2**20
    ) -> None:
        self._decode = decode
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, version: str) -> bytes | None:
        """Return the thumbnail of a version of a file, or None if it is not cached."""
        with self._lock:
            if version in self._kept:
                self._kept.move_to_end(version)
            return self._kept.get(version)

    def get(self, file: IO[bytes]) -> bytes:
        """Return the thumbnail of an open file; raise ValueError if it is not an image."""
        version = version_of(file)
        found = self.find(version)
        if found is not None:
            return found
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
        output = io.BytesIO()
        small = Image.fromarray(self._decode(file, _THUMBNAIL_SIDE))
        small.save(output, "JPEG", quality=82, optimize=True)
        return output.getvalue()
