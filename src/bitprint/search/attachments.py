"""Attachments of an index file: named bytes stored with the codes, for example the model."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from bitprint.search.file import IndexFile, IndexHeader, checksum

MOST_BYTES = 900_000_000  # SQLite's own limit is 10**9 bytes per value

# Names are stored as bytes because file names are not always valid text.
_TABLE = """
CREATE TABLE IF NOT EXISTS attachments (
    name BLOB PRIMARY KEY, checksum INTEGER NOT NULL, content BLOB NOT NULL
)
"""

_BY_NAME = "INDEXED BY sqlite_autoindex_attachments_1"  # SQLite's own index of the primary key


def write(db: sqlite3.Connection, contents: Mapping[str, bytes | None]) -> int:
    """Write attachments and delete those that are None; return the change in their number."""
    db.execute(_TABLE)
    more = 0
    for name, content in contents.items():
        key = _key(name)
        more -= db.execute("DELETE FROM attachments WHERE name = ?", (key,)).rowcount
        if content is None:
            continue
        if len(content) > MOST_BYTES:
            raise ValueError(
                f"the attachment {name} has {len(content)} bytes; the limit is {MOST_BYTES} bytes"
            )
        row = (key, checksum(key, content), content)
        db.execute("INSERT INTO attachments VALUES (?, ?, ?)", row)
        more += 1
    return more


def read(file: IndexFile, header: IndexHeader, prefix: str) -> dict[str, bytes]:
    """Return the attachments whose names start with `prefix`, ordered by name."""
    if header.attached == 0:
        return {}
    low = _key(prefix)
    bounds = (low, low + b"\xff")  # 0xff never occurs in UTF-8
    # SQLite stores the names twice, in the table and in its index. Damage can hide rows of one of
    # them, so both must have the same names.
    total = file.db.execute(f"SELECT count(*) FROM attachments {_BY_NAME}").fetchone()
    names = file.db.execute(
        f"SELECT name FROM attachments {_BY_NAME} WHERE name >= ? AND name < ? ORDER BY name",
        bounds,
    ).fetchall()
    rows = file.db.execute(
        "SELECT name, checksum, content FROM attachments NOT INDEXED WHERE name >= ? AND name < ?",
        bounds,
    )
    found = {}
    for key, stored, content in rows:
        if stored != checksum(key, content) or not isinstance(content, bytes):
            raise file.damaged("an attachment")
        found[key] = content
    if total != (header.attached,):
        raise file.damaged("the number of attachments")
    if names != [(key,) for key in sorted(found)]:
        raise file.damaged("the names of the attachments")
    try:
        return {key.decode("utf-8", "surrogatepass"): found[key] for (key,) in names}
    except UnicodeDecodeError:
        raise file.damaged("the name of an attachment") from None


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")
