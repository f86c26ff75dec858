"""Connections to Milvus: to a server, or to a file of Milvus Lite; errors in one sentence."""

from __future__ import annotations

import logging
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from pymilvus import MilvusClient
from pymilvus.exceptions import MilvusException

from bitprint.search.closing import on_error
from bitprint.search.errors import no_such_index
from bitprint.search.stores.milvus_address import Address
from bitprint.search.stores.servers import (
    LONGEST_CONNECTING,
    connection_lost,
    first_line,
    server_failed,
)

_UNREACHABLE = 2
_COLLECTION_NOT_FOUND = 100
# Milvus Lite hangs up on whoever asks every few seconds whether it is still there.
_NO_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1, "grpc.keepalive_permit_without_calls": False}

# Every failure becomes an exception below; pymilvus would also print it, with a traceback.
logging.getLogger("pymilvus").setLevel(logging.CRITICAL)


class Lite:
    """The files of Milvus Lite that this process has open; the last to close one frees it."""

    def __init__(self) -> None:
        self._users: Counter[Path] = Counter()
        self._lock = threading.Lock()

    def take(self, file: Path) -> None:
        """Count one more user, and start the engine for the first."""
        with self._lock:
            file.parent.mkdir(parents=True, exist_ok=True)
            if self._engine().start_and_get_uri(str(file)) is None:
                raise OSError(
                    f"{file}: Milvus Lite cannot open this file, which one process at a time may "
                    "use, or it is no file of Milvus; close it elsewhere, or use another"
                )
            self._users[file] += 1

    def give_back(self, file: Path) -> None:
        """Count one user less, and stop the engine after the last."""
        with self._lock:
            self._users[file] -= 1
            if not self._users[file]:
                self._engine().release_server(str(file))

    @staticmethod
    def _engine() -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it imports a package that is deprecated
                from milvus_lite.server_manager import server_manager_instance
        except ModuleNotFoundError as error:
            raise ValueError(
                f"an index in a file of Milvus needs {error.name}: "
                "pip install 'pymilvus<2.7' milvus-lite==2.5.1 'setuptools<81'"
            ) from error
        return server_manager_instance


_LITE = Lite()


def connect(address: Address, timeout: float) -> MilvusClient:
    """Connect to a server, or start Milvus Lite; undone by `disconnect`."""
    if address.file is None:
        return _connect(address, min(timeout, LONGEST_CONNECTING))
    _LITE.take(address.file)
    with on_error(lambda: _LITE.give_back(Path(address.server))):
        # It is there, but on a busy machine it may be long in answering.
        return _connect(address, timeout, grpc_options=_NO_PINGS)


def _connect(address: Address, timeout: float, **options: Any) -> MilvusClient:
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
            f"{address.shown}: cannot reach the server ({first_line(_words(error))}); check that "
            "it runs there, and the user, the password and the database"
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
            raise no_such_index(place) from error
        if code == _UNREACHABLE or isinstance(code, grpc.StatusCode):
            raise connection_lost(place, _words(error)) from error
        raise server_failed(place, _words(error)) from error


def _words(error: Any) -> str:
    return str(error.message if isinstance(error, MilvusException) else error.details())
