"""Connections to Milvus: the address of an index, servers and files, and errors in one sentence."""

from __future__ import annotations

import logging
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import grpc
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

_DEFAULT_INDEX = "bitprint"
_PORT = 19530
_LONGEST_CONNECTING = 10.0
_COLLECTION = re.compile("[A-Za-z_][A-Za-z0-9_]{0,254}")
_LITE_FILE = re.compile(r"[A-Za-z0-9._-]{1,33}\.db")
_UNREACHABLE = 2
_COLLECTION_NOT_FOUND = 100
# Milvus Lite hangs up on whoever asks every few seconds whether it is still there.
_NO_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": False}

# Every failure becomes an exception below; pymilvus would also print it, with a traceback.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Address:
    """Where an index is."""

    server: str
    """What pymilvus connects to: the URI of a server, or the path of a file."""
    database: str
    token: str = field(repr=False)
    index: str
    """The name of the index, which is that of a collection."""
    shown: str
    """The address as it may be shown."""

    @property
    def file(self) -> Path | None:
        """The file of Milvus Lite, or None for a server."""
        return None if "://" in self.server else Path(self.server)


def parse_address(uri: str) -> Address:
    """Split `milvus://user:password@host:19530/database?index=NAME` or `milvus:///file.db`.

    Examples
    --------
    >>> address = parse_address("milvus://me:secret@db.example/photos?index=cats")
    >>> address.server, address.database, address.index, address.shown
    ('http://db.example:19530', 'photos', 'cats', 'milvus://db.example/photos?index=cats')
    >>> parse_address("milvus:///data/photos.db").file.as_posix()
    '/data/photos.db'
    """
    parts = urlsplit(uri)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = sorted(options.keys() - {"index", "tls"})
    if unknown:
        raise ValueError(f"the address of a Milvus index has no option {unknown[0]}; see index=")
    index = options.get("index", _DEFAULT_INDEX)
    if not _COLLECTION.fullmatch(index):
        raise ValueError(
            "the name of an index on Milvus is made of letters, digits and underscores, "
            f"got {index!r}"
        )
    secret, _, place = parts.netloc.rpartition("@")
    shown = f"milvus://{place}{parts.path}" + (f"?{parts.query}" if parts.query else "")
    if not place:
        return Address(_lite_file(unquote(parts.path)), "", "", index, shown)
    try:
        port = parts.port or _PORT
    except ValueError:
        # The reason could name a part of the password, and so could the cause.
        raise ValueError(
            "the address of the database is not milvus://user:password@host:19530/database; write "
            "signs such as @ and / in a password as %40 and %2F"
        ) from None
    scheme = "https" if options.get("tls") == "true" else "http"
    host = quote(parts.hostname or "", safe=":")
    host = f"[{host}]" if ":" in host else host
    server = f"{scheme}://{host}:{port}"
    return Address(server, unquote(parts.path.strip("/")), unquote(secret), index, shown)


def _lite_file(path: str) -> str:
    if not _LITE_FILE.fullmatch(Path(path).name):
        raise ValueError(
            f"{path}: Milvus Lite keeps an index in a file whose name has at most 36 letters, "
            "digits, dots and dashes and ends in .db"
        )
    return str(Path(path).absolute())


class Lite:
    """The files of Milvus Lite that this process has open; the last to close one frees it."""

    def __init__(self) -> None:
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    def take(self, file: Path) -> None:
        """Count one more user, and start the engine for the first."""
        with self._lock:
            engine = self._engine()
            if engine.start_and_get_uri(str(file)) is None:
                raise OSError(
                    f"{file}: Milvus Lite cannot open this file, which one process at a time may "
                    "use; close it elsewhere, or use a Milvus server"
                )
            self._users[str(file)] += 1

    def give_back(self, file: Path) -> None:
        """Count one user less, and stop the engine after the last."""
        with self._lock:
            self._users[str(file)] -= 1
            if not self._users[str(file)]:
                self._engine().release_server(str(file))

    @staticmethod
    def _engine() -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it imports a package that is deprecated
                from milvus_lite.server_manager import server_manager_instance
        except ModuleNotFoundError as error:
            raise ValueError(
                f"an index in a file of Milvus needs {error.name}: pip install bitprint[milvus]"
            ) from error
        return server_manager_instance


_LITE = Lite()


def connect(address: Address, timeout: float) -> MilvusClient:
    """Connect to a server, or start Milvus Lite; undone by `disconnect`."""
    if address.file is not None:
        address.file.parent.mkdir(parents=True, exist_ok=True)
        _LITE.take(address.file)
    try:
        return MilvusClient(
            address.server,
            token=address.token,
            db_name=address.database,
            timeout=min(timeout, _LONGEST_CONNECTING),
            grpc_options=_NO_PINGS if address.file is not None else {},
        )
    except (MilvusException, grpc.RpcError) as error:
        if address.file is not None:
            _LITE.give_back(address.file)
        raise ConnectionError(
            f"{address.shown}: cannot reach the server ({_reason(error)}); check that it runs "
            "there, and the user, the password and the database"
        ) from None  # the error may know the password


def disconnect(client: MilvusClient, address: Address) -> None:
    """Close a connection."""
    client.close()
    if address.file is not None:
        _LITE.give_back(address.file)


@contextmanager
def explained(place: str) -> Iterator[None]:
    """Turn errors of Milvus into built-in ones that say what to do."""
    try:
        yield
    except (MilvusException, grpc.RpcError) as error:
        code = error.code if isinstance(error, MilvusException) else error.code()
        if code == _COLLECTION_NOT_FOUND:
            raise FileNotFoundError(f"{place}: no such index; create it first") from error
        if code == _UNREACHABLE or isinstance(code, grpc.StatusCode):
            raise ConnectionError(
                f"{place}: the connection was lost ({_reason(error)}), and nothing is half done; "
                "try again"
            ) from error
        raise OSError(
            f"{place}: the server failed ({_reason(error)}), so nothing of this call was stored; "
            "see to the server and try again"
        ) from error


def _reason(error: Any) -> str:
    """The first line of an error."""
    words = error.message if isinstance(error, MilvusException) else error.details()
    return str(words).strip().partition("\n")[0]
