"""Attachments of an index file: named bytes that travel with the codes, such as their model."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from bitprint.search.file import Header, IndexFile, checksum

MOST_BYTES = 900_000_000  # SQLite itself stores at most a billion in one value

# Names are stored as bytes, for names of files need not be text.
_TABLE = """
CREATE TABLE IF NOT EXISTS attachments (
    name BLOB PRIMARY KEY, checksum INTEGER NOT NULL, content BLOB NOT NULL
)
"""


def write(db: sqlite3.Connection, contents: Mapping[str, bytes | None]) -> int:
    """Write attachments, or delete those that are None; return how many more there are now."""
    db.execute(_TABLE)
    more = 0
    for name, content in contents.items():
        key = _key(name)
        more -= db.execute("DELETE FROM attachments WHERE name = ?", (key,)).rowcount
        if content is None:
            continue
        if len(content) > MOST_BYTES:
            raise ValueError(
                f"the attachment {name} has {len(content)} bytes; an index takes {MOST_BYTES} each"
            )
        row = (key, checksum(key, content), content)
        db.execute("INSERT INTO attachments VALUES (?, ?, ?)", row)
        more += 1
    return more


def read(file: IndexFile, header: Header, prefix: str) -> dict[str, bytes]:
    """Read the attachments whose names begin with `prefix`, ordered by name."""
    if header.attached == 0:
        return {}
    if file.db.execute("SELECT count(*) FROM attachments").fetchone() != (header.attached,):
        raise file.damaged("the number of attachments")
    low = _key(prefix)
    rows = file.db.execute(
        "SELECT name, checksum, content FROM attachments NOT INDEXED "
        "WHERE name >= ? AND name < ? ORDER BY name",
        (low, low + b"\xff"),  # a byte that UTF-8 never has
    )
    found = {}
    for key, expected, content in rows:
        if expected != checksum(key, content) or not isinstance(content, bytes):
            raise file.damaged("an attachment")
        try:
            found[key.decode("utf-8", "surrogatepass")] = content
        except UnicodeDecodeError:
            raise file.damaged("the name of an attachment") from None
    return found


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
