"""PNG: the sums of its chunks, computed anew."""

from __future__ import annotations

import zlib

_START = b"\x89PNG\r\n\x1a\n"


def mend_png(data: bytes) -> bytes:
    """Put a CRC-32 that fits into every chunk; anything but a PNG stays as it is."""
    if not data.startswith(_START):
        return data
    mended = bytearray(data)
    place = len(_START)
    while (end := place + 8 + int.from_bytes(data[place : place + 4], "big")) + 4 <= len(data):
        mended[end : end + 4] = zlib.crc32(data[place + 4 : end]).to_bytes(4, "big")
        place = end + 4
    return bytes(mended)
