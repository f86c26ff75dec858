"""Process that decodes files which may be hostile, with limits on its memory and time.

`bitprint.web.decoding` starts it and sends requests over a socket. Requests and replies are fixed
headers and bytes, never Python objects, so that a process that a file has taken over can send only
wrong pixels.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from bitprint.data.untrusted import (
    decode_stored,
    decode_upload,
    find_format,
    stored_limits,
    upload_limits,
)

UPLOAD, THUMBNAIL, FORMAT = b"u", b"t", b"f"
"""Kinds of request: decode bytes to a square, decode a file to a thumbnail, name its format."""
REQUEST = struct.Struct("<cIQ")
"""Kind, size, and number of bytes that follow. A file comes as a descriptor instead of bytes."""
READY, REFUSED = b"r", b"e"
"""Kinds of reply besides the kind of the request: ready for requests, and an error message."""
REPLY = struct.Struct("<cIII")
"""Kind, height, width, and number of bytes that follow."""

_OTHER_MEMORY = 256 * 2**20  # contents of the file, metadata


class Request(NamedTuple):
    """One request."""

    kind: bytes
    size: int
    file: bytes | IO[bytes]


def main() -> None:
    """Answer requests until the other end of the socket is closed.

    Arguments are the descriptor of the socket, the maximum number of pixels, and the maximum number
    of seconds per request.
    """
    descriptor, most_pixels, seconds = map(int, sys.argv[1:])
    _isolate()
    used = _used_memory()
    with socket.socket(fileno=descriptor) as connection:
        connection.sendall(REPLY.pack(READY, 0, 0, 0))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # decoders print warnings
        while (request := _receive(connection)) is not None:
            limits = (upload_limits if request.kind == UPLOAD else stored_limits)(most_pixels)
            if used:  # only on Linux
                _limit_memory(used + limits.bytes + _OTHER_MEMORY)
            signal.alarm(seconds)  # in case the parent was killed
            kind, height, width, content = _answer(request, most_pixels)
            signal.alarm(0)
            connection.sendall(REPLY.pack(kind, height, width, len(content)) + content)


def _isolate() -> None:
    """Leave signals to the parent, use one thread, and be the first to end if memory is short."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    with suppress(ImportError):  # added in Pillow 11.3
        from PIL import AvifImagePlugin

        AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    with suppress(OSError):  # only on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")


def _used_memory() -> int:
    """Return the size of the address space of this process in bytes; 0 if it is not available."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[0]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _limit_memory(most: int) -> None:
    """Limit the address space of this process."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))


def _receive(connection: socket.socket) -> Request | None:
    """Return the next request, or None at the end."""
    header, descriptors, _, _ = socket.recv_fds(connection, REQUEST.size, 1)
    if len(header) < REQUEST.size:
        return None
    kind, size, count = REQUEST.unpack(header)
    if descriptors:
        return Request(kind, size, os.fdopen(descriptors[0], "rb"))
    return Request(kind, size, receive_exactly(connection, count))


def receive_exactly(connection: socket.socket, count: int, deadline: float | None = None) -> bytes:
    """Return the next bytes; raise EOFError if the socket is closed before.

    With a deadline, in seconds of `time.monotonic`, raise TimeoutError after it.

    Examples
    --------
    >>> one, other = socket.socketpair()
    >>> one.sendall(b"abcd")
    >>> receive_exactly(other, 3)
    b'abc'
    """
    content = bytearray(count)
    rest = memoryview(content)
    while rest:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        received = connection.recv_into(rest)
        if not received:
            raise EOFError("the socket was closed")
        rest = rest[received:]
    return bytes(content)


def _answer(request: Request, most_pixels: int) -> tuple[bytes, int, int, bytes]:
    """Return the kind, height, width and content of the reply; other errors end the process."""
    try:
        if isinstance(request.file, bytes):
            pixels = decode_upload(request.file, request.size, most_pixels)
        else:
            with request.file as file:
                if request.kind == FORMAT:
                    return FORMAT, 0, 0, find_format(file, most_pixels).encode()
                pixels = decode_stored(file, request.size, most_pixels)
    except ValueError as error:
        return REFUSED, 0, 0, str(error).encode("utf-8", "replace")
    return request.kind, pixels.shape[0], pixels.shape[1], pixels.tobytes()


if __name__ == "__main__":
    main()
