"""Index files."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bitprint.codes import Codes
from bitprint.search.file import checksum
from bitprint.search.index import Index
from fuzz.harness import Target, file_bytes
from fuzz.mutating import change_bytes, change_text

# The key column of each table, and the columns to change.
_COLUMNS = {
    "meta": ("key", ("value",)),
    "chunks": ("first", ("first", "count", "described", "codes", "ids")),
    "removed": ("first", ("first", "generation", "bitmap")),
    "details": ("first", ("first", "count", "names", "counts", "numbers", "paths")),
    "attachments": ("name", ("name", "content")),
}
# Checksum columns, and the columns that each of them covers.
_CHECKSUMS = (
    ("chunks", "checksum", "first, count, described, codes, ids"),
    ("removed", "checksum", "first, generation, bitmap"),
    ("details", "labels_checksum", "first, count, names, counts, numbers"),
    ("details", "paths_checksum", "first, count, paths"),
    ("attachments", "checksum", "name, content"),
)
_CELLS = (-1, 0, 1, 2, 91, 512, 65_536, 2**31, 2**40, 2**63 - 1, -(2**63), 0.5, "", "x", b"", b"x")


def parse(data: bytes, folder: Path) -> object:
    """Open an index, read its full contents, and search it."""
    with Index.open(fresh_file(folder, data)) as index:
        ids = index.ids().tolist()
        if not ids:
            return index.labels(), index.attachments()
        codes = index.codes(ids)
        names = index.labels()
        found = index.search(codes[:1], k=3, label=names[0] if names else None)
        return codes, found, index.items(ids), index.attachments(), index.model


def seeds() -> list[bytes]:
    """Return an index with all kinds of rows, one with ranges of ids, and an empty one."""
    return [file_bytes(_fill), file_bytes(_fill_ranges), file_bytes(_create_empty)]


def _create_empty(path: Path) -> None:
    Index.create(path, 12).close()
    shrink(path)


def _fill(path: Path) -> None:
    codes = Codes.from_signs(np.random.default_rng(0).random((90, 12)) < 0.5)
    with Index.create(path, 12, model="itq") as index:
        names = [f"{number}.png" for number in range(90)]
        index.add(names, codes, names, [[str(number % 3)] for number in range(90)])
        index.remove(names[::7])
        index.attach({"note": b"kept"})
    shrink(path)


def _fill_ranges(path: Path) -> None:
    codes = Codes.from_signs(np.random.default_rng(0).random((90, 12)) < 0.5)
    with Index.create(path, 12) as index:
        index.add([*range(-20, 20), *range(200, 100, -2)], codes)
        index.add(range(30, 60), codes[:30])
        index.remove([*range(5)])
    shrink(path)


def fresh_file(folder: Path, data: bytes) -> Path:
    """Write an index file, and delete the log of an earlier one."""
    path = folder / "a.bp"
    for part in folder.glob("a.bp*"):
        part.unlink()
    path.write_bytes(data)
    return path


def shrink(path: Path) -> None:
    """Reduce the page size, because most bytes of a 16 KiB page would be empty."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Change one value of a row, or delete the row, and fix all checksums."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.deserialize(data)
        table, (key, columns) = rng.choice(list(_COLUMNS.items()))
        column = rng.choice(columns)
        row, value = rng.choice(db.execute(f"SELECT {key}, {column} FROM {table}").fetchall())
        if rng.random() < 0.1:
            db.execute(f"DELETE FROM {table} WHERE {key} = ?", (row,))
        else:
            change = f"UPDATE {table} SET {column} = ? WHERE {key} = ?"
            db.execute(change, (_changed(value, rng), row))
        fix_checksums(db)
        return db.serialize()


def _changed(value: Any, rng: random.Random) -> object:
    if isinstance(value, bytes) and rng.random() < 0.8:
        return change_bytes(value, rng)
    if isinstance(value, str) and rng.random() < 0.8:
        return change_text(value, rng)
    return rng.choice(_CELLS)


def fix_checksums(db: sqlite3.Connection) -> None:
    """Recompute the checksums of all rows."""
    rows = dict(db.execute("SELECT key, value FROM meta WHERE key != 'checksum'"))
    total = str(checksum(*sorted(rows.items())))
    db.execute("UPDATE meta SET value = ? WHERE key = 'checksum'", (total,))
    for table, column, covered in _CHECKSUMS:
        for key, *values in db.execute(f"SELECT rowid, {covered} FROM {table}").fetchall():
            change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            db.execute(change, (checksum(*values), key))


TARGET = Target(parse, seeds, mutate)
