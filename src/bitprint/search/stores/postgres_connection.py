"""Connections to PostgreSQL: a small pool, and errors in one sentence."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors

from bitprint.search.closing import on_error
from bitprint.search.errors import is_closed, no_such_index
from bitprint.search.stores.postgres_address import Address
from bitprint.search.stores.servers import (
    LONGEST_CONNECTING,
    connection_lost,
    first_line,
    server_failed,
)

_MOST_CONNECTIONS = 8

Connection = psycopg.Connection[Any]


class Connections:
    """A few connections that threads share; each belongs to one thread for the time of a call.

    Parameters
    ----------
    address : Address
    timeout : float
        Seconds to wait for a lock, and at most for the server to answer.
    """

    def __init__(self, address: Address, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._mine = threading.local()  # the connection of this thread's transaction
        self._closed = False

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside of `transaction`."""
        return getattr(self._mine, "connection", None) is not None

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Lend a connection: that of this thread's transaction, if it is inside of one."""
        if self.in_transaction:
            with _explained(self.address.shown, self._mine.connection):
                yield self._mine.connection
            return
        with self._slots:
            connection = self._take()
            try:
                with _explained(self.address.shown, connection):
                    yield connection
            finally:
                self._give(connection)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Lend a connection, and make what is done with it one; inside of another, a part of it."""
        with self.use() as connection:
            outer = getattr(self._mine, "connection", None)
            self._mine.connection = connection
            try:
                with connection.transaction():
                    yield connection
            finally:
                self._mine.connection = outer

    def close(self) -> None:
        """Close what is idle now, and the rest when it comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> Connection:
        while True:
            with self._lock:
                if self._closed:
                    raise is_closed(self.address.shown)
                if not self._idle:
                    break
                connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()
        return self._connect()

    def _give(self, connection: Connection) -> None:
        with self._lock:
            idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            kept = idle and not self._closed
            if kept:
                self._idle.append(connection)
        if not kept:
            connection.close()

    def _connect(self) -> Connection:
        patience = max(1, int(min(self._timeout, LONGEST_CONNECTING)))
        parameters = {"connect_timeout": patience, **self.address.parameters}
        milliseconds = str(max(1, int(1000 * self._timeout)))
        try:
            connection = psycopg.connect(
                **parameters | {"client_encoding": "utf8"}, autocommit=True, prepare_threshold=None
            )
            with on_error(connection.close):
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                connection.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds,))
        except psycopg.Error as error:
            reason = _reason(error)
            answered = "FATAL" in reason
            raise ConnectionError(
                f"{self.address.shown}: "
                + ("the server refused the connection" if answered else "cannot reach the server")
                + f" ({reason}); check "
                + (
                    "the user, the password and the database"
                    if answered
                    else "that it runs there, and the options of the address"
                )
            ) from None  # the error knows the password
        return connection


def _is_quiet(connection: Connection) -> bool:
    """Whether a server has sent nothing unasked: the last thing it sends is that it goes away."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return not selector.select(timeout=0)


@contextmanager
def _explained(place: str, connection: Connection) -> Iterator[None]:
    """Turn errors of the server into built-in ones that say what to do."""
    try:
        yield
    except errors.LockNotAvailable as error:
        raise TimeoutError(
            f"{place}: another writer holds the index; try again when it is done"
        ) from error
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise no_such_index(place) from error
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
        raise PermissionError(
            f"{place}: the server does not allow this ({_reason(error)}); connect as a user who "
            "may, to a server that takes changes"
        ) from error
    except errors.ProgramLimitExceeded as error:
        raise ValueError(
            f"{place}: too long for PostgreSQL ({_reason(error)}); shorten the labels"
        ) from error
    except (psycopg.OperationalError, psycopg.ProgrammingError, psycopg.InternalError) as error:
        if connection.closed:
            raise connection_lost(place, _reason(error)) from error
        raise server_failed(place, _reason(error)) from error


def _reason(error: psycopg.Error) -> str:
    return first_line(str(error)).removeprefix("connection failed: ")
