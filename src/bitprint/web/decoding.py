"""Decode images in a few processes, which are replaced when they crash, hang or use much memory."""

from __future__ import annotations

import logging
import os
import queue
import socket
import subprocess
import sys
import time
from typing import IO

import numpy as np

from bitprint.data.decoding_process import (
    FORMAT,
    READY,
    REFUSED,
    REPLY,
    REQUEST,
    THUMBNAIL,
    UPLOAD,
    receive_exactly,
)
from bitprint.web.collection import Pixels

_log = logging.getLogger("bitprint.web")

_SECONDS = 10
_SECONDS_TO_START = 60.0
_LONGEST_TEXT = 1000
_COMMAND = [sys.executable, "-P", "-m", "bitprint.data.decoding_process"]
_NOT_DECODED = (
    "the photo takes too much memory or time to decode; send a smaller one, or save it as JPEG"
)


class Decoders:
    """Decode image files that may be hostile in a few processes.

    The methods block, and can be called by as many threads as there are processes. A process
    starts when it is first needed. A process that does not reply in time, or ends, is replaced.

    Parameters
    ----------
    processes : int
    most_pixels : int
        Maximum width x height of an image. It determines the memory of a process, see
        `bitprint.data.untrusted`.
    seconds : int
        Maximum time for one image.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("L", (40, 30), 128).save(file, "PNG")
    >>> decoders = Decoders(1, most_pixels=2000)
    >>> decoders.upload(file.getvalue(), 8).shape
    (8, 8, 3)
    >>> decoders.close()
    """

    def __init__(self, processes: int, most_pixels: int, seconds: int = _SECONDS) -> None:
        self._all = [_Process(most_pixels, seconds) for _ in range(processes)]
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue()
        for process in self._all:
            self._idle.put(process)

    def upload(self, data: bytes, size: int) -> Pixels:
        """Return the pixels (size, size, 3) of an uploaded file; raise ValueError if refused."""
        return self._pixels(UPLOAD, data, size)

    def thumbnail(self, file: IO[bytes], side: int) -> Pixels:
        """Return the pixels of a stored file, at most side x side; raise ValueError if refused."""
        return self._pixels(THUMBNAIL, file, side)

    def find_format(self, file: IO[bytes]) -> str:
        """Return Pillow's name of the format of a stored file; raise ValueError if refused."""
        return self._ask(FORMAT, file, 0)[2].decode("ascii", "replace")

    def warm_up(self) -> None:
        """Start one process."""
        process = self._idle.get()
        try:
            process.start()
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.close()

    def _pixels(self, kind: bytes, file: bytes | IO[bytes], size: int) -> Pixels:
        height, width, content = self._ask(kind, file, size)
        return np.frombuffer(content, np.uint8).reshape(height, width, 3)

    def _ask(self, kind: bytes, file: bytes | IO[bytes], size: int) -> tuple[int, int, bytes]:
        process = self._idle.get()
        try:
            return process.ask(kind, file, size)
        finally:
            self._idle.put(process)


class _Process:
    """One process, used by one thread at a time."""

    def __init__(self, most_pixels: int, seconds: int) -> None:
        self._arguments = [str(most_pixels), str(seconds + 1)]
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process unless it is running."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._connection, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [*_COMMAND, str(other.fileno()), *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                env=_environment(),
            )
        try:
            _receive(self._connection, READY, 0, time.monotonic() + _SECONDS_TO_START)
        except (OSError, EOFError) as error:
            self.close()
            raise RuntimeError("the process that decodes photos did not start") from error

    def ask(self, kind: bytes, file: bytes | IO[bytes], size: int) -> tuple[int, int, bytes]:
        """Send a request; return the height, width and content of the reply."""
        self.start()
        deadline = time.monotonic() + self._seconds
        try:
            self._send(kind, file, size)
            reply, height, width, content = _receive(self._connection, kind, size, deadline)
        except (OSError, EOFError) as error:
            _log.warning("replaced a process that could not decode a photo: %r", error)
            self.close()
            raise ValueError(_NOT_DECODED) from error
        if reply == REFUSED:
            raise ValueError(content.decode("utf-8", "replace"))
        return height, width, content

    def _send(self, kind: bytes, file: bytes | IO[bytes], size: int) -> None:
        self._connection.settimeout(self._seconds)
        if isinstance(file, bytes):
            self._connection.sendall(REQUEST.pack(kind, size, len(file)))
            self._connection.sendall(file)
        else:
            request = REQUEST.pack(kind, size, 0)
            socket.send_fds(self._connection, [request], [file.fileno()])

    def close(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def _environment() -> dict[str, str]:
    """Return the environment of a process that imports the same packages in one thread."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OPENBLAS_NUM_THREADS": "1",  # each thread reserves memory
        "MALLOC_ARENA_MAX": "1",
    }


def _receive(
    connection: socket.socket, expected: bytes, size: int, deadline: float
) -> tuple[bytes, int, int, bytes]:
    """Return the kind, height, width and content of a reply, which is not trusted."""
    header = receive_exactly(connection, REPLY.size, deadline)
    kind, height, width, count = REPLY.unpack(header)
    if kind in (UPLOAD, THUMBNAIL):
        smallest = size if kind == UPLOAD else 1
        valid = all(smallest <= side <= size for side in (height, width))
        valid = valid and count == 3 * height * width
    else:
        valid = count <= _LONGEST_TEXT
    if not valid or kind not in (expected, REFUSED):
        raise EOFError("the reply is invalid")
    return kind, height, width, receive_exactly(connection, count, deadline)
