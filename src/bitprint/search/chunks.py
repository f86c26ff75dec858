"""Storage of codes, ids and removals: write-once chunks, and a bitmap of removals per chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.search import details
from bitprint.search.details import NOTHING, Item
from bitprint.search.file import IndexFile, IndexHeader, checksum
from bitprint.search.id_ranges import Ranges, decode, encode
from bitprint.search.ids import Ids

_CHUNK = 65_536

Packed = NDArray[np.uint8]
Flags = NDArray[np.uint8]


class Chunk(NamedTuple):
    """First position and size of a chunk, and whether it has paths or labels."""

    first: int
    size: int
    described: bool


def append(
    file: IndexFile, first: int, packed: Packed, ids: Ids, items: Sequence[Item] | None
) -> None:
    """Write codes as chunks, starting at position `first`."""
    for start in range(0, len(packed), _CHUNK):
        span = slice(start, start + _CHUNK)
        known = [] if items is None else [item for item in items[span] if item != NOTHING]
        place = (first + start, len(packed[span]), int(bool(known)))
        blobs = (packed[span].tobytes(), encode(ids[span]))
        file.db.execute(
            "INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?)",
            (*place, checksum(*place, *blobs), *blobs),
        )
        if items is not None and known:
            details.write(file, first + start, items[span])


def read(
    file: IndexFile, header: IndexHeader, start: int
) -> Iterator[tuple[Chunk, Packed, Ids | Ranges]]:
    """Yield the chunks from position `start` on, each with its packed codes and ids."""
    unused = 2 ** (-header.bits % 8) - 1  # bits of the last byte
    rows = file.db.execute(
        "SELECT first, count, described, checksum, codes, ids FROM chunks WHERE first >= ? "
        "ORDER BY first",
        (start,),
    )
    for first, count, described, expected, codes, ids in rows:
        if first != start or expected != checksum(first, count, described, codes, ids):
            raise file.damaged("a chunk of codes")
        try:
            packed = np.frombuffer(codes, np.uint8).reshape(count, -(-header.bits // 8))
            names = decode(ids, str(header.kind))
        except (TypeError, ValueError, AttributeError):  # invalid size or type
            raise file.damaged("the size of a chunk") from None
        if len(packed) != count or names.size != count:
            raise file.damaged("the number of ids")
        if unused and np.any(packed[:, -1] & unused):
            raise file.damaged("the end of a code")
        yield Chunk(first, count, bool(described)), packed, names
        start += count
    if start != header.total:
        raise file.damaged("the number of codes")


class Stored(NamedTuple):
    """Numbers of codes, and of irregular integer ids, whose memory can be reserved."""

    codes: int
    irregular: int


def count_stored(file: IndexFile, header: IndexHeader, start: int) -> Stored:
    """Count the codes and ids from position `start` on by their bytes, not by the header."""
    totals = (
        "SELECT coalesce(sum(length(codes)), 0), coalesce(sum(length(ids)), 0) "
        "FROM chunks WHERE first >= ?"
    )
    codes, ids = file.db.execute(totals, (start,)).fetchone()
    codes //= -(-header.bits // 8)
    # A chunk of ranges has at least 8 codes for 24 bytes.
    return Stored(codes, min(codes, ids // 8) if header.kind == "integer" else 0)


def write_removed(file: IndexFile, first: int, generation: int, removed: Flags) -> None:
    """Write the removal bitmap of a chunk, given one flag per code."""
    bitmap = np.packbits(removed).tobytes()
    file.db.execute(
        "INSERT OR REPLACE INTO removed VALUES (?, ?, ?, ?)",
        (first, generation, checksum(first, generation, bitmap), bitmap),
    )


def read_removed(
    file: IndexFile, since: int, chunks: Sequence[Chunk]
) -> Iterator[tuple[int, Flags]]:
    """Yield the removal flags changed after generation `since`, per chunk, padded with zeros."""
    sizes = {chunk.first: -(-chunk.size // 8) for chunk in chunks}
    rows = file.db.execute(
        "SELECT first, generation, checksum, bitmap FROM removed WHERE generation > ?", (since,)
    )
    for first, generation, expected, bitmap in rows:
        if expected != checksum(first, generation, bitmap) or not isinstance(bitmap, bytes):
            raise file.damaged("a list of removed codes")
        if sizes.get(first) != len(bitmap):
            raise file.damaged("the size of a list of removed codes")
        yield first, np.unpackbits(np.frombuffer(bitmap, np.uint8))


def rewrite(
    file: IndexFile, header: IndexHeader, chunks: Sequence[Chunk], alive: Flags | None
) -> None:
    """Rewrite the live codes in order as full chunks, and drop the removed codes.

    One pass is enough: codes only move towards the front, and each chunk is deleted before its
    positions are written again.
    """
    file.db.execute("DELETE FROM removed")
    written = 0
    parts: list[_Part] = []
    for number, chunk in enumerate(chunks, start=1):
        parts.append(_take(file, header, chunk, alive))
        waiting = sum(len(part.ids) for part in parts)
        if waiting < _CHUNK and number < len(chunks):
            continue
        full = waiting if number == len(chunks) else waiting - waiting % _CHUNK
        packed = np.concatenate([part.packed for part in parts])
        ids = np.concatenate([part.ids for part in parts])
        items = [item for part in parts for item in part.items]
        append(file, written, packed[:full], ids[:full], items[:full])
        parts = [_Part(packed[full:], ids[full:], items[full:])]
        written += full


class _Part(NamedTuple):
    packed: Packed
    ids: Ids
    items: list[Item]


def _take(file: IndexFile, header: IndexHeader, chunk: Chunk, alive: Flags | None) -> _Part:
    """Delete a chunk and return its live codes."""
    first, size, described = chunk
    _, packed, ids = next(read(file, header, first))
    items = details.read(file, first, size) if described else [NOTHING] * size
    file.db.execute("DELETE FROM chunks WHERE first = ?", (first,))
    file.db.execute("DELETE FROM details WHERE first >= ? AND first < ?", (first, first + size))
    if isinstance(ids, Ranges):
        ids = ids.ids(header.kind)
    kept = np.arange(size) if alive is None else np.flatnonzero(alive[first : first + size])
    return _Part(packed[kept], ids[kept], [items[row] for row in kept])
