"""Connections to a Milvus server or to a file of Milvus Lite: addresses, locks and errors."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

import grpc
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from bitprint.search.closing import on_error
from bitprint.search.errors import is_closed, no_such_index
from bitprint.search.stores.servers import (
    DEFAULT_INDEX,
    LONGEST_CONNECTING,
    connection_lost,
    first_line,
    server_failed,
    wrong_address,
)

Answer = TypeVar("Answer")

_FORM = "milvus://user:password@host:19530/database"
_PORT = 19530
# Milvus allows 255 characters; the second collection of an index has a longer name.
_INDEX_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]{0,242}")
_LITE_FILE = re.compile(r"[A-Za-z0-9._-]{1,33}\.db")

_LONGEST_ENDING = 5.0  # seconds
_UNREACHABLE = 2
_COLLECTION_NOT_FOUND = 100
# Milvus Lite closes connections that send keep-alive pings every few seconds.
_NO_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": False}

# Every error is raised again below in one sentence; pymilvus would also log it with a traceback.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class MilvusAddress:
    """The address of an index on Milvus."""

    server: str
    """What pymilvus connects to: the URI of a server, or the path of a file."""
    database: str
    token: str = field(repr=False)
    index: str
    """The name of the index and of the collection of its codes."""
    shown: str
    """The address without the password."""

    @property
    def file(self) -> Path | None:
        """The file of Milvus Lite, or None for a server."""
        return None if "://" in self.server else Path(self.server)


def parse_address(uri: str) -> MilvusAddress:
    """Parse `milvus://user:password@host:19530/database?index=NAME` or `milvus:///file.db`.

    Examples
    --------
    >>> address = parse_address("milvus://me:secret@db.example/photos?index=cats")
    >>> address.server, address.database, address.index, address.shown
    ('http://db.example:19530', 'photos', 'cats', 'milvus://db.example/photos?index=cats')
    >>> parse_address("milvus:///data/photos.db").file.as_posix()
    '/data/photos.db'
    """
    parts, port = _split(uri)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    index, scheme = _check_options(options)
    secret, _, place = parts.netloc.rpartition("@")
    shown = f"milvus://{place}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    if not place:
        return MilvusAddress(_lite_file(unquote(parts.path)), "", "", index, shown)
    host = quote(parts.hostname or "", safe=":")
    host = f"[{host}]" if ":" in host else host
    server = f"{scheme}://{host}:{port}"
    return MilvusAddress(server, unquote(parts.path.strip("/")), unquote(secret), index, shown)


def _split(uri: str) -> tuple[SplitResult, int]:
    """Return the parts and the port of an address.

    Raises ValueError if a part that may be shown could contain a piece of the password.
    """
    try:
        parts = urlsplit(uri)
        port = parts.port or _PORT
    except ValueError:
        raise wrong_address(_FORM) from None
    after_host = parts.path + parts.query + parts.fragment
    if parts.netloc and ("@" in after_host or parts.fragment):
        raise wrong_address(_FORM)
    return parts, port


def _check_options(options: dict[str, str]) -> tuple[str, str]:
    """Return the name of the index and the scheme of the server's URI."""
    unknown = sorted(options.keys() - {"index", "tls"})
    if unknown:
        raise ValueError(
            f"the address of a Milvus index has no option {unknown[0]}; use index= or tls="
        )
    index = options.get("index", DEFAULT_INDEX)
    if not _INDEX_NAME.fullmatch(index):
        raise ValueError(
            "the name of an index on Milvus must consist of at most 243 letters, digits and "
            f"underscores, got {index!r}"
        )
    tls = options.get("tls", "false")
    if tls not in ("true", "false"):
        raise ValueError(f"tls in the address of a Milvus index must be true or false, got {tls!r}")
    return index, "https" if tls == "true" else "http"


def _lite_file(path: str) -> str:
    if not _LITE_FILE.fullmatch(Path(path).name):
        raise ValueError(
            f"{path}: the file name of a Milvus Lite index must have at most 36 letters, digits, "
            "dots and dashes and end in .db"
        )
    return str(Path(path).absolute())


class MilvusConnection:
    """A connection whose calls raise built-in errors of one sentence.

    Parameters
    ----------
    address : MilvusAddress
    timeout : float
        Seconds to wait for each answer of the server.
    """

    def __init__(self, address: MilvusAddress, timeout: float) -> None:
        self.address = address
        self.place = address.shown
        self._timeout = timeout
        self._closed = False
        self._lock = threading.Lock()
        if address.file is None:
            self.client = _connect(address, min(timeout, LONGEST_CONNECTING))
            return
        _LITE_FILES.acquire(address.file)
        with on_error(lambda: _LITE_FILES.release(Path(address.server))):
            # The engine runs already, but a busy machine may delay its first answer.
            self.client = _connect(address, timeout, grpc_options=_NO_PINGS)

    def call(self, method: str, **arguments: Any) -> Any:
        """Call a method of `pymilvus.MilvusClient`."""
        return self.run(partial(getattr(self.client, method), timeout=self._timeout, **arguments))

    def run(self, request: Callable[[], Answer]) -> Answer:
        """Send a request, and turn the errors of Milvus into built-in ones."""
        self.check_open()
        try:
            return request()
        except (MilvusException, grpc.RpcError) as error:
            self.check_open()  # another thread may have closed the connection
            raise self._explain(error) from error

    def check_open(self) -> None:
        """Raise ValueError if the connection is closed."""
        if self._closed:
            raise is_closed(self.place)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.client.close()
        finally:
            if self.address.file is not None:
                _LITE_FILES.release(self.address.file)

    def _explain(self, error: Any) -> OSError:
        code = error.code if isinstance(error, MilvusException) else error.code()
        if code == _COLLECTION_NOT_FOUND:
            return no_such_index(self.place)
        if code == _UNREACHABLE or isinstance(code, grpc.StatusCode):
            return connection_lost(self.place, _reason(error))
        return server_failed(self.place, _reason(error))


def _connect(address: MilvusAddress, timeout: float, **options: Any) -> MilvusClient:
    try:
        return MilvusClient(
            address.server,
            token=address.token,
            db_name=address.database,
            timeout=timeout,
            **options,
        )
    except (MilvusException, grpc.RpcError) as error:
        raise ConnectionError(
            f"{address.shown}: cannot reach the server ({first_line(_reason(error))}); check that "
            "it is running, and the user, the password and the database"
        ) from None  # the error may contain the password


def _reason(error: Any) -> str:
    return str(error.message if isinstance(error, MilvusException) else error.details())


class LiteFiles:
    """The Milvus Lite files that this process has open.

    The engine of a file runs until its last user in this process releases it. Milvus Lite itself
    does not keep a second process out: when its lock refuses a process, it also deletes the lock
    file, so the next attempt succeeds and both engines write. A lock file of ours, which is never
    deleted, therefore allows one process at a time.
    """

    def __init__(self) -> None:
        self._users: Counter[Path] = Counter()
        self._locked: dict[Path, int] = {}
        self._lock = threading.Lock()

    def acquire(self, file: Path) -> None:
        """Add a user of a file; for the first, lock the file and start the engine."""
        with self._lock:
            engines = _import_engines()
            file.parent.mkdir(parents=True, exist_ok=True)
            file = file.resolve()
            if not self._users[file]:
                self._locked[file] = _lock_file(file)
                with on_error(lambda: self._unlock(file)):
                    _start_engine(engines, file)
            self._users[file] += 1

    def release(self, file: Path) -> None:
        """Remove a user of a file; after the last, stop the engine and unlock the file."""
        with self._lock:
            file = file.resolve()
            self._users[file] -= 1
            if not self._users[file]:
                try:
                    _import_engines().release_server(str(file))
                finally:
                    self._unlock(file)

    def _unlock(self, file: Path) -> None:
        import fcntl

        descriptor = self._locked.pop(file)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # closing alone keeps the lock of forked processes
        os.close(descriptor)


_LITE_FILES = LiteFiles()


def _lock_file(file: Path) -> int:
    """Lock a file for this process; return the descriptor of the lock file."""
    import fcntl  # not available on Windows, where Milvus Lite does not run either

    descriptor = os.open(f"{file}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with on_error(lambda: os.close(descriptor)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(file) from None
    return descriptor


def _start_engine(engines: Any, file: Path) -> None:
    if str(file) not in engines._servers:  # this process may use the file without Bitprint
        _wait_for_other_engine(file)
    if engines.start_and_get_uri(str(file)) is None:
        raise OSError(f"{file}: Milvus Lite cannot open this file; give a file of Milvus Lite 2.5")


def _wait_for_other_engine(file: Path) -> None:
    """Wait until the engine of a killed process has ended; raise OSError if it does not end."""
    import fcntl

    deadline = time.monotonic() + _LONGEST_ENDING
    with file.with_name(f".{file.name}.lock").open("a") as lock:  # the one of Milvus Lite
        while True:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise _in_use(file) from None
                time.sleep(0.05)


def _in_use(file: Path) -> OSError:
    return OSError(
        f"{file}: another process is using this Milvus Lite file; close it there, or use a Milvus "
        "server"
    )


def _import_engines() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it imports a deprecated package
            from milvus_lite.server_manager import server_manager_instance
    except ModuleNotFoundError as error:
        raise ValueError(
            f"an index in a file of Milvus needs {error.name}: "
            "pip install 'pymilvus<2.7' milvus-lite==2.5.1 'setuptools<81'"
        ) from error
    return server_manager_instance
