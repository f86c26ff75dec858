"""The index file: an SQLite database, its header, its transactions, and its errors in words.

Tables
------
meta
    What the index is and how far it has come: one row per field of `Header`, and a checksum.
chunks
    Up to 65,536 codes and their ids, written once; `first` is the position of the first code.
removed
    Per chunk that lost codes, one bit per code, and the generation that last changed it.
details
    Paths and labels, 512 codes to a row, for the chunks that have any.
attachments
    Named bytes that belong to the codes, such as their model; made with the first of them.

Every row carries a checksum, and the header counts what the rows must add up to, so that damage is
found before it is searched.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from bitprint.files import write_atomically
from bitprint.search.closing import on_error
from bitprint.search.errors import no_such_index, other_version

_FORMAT = "bitprint.index"
_VERSION = 1
_MAGIC = b"SQLite format 3\0"
_FUNCTIONS = ("coalesce", "count", "length", "sum")

# Space is given back in the transaction that frees it; pages of 16 KiB read blobs twice as fast as
# the usual 4 KiB.
_SCHEMA = """
PRAGMA page_size = 16384;
PRAGMA auto_vacuum = FULL;
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE chunks (
    first INTEGER PRIMARY KEY, count INTEGER NOT NULL, described INTEGER NOT NULL,
    checksum INTEGER NOT NULL, codes BLOB NOT NULL, ids BLOB NOT NULL
);
CREATE TABLE removed (
    first INTEGER PRIMARY KEY, generation INTEGER NOT NULL,
    checksum INTEGER NOT NULL, bitmap BLOB NOT NULL
);
CREATE TABLE details (
    first INTEGER PRIMARY KEY, count INTEGER NOT NULL,
    labels_checksum INTEGER NOT NULL, paths_checksum INTEGER NOT NULL,
    names TEXT NOT NULL, counts BLOB NOT NULL, numbers BLOB NOT NULL, paths TEXT NOT NULL
);
"""


@dataclass(frozen=True)
class Header:
    """What the file says about itself.

    Every write makes a new generation; `compacted` is the last one that moved codes to new
    positions. `total` counts positions, `live` those that are not removed, `attached` the
    attachments.
    """

    bits: int
    model: str | None
    kind: str | None = None
    generation: int = 0
    compacted: int = 0
    total: int = 0
    live: int = 0
    attached: int = 0


class IndexFile:
    """One open index file; not safe to share between threads without a lock.

    Where neither the log nor its table can be written, as on a read-only disk, the file can still
    be read, without any locks. Should somebody else change it then, every call says so.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self._unlocked: _State | None = None  # what the file was, where it is read without locks
        _check_is_database(path)
        try:
            self._open("mode=rw", timeout)
        except PermissionError as error:
            self._unlocked = _state(path)
            if self._unlocked.log:
                raise PermissionError(
                    f"{path}: the index or its folder may not be written, and its log, "
                    f"{_log_of(path.resolve()).name}, cannot be read without; copy both files to "
                    "a folder that may be"
                ) from error
            self._open("mode=ro&immutable=1", timeout)

    def _open(self, how: str, timeout: float) -> None:
        with _plain_errors(self.path):
            self.db = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?{how}",
                uri=True,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
            )
        self.db.set_authorizer(_authorize)
        with on_error(self.db.close):
            self.header()
            if self._unlocked:
                return
            with _plain_errors(self.path):
                self.db.execute("PRAGMA journal_mode = WAL")
                self.db.execute("PRAGMA synchronous = FULL")
                self.db.execute("PRAGMA fullfsync = TRUE")

    @staticmethod
    def create(
        path: Path, header: Header, fill: Callable[[sqlite3.Connection], object] | None = None
    ) -> None:
        """Write an index without codes to a path where nothing is yet.

        `fill` may put something else into it first, which is then there from the beginning.
        """
        if path.exists():
            raise _exists_already(path)
        log = _log_of(path)
        if log.exists():
            raise FileExistsError(f"{log}: left over from another index; remove it or rename it")
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript(_SCHEMA)
        _write_header(db, header)
        if fill is not None:
            fill(db)
        content = db.serialize()
        db.close()
        draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
        try:
            write_atomically(draft, content)
            _put(draft, path)
        except FileExistsError:
            raise _exists_already(path) from None
        finally:
            draft.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file; the last to close it folds the log back into it."""
        with _plain_errors(self.path):
            self.db.close()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read one consistent state, whatever others write meanwhile."""
        with self._transaction("BEGIN"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write all or nothing; waits for another writer, durable when it ends."""
        if self._unlocked:
            raise _not_writable(self.path, "it was opened for reading")
        with self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        with _plain_errors(self.path):
            self._check_unlocked()
            if self.db.in_transaction:  # a part of a larger one, which begins and ends it
                yield
                return
            self.db.execute(begin)
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise

    def fold_log(self) -> None:
        """Move what the log holds into the file, as far as readers allow, and shorten both."""
        with _plain_errors(self.path):
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def changes(self) -> int:
        """Return a number that differs whenever another connection has written to the file."""
        self._check_unlocked()
        with _plain_errors(self.path):
            return int(self.db.execute("PRAGMA data_version").fetchone()[0])

    def _check_unlocked(self) -> None:
        if self._unlocked and self._unlocked != _state(self.path):
            raise OSError(
                f"{self.path}: the index was changed while it was read where it may not be "
                "written; open it again"
            )

    def header(self) -> Header:
        """Read and check the header."""
        with _plain_errors(self.path):
            try:
                found = dict(self.db.execute("SELECT key, value FROM meta"))
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                    raise
                found = {}  # no such table: somebody else's database
            except MemoryError:  # what SQLite makes of some damage to its own tables
                raise self.damaged("its schema") from None
        if found.get("format") != _FORMAT:
            raise ValueError(f"{self.path}: not a bitprint index")
        version = str(found.get("version"))
        if not version.isdecimal():
            raise self.damaged("its header")
        if version != str(_VERSION):
            raise other_version(self.path, version, _VERSION)
        expected = found.pop("checksum", None)
        if not all(isinstance(text, str) for row in found.items() for text in row):
            raise self.damaged("its header")
        if expected != str(checksum(*sorted(found.items()))):
            raise self.damaged("its header")
        known = [field.name for field in fields(Header) if field.name in found]
        try:
            header = Header(**{name: json.loads(found[name]) for name in known})
        except (TypeError, ValueError, RecursionError):  # a field is missing, or no JSON
            raise self.damaged("its header") from None
        if not _is_possible(header):
            raise self.damaged("its header")
        return header

    def write_header(self, header: Header) -> None:
        """Write the header, inside a transaction."""
        _write_header(self.db, header)

    def damaged(self, what: str) -> ValueError:
        """Describe damage that a check found."""
        return ValueError(
            f"{self.path}: the file is damaged ({what} does not check out); restore it from a copy"
        )


class _State(NamedTuple):
    """What tells that a file was changed."""

    file: int
    changed: int
    size: int
    log: int
    """Bytes of its log."""


def _state(path: Path) -> _State:
    facts, log = path.stat(), _log_of(path.resolve())
    size = log.stat().st_size if log.exists() else 0
    return _State(facts.st_ino, facts.st_mtime_ns, facts.st_size, size)


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _not_writable(path: Path, reason: object) -> PermissionError:
    return PermissionError(
        f"{path}: the index or its folder may not be written ({reason}); change their permissions"
    )


def checksum(*values: object) -> int:
    """CRC-32 of values as SQLite stores them, their types and lengths included.

    Examples
    --------
    >>> checksum(1, b"ab") == checksum(1, "ab"), checksum("a", "b") == checksum("ab", "")
    (False, False)
    """
    crc = 0
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        crc = zlib.crc32(f"{type(value).__name__} {len(data)}:".encode(), crc)
        crc = zlib.crc32(data, crc)
    return crc


def _write_header(db: sqlite3.Connection, header: Header) -> None:
    rows = {key: json.dumps(value) for key, value in asdict(header).items()}
    rows |= {"format": _FORMAT, "version": str(_VERSION)}
    rows["checksum"] = str(checksum(*sorted(rows.items())))
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows.items())


def _is_possible(header: Header) -> bool:
    """Whether an index could say this of itself; its checksum only says that nobody slipped."""
    names = ("bits", "generation", "compacted", "total", "live", "attached")
    numbers = [getattr(header, name) for name in names]
    return (
        all(type(number) is int and 0 <= number < 2**63 for number in numbers)
        and 1 <= header.bits < 2**31
        and header.live <= header.total
        and header.kind in (None, "integer", "string")
        and (header.kind is not None or header.total == 0)
        and isinstance(header.model, str | None)
    )


def _put(draft: Path, path: Path) -> None:
    """Give a file its name if nothing has that name yet.

    A link appears at once and whole, so that a process that is killed on the way leaves no index,
    or all of it.
    """
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links, such as exFAT
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        draft.replace(path)


def _exists_already(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path}: exists already; open it, or create the index under another name"
    )


def _authorize(
    action: int, _first: str | None, second: str | None, _schema: str | None, source: str | None
) -> int:
    """Allow what this package asks for, and nothing that the file itself brings along.

    A stranger's file may have a view in place of a table, or a trigger, that never ends.
    """
    foreign = source is not None or action == sqlite3.SQLITE_RECURSIVE
    if foreign or (action == sqlite3.SQLITE_FUNCTION and second not in _FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _check_is_database(path: Path) -> None:
    if not path.exists():
        raise no_such_index(path)
    if not path.is_file():
        raise ValueError(f"{path}: not a file, so not a bitprint index")
    with path.open("rb") as file:
        start = file.read(20)
    if not start.startswith(_MAGIC):
        raise ValueError(f"{path}: not a bitprint index, or one cut off at its beginning")
    if not {*start[18:20]} <= {1, 2}:  # the versions of the format that SQLite writes and reads
        raise ValueError(
            f"{path}: the file is damaged (its first bytes do not check out); restore it from a "
            "copy"
        )


@contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    """Say in one sentence what SQLite reports by number."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise TimeoutError(
                f"{path}: another writer holds the index; try again when it is done"
            ) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(
                f"{path}: the disk failed or is full ({error}), so nothing of this call was "
                "stored; free some space and try again"
            ) from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise _not_writable(path, error) from error
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: the file is damaged ({reason}); restore it from a copy"
        ) from error
