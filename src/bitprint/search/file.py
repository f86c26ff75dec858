"""The index file: an SQLite database with a header, transactions and readable errors.

Tables
------
meta
    One row per field of `IndexHeader`, and a checksum.
chunks
    Up to 65,536 codes and their ids, written once; `first` is the position of the first code.
removed
    For each chunk with removed codes, one bit per code and the generation that last changed it.
details
    Paths and labels, 512 codes per row, for the chunks that have any.
attachments
    Named bytes stored with the codes, such as the model; created with the first attachment.
records
    Bytes of a fixed length for each code, by its position; only in indexes created with records.

Every row has a checksum, and the header stores the expected totals, so that damage is detected
before damaged data is searched.

A write to a file of an earlier version sets its version to the current one, so that earlier
releases refuse to open it.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

from bitprint.search.closing import on_error
from bitprint.search.errors import no_such_index, other_version
from bitprint.utils.files import write_new
from bitprint.utils.locking import locked

_FORMAT = "bitprint.index"
_VERSION = 2
_READABLE = ("1", "2")  # files of version 1 contain no ranges of ids and no records
_MAGIC = b"SQLite format 3\0"
_FUNCTIONS = ("coalesce", "count", "length", "sum")

_SETTINGS = (
    "journal_mode = WAL",
    "wal_autocheckpoint = 0",
    "synchronous = FULL",
    "fullfsync = TRUE",
    "cell_size_check = ON",  # notices some damaged pages before they are written to
)
_LONGEST_LOG = 16 * 2**20  # bytes after which a write merges the log into the file
_PATIENCE = 1.0  # seconds to wait for readers when the log is merged

_Identity = tuple[int, int]

# Number of connections of this process per file. When a process closes any descriptor of a file, it
# loses all its POSIX locks on it, including those of SQLite. The bytes of an index are therefore
# not read directly while a connection is open.
_open_here: Counter[_Identity] = Counter()
_opening = threading.Lock()
_shared_memory: dict[_Identity, int] = {}
"""Descriptor of SQLite's shared memory, for each file that this process has open. It is closed
after the last connection for the reason above."""

_SHARED_HEADER = 48  # bytes of the header of the shared memory
_SHARED_VERSION = 3007000  # of the format of the shared memory, since 2010

# auto_vacuum returns free space in the transaction that frees it. Pages of 16 KiB read blobs twice
# as fast as the default 4 KiB.
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
class IndexHeader:
    """Header of an index file.

    Every write increments `generation`; `compacted` is the last generation that moved codes to new
    positions. `total` is the number of positions, `live` the number of codes that are not removed,
    `attached` the number of attachments, and `record` the number of bytes of each record.
    """

    bits: int
    model: str | None
    kind: str | None = None
    generation: int = 0
    compacted: int = 0
    total: int = 0
    live: int = 0
    attached: int = 0
    record: int = 0


class IndexFile:
    """One open index file; threads that share it need a lock.

    If the write-ahead log cannot be written, as on a read-only disk, the file is read without
    locks. If another process changes it meanwhile, every call raises OSError.

    SQLite before version 3.51.3 can damage a database in which one connection merges the log into
    the file while another one writes (https://sqlite.org/wal.html#walresetbug). Therefore, each
    write and each merge holds a lock on the log, and SQLite never merges by itself, except when it
    closes the last connection, while it excludes all others.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self._timeout = timeout
        self._unlocked: _FileState | None = None  # the file at opening, if read without locks
        self._depth = 0  # of nested snapshots and transactions
        self._writing = False  # whether the outermost is a transaction
        self._place = path.resolve()
        self._log = log_of(self._place)
        self._shared: int | None = None  # descriptor of the shared memory
        self._identity = _register(path)
        with on_error(self._unregister):
            try:
                self._open("mode=rw")
            except PermissionError as error:
                self._unlocked = _file_state(path)
                if self._unlocked.log:
                    raise PermissionError(
                        f"{path}: the index or its folder is not writable, so its log "
                        f"{self._log.name} cannot be read; copy both files to a "
                        "writable folder"
                    ) from error
                self._open("mode=ro&immutable=1")

    def _open(self, options: str) -> None:
        with _readable_errors(self.path):
            self.db = sqlite3.connect(
                f"{self._place.as_uri()}?{options}",
                uri=True,
                timeout=self._timeout,
                isolation_level=None,
                check_same_thread=False,
            )
        self.db.set_authorizer(_authorize)
        with on_error(self.db.close):
            self.header()
            if self._unlocked:
                return
            for setting in _SETTINGS:
                self._execute(f"PRAGMA {setting}")
            self.header()  # creates the log
            self._log_identity = _identity(self._log.stat())
            self._check_in_place()
            self._shared = _open_shared_memory(self._place, self._identity)

    def _unregister(self) -> None:
        with _opening:
            _open_here[self._identity] -= 1
            if not _open_here[self._identity] and self._identity in _shared_memory:
                os.close(_shared_memory.pop(self._identity))

    @staticmethod
    def create(
        path: Path, header: IndexHeader, fill: Callable[[sqlite3.Connection], object] | None = None
    ) -> None:
        """Write an empty index to a path that does not exist yet.

        `fill` may write further rows, which the new file then contains from the beginning.
        """
        if path.exists():
            raise _exists_already(path)
        log = log_of(path)
        if log.exists():
            raise FileExistsError(f"{log}: left over from another index; delete or rename it")
        db = sqlite3.connect(":memory:", isolation_level=None)
        db.executescript(_SCHEMA)
        _write_header(db, header)
        if fill is not None:
            fill(db)
        content = db.serialize()
        db.close()
        try:
            write_new(path, content)
        except FileExistsError:
            raise _exists_already(path) from None

    def close(self) -> None:
        """Merge the log into the file unless others prevent it, and close the file."""
        self.merge_log(wait=0)
        with _readable_errors(self.path):
            self.db.close()
        self._unregister()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run our own statements in a `snapshot`, with readable errors."""
        with self.snapshot(), _readable_errors(self.path):
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read one consistent state, independent of concurrent writers."""
        self._check_unmodified()
        if self._depth:
            self._check_active()
            yield
            return
        with self._block("BEGIN", "COMMIT", "ROLLBACK"):
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run our own statements in a `transaction`, with readable errors."""
        with self.transaction(), _readable_errors(self.path):
            yield

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all or nothing, durably; wait while another process is writing.

        Inside another transaction, this is a savepoint: an error undoes only the inner one.
        """
        if self._unlocked:
            raise _not_writable(self.path, "it was opened read-only")
        self._check_active()
        if self._depth:
            if not self._writing:
                raise ValueError(f"{self.path}: the index cannot be changed inside a snapshot")
            undo = ("ROLLBACK TO inner", "RELEASE inner")
            with self._block("SAVEPOINT inner", "RELEASE inner", *undo):
                yield
            return
        with self._alone(self._timeout):
            self._writing = True
            try:
                with self._block("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"):
                    yield
            finally:
                self._writing = False
            if _size(self._log) > _LONGEST_LOG:
                self._merge(0)

    @contextmanager
    def _alone(self, wait: float) -> Iterator[None]:
        """Exclude all other writes to the file and merges of its log, in all processes."""
        with ExitStack() as stack:
            try:
                log = stack.enter_context(locked(self._log, wait))
            except FileNotFoundError:
                raise _moved(self.path) from None
            except TimeoutError:
                raise _busy(self.path) from None
            if _identity(log) != self._log_identity:
                raise _moved(self.path)
            self._check_in_place()
            yield

    def _check_in_place(self) -> None:
        """Raise OSError if the path no longer leads to the open file."""
        try:
            found = _identity(self._place.stat())
        except FileNotFoundError:
            raise _moved(self.path) from None
        if found != self._identity:
            raise _moved(self.path)

    @contextmanager
    def _block(self, begin: str, commit: str, *undo: str) -> Iterator[None]:
        """Run the body between two statements, and undo it if it raises."""
        self._execute(begin)
        self._depth += 1
        try:
            yield
            self._check_active()
            self._execute(commit)
        except BaseException:
            self._undo(undo)
            raise
        finally:
            self._depth -= 1

    def _execute(self, statement: str) -> None:
        with _readable_errors(self.path):
            self.db.execute(statement)

    def _undo(self, statements: Sequence[str]) -> None:
        if not self.db.in_transaction:
            return
        try:
            for statement in statements:
                self.db.execute(statement)
        except sqlite3.Error:  # the savepoint cannot be restored
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    @property
    def in_transaction(self) -> bool:
        """Whether a snapshot or a transaction is open."""
        return self._depth > 0

    def _check_active(self) -> None:
        """Raise OSError if SQLite rolled back the open transaction, as after a full disk."""
        if self._depth and not self.db.in_transaction:
            raise OSError(
                f"{self.path}: an earlier error undid the whole transaction, so nothing from it "
                "was stored; repeat the transaction"
            )

    def merge_log(self, wait: float | None = None) -> None:
        """Merge the log into the file, which then has all data, unless others prevent it.

        `wait` is the number of seconds to wait for another writer. That writer merges the log too.
        """
        if self._unlocked or self._depth or not _size(self._log):
            return
        with suppress(OSError), self._alone(self._timeout if wait is None else wait):
            self._merge(_PATIENCE)

    def _merge(self, patience: float) -> None:
        """Merge the log; wait for readers for `patience` seconds.

        Errors are ignored: all data are in the log, and the next call tries again.
        """
        with suppress(sqlite3.Error):
            self.db.execute(f"PRAGMA busy_timeout = {int(1000 * patience)}")
            try:
                self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self.db.execute(f"PRAGMA busy_timeout = {int(1000 * self._timeout)}")

    def commit_state(self) -> bytes | None:
        """Return bytes that every commit to the file changes, or None if they cannot be read.

        These bytes are the header of SQLite's shared memory, which is also how SQLite finds out
        whether the file has changed (https://sqlite.org/walformat.html#the_wal_index_header). Every
        commit has written this header when it returns. Reading it takes a fraction of the time of
        `data_version`.
        """
        if self._shared is None or self._depth:
            return None
        return os.pread(self._shared, _SHARED_HEADER, 0)

    def data_version(self) -> int:
        """Return a number that changes whenever another connection writes to the file."""
        self._check_unmodified()
        self._check_active()
        # Every search calls this method; `with` alone would take a microsecond.
        try:
            version: int = self.db.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            with _readable_errors(self.path):
                raise
        return version

    def _check_unmodified(self) -> None:
        if self._unlocked and self._unlocked != _file_state(self.path):
            raise OSError(
                f"{self.path}: the index was changed while it was open read-only; open it again"
            )

    def header(self) -> IndexHeader:
        """Read and check the header."""
        with _readable_errors(self.path):
            try:
                found = dict(self.db.execute("SELECT key, value FROM meta"))
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_ERROR:
                    raise
                found = {}  # no such table: another program's database
            except MemoryError:  # raised by SQLite for some damage to its schema
                raise self.damaged("its schema") from None
        if found.get("format") != _FORMAT:
            raise ValueError(f"{self.path}: not a bitprint index")
        version = str(found.get("version"))
        if not version.isdecimal():
            raise self.damaged("its header")
        if version not in _READABLE:
            raise other_version(self.path, version, _VERSION)
        expected = found.pop("checksum", None)
        if not all(isinstance(text, str) for row in found.items() for text in row):
            raise self.damaged("its header")
        if expected != str(checksum(*sorted(found.items()))):
            raise self.damaged("its header")
        known = [field.name for field in fields(IndexHeader) if field.name in found]
        try:
            header = IndexHeader(**{name: json.loads(found[name]) for name in known})
        except (TypeError, ValueError, RecursionError):  # missing field or invalid JSON
            raise self.damaged("its header") from None
        if not _is_valid(header):
            raise self.damaged("its header")
        return header

    def write_header(self, header: IndexHeader) -> None:
        """Write the header, inside a transaction."""
        _write_header(self.db, header)

    def damaged(self, what: str) -> ValueError:
        """Return the error for damage that a check found."""
        return ValueError(
            f"{self.path}: the file is damaged ({what} failed verification); restore it from a "
            "backup"
        )


class _FileState(NamedTuple):
    """File attributes that change when the file is written."""

    inode: int
    modified: int
    size: int
    log: int
    """Size of its log in bytes."""


def _file_state(path: Path) -> _FileState:
    stat, log = path.stat(), log_of(path.resolve())
    return _FileState(stat.st_ino, stat.st_mtime_ns, stat.st_size, _size(log))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def log_of(path: Path) -> Path:
    """Return the path of the write-ahead log of an index."""
    return path.with_name(path.name + "-wal")


def _open_shared_memory(place: Path, identity: _Identity) -> int | None:
    """Return a descriptor of the shared memory of an open file, or None if it is unsuitable."""
    if not hasattr(os, "pread"):  # Windows
        return None
    name = place.with_name(place.name + "-shm")
    with _opening:
        if identity not in _shared_memory:
            try:
                _shared_memory[identity] = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                return None
        descriptor = _shared_memory[identity]
    header = os.pread(descriptor, _SHARED_HEADER, 0)
    # Another thread may be closing the last connection, after which SQLite makes a new file.
    same = name.exists() and _identity(os.fstat(descriptor)) == _identity(name.stat())
    known = int.from_bytes(header[:4], sys.byteorder) == _SHARED_VERSION
    return descriptor if same and known and len(header) == _SHARED_HEADER else None


def _not_writable(path: Path, reason: object) -> PermissionError:
    return PermissionError(
        f"{path}: the index or its folder is not writable ({reason}); change their permissions"
    )


def checksum(*values: object) -> int:
    """Return the CRC-32 of values as SQLite stores them, including their types and lengths.

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


def _write_header(db: sqlite3.Connection, header: IndexHeader) -> None:
    rows = {key: json.dumps(value) for key, value in asdict(header).items()}
    rows |= {"format": _FORMAT, "version": str(_VERSION)}
    rows["checksum"] = str(checksum(*sorted(rows.items())))
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows.items())


def _is_valid(header: IndexHeader) -> bool:
    """Return whether the fields are consistent; a crafted file may have a valid checksum."""
    names = ("bits", "generation", "compacted", "total", "live", "attached", "record")
    numbers = [getattr(header, name) for name in names]
    return (
        all(type(number) is int and 0 <= number < 2**63 for number in numbers)
        and 1 <= header.bits < 2**31
        and header.live <= header.total
        and header.kind in (None, "integer", "string")
        and (header.kind is not None or header.total == 0)
        and isinstance(header.model, str | None)
    )


def _exists_already(path: Path) -> FileExistsError:
    return FileExistsError(f"{path}: exists already; open it or choose another name")


def _authorize(
    action: int, _first: str | None, second: str | None, _schema: str | None, source: str | None
) -> int:
    """Deny SQL that comes from the file itself, such as views and triggers.

    A crafted file may define a view or a trigger that never terminates.
    """
    foreign = source is not None or action == sqlite3.SQLITE_RECURSIVE
    if foreign or (action == sqlite3.SQLITE_FUNCTION and second not in _FUNCTIONS):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _identity(stat: os.stat_result) -> _Identity:
    return stat.st_dev, stat.st_ino


def _register(path: Path) -> _Identity:
    """Check that a path leads to a database, and count it as open in this process."""
    if not path.exists():
        raise no_such_index(path)
    if not path.is_file():
        raise ValueError(f"{path}: not a file, so not a bitprint index")
    with _opening:
        identity = _identity(path.stat())
        if not _open_here[identity]:
            _check_first_bytes(path)
        _open_here[identity] += 1
    return identity


def _check_first_bytes(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(20)
    if not start.startswith(_MAGIC):
        raise ValueError(f"{path}: not a bitprint index, or truncated")
    if not {*start[18:20]} <= {1, 2}:  # SQLite's file format versions for writing and reading
        raise ValueError(
            f"{path}: the file is damaged (its first bytes failed verification); restore it from "
            "a backup"
        )


def _check_descriptors(path: Path) -> None:
    """Raise an OSError if no further file can be opened, which SQLite does not distinguish."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            return
        readable = OSError(f"{path}: too many open files; raise the limit (ulimit -n)")
        readable.errno = error.errno
        raise readable from error


def _moved(path: Path) -> OSError:
    return OSError(
        f"{path}: the index was deleted, moved or replaced while it was open; open it again"
    )


def _busy(path: Path) -> TimeoutError:
    return TimeoutError(
        f"{path}: another process is writing to this index; try again when it has finished"
    )


@contextmanager
def _readable_errors(path: Path) -> Iterator[None]:
    """Replace SQLite errors by errors that name the file, the cause and the remedy."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise _busy(path) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise OSError(
                f"{path}: the disk failed or is full ({error}), and nothing from this call was "
                "stored; free some space and try again"
            ) from error
        if code == sqlite3.SQLITE_CANTOPEN:
            _check_descriptors(path)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise _not_writable(path, error) from error
        reason = " ".join(str(error).split())
        raise ValueError(
            f"{path}: the file is damaged ({reason}); restore it from a backup"
        ) from error
