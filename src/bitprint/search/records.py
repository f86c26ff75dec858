"""Storage of records: bytes of a fixed length for each code, such as its full vector."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bitprint.search.file import IndexFile

# One row per code: a search reads the records of single hits. Rows of many codes were written
# faster, but not read faster.
_TABLE = """
CREATE TABLE IF NOT EXISTS records (
    position INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, content BLOB NOT NULL
)
"""
_ROWS = 1000  # rows per statement
_MOVED = 65_536  # rows that `rewrite` reads at a time

Records = NDArray[np.uint8]
Positions = NDArray[np.int64]


def create(db: sqlite3.Connection) -> None:
    """Create the table."""
    db.execute(_TABLE)


def append(file: IndexFile, first: int, records: Records) -> None:
    """Write the records, shape (N, width), of the codes from position `first` on."""
    width = records.shape[1]
    content = memoryview(records.tobytes())
    file.db.executemany(
        "INSERT INTO records VALUES (?, ?, ?)",
        (
            (first + row, _checksum(first + row, part), part)
            for row in range(len(records))
            for part in (content[row * width : (row + 1) * width],)
        ),
    )


def read_at(file: IndexFile, positions: Positions, width: int) -> Records:
    """Read the records at positions, shape (n, width), in any order and with repetitions."""
    wanted, places = np.unique(positions, return_inverse=True)
    records = np.empty((len(wanted), width), np.uint8)
    row = 0
    for position, content in _read(file, wanted.tolist()):
        if row == len(wanted) or position != wanted[row] or len(content) != width:
            raise file.damaged("the place of a record")
        records[row] = np.frombuffer(content, np.uint8)
        row += 1
    if row != len(wanted):
        raise file.damaged("the number of records")
    return records[places]


def rewrite(file: IndexFile, alive: NDArray[np.uint8]) -> None:
    """Drop the records of removed codes, and move the others to the new positions of their codes.

    One pass is enough, because codes only move towards the front.
    """
    written = 0
    for start in range(0, len(alive), _MOVED):
        kept = start + np.flatnonzero(alive[start : start + _MOVED])
        moved = list(_read(file, kept.tolist()))
        if [position for position, _ in moved] != kept.tolist():
            raise file.damaged("the number of records")
        file.db.execute(
            "DELETE FROM records WHERE position >= ? AND position < ?", (start, start + _MOVED)
        )
        file.db.executemany(
            "INSERT INTO records VALUES (?, ?, ?)",
            (
                (row, _checksum(row, content), content)
                for row, (_, content) in enumerate(moved, written)
            ),
        )
        written += len(kept)


def _read(file: IndexFile, positions: list[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the records at ascending positions; those that are missing are left out."""
    for start in range(0, len(positions), _ROWS):
        listed = ",".join(map(str, positions[start : start + _ROWS]))
        rows = file.db.execute(
            "SELECT position, checksum, content FROM records "
            f"WHERE position IN ({listed}) ORDER BY position"
        )
        for position, expected, content in rows:
            if not isinstance(content, bytes) or expected != _checksum(position, content):
                raise file.damaged("a record")
            yield position, content


def _checksum(position: int, content: bytes | memoryview) -> int:
    return zlib.crc32(content, position & 0xFFFFFFFF)
