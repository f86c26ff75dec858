"""Connections to PostgreSQL: addresses, a small pool, transactions and errors."""

from __future__ import annotations

import selectors
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

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

_FORM = "postgresql://user:password@host/database"
_LONGEST_NAME = 63  # PostgreSQL truncates longer names without an error
_SECRETS = ("password", "secret", "key")
_MOST_CONNECTIONS = 8

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class PostgresAddress:
    """The address of an index on PostgreSQL."""

    parameters: dict[str, Any] = field(repr=False)
    """The connection parameters of libpq, with the password."""
    index: str
    """The name of the index and of its schema in the database."""
    shown: str
    """The address without secrets."""


def parse_address(uri: str) -> PostgresAddress:
    """Parse `postgresql://user:password@host/database?index=NAME`.

    Examples
    --------
    >>> address = parse_address("postgresql://me:secret@db.example/photos?index=cats")
    >>> address.index, address.shown
    ('cats', 'postgresql://me@db.example/photos?index=cats')
    """
    base, _, query = uri.partition("?")
    options = [option for option in query.split("&") if option]
    chosen = [option for option in options if option.startswith("index=")]
    others = [option for option in options if option not in chosen]
    try:
        parameters: dict[str, Any] = dict(conninfo_to_dict("?".join([base, "&".join(others)])))
    except psycopg.ProgrammingError:
        raise wrong_address(_FORM) from None
    ports = str(parameters.get("port", "")).replace(",", "")
    places = f"{parameters.get('host', '')}{parameters.get('dbname', '')}"
    if "@" in places or (ports and not ports.isdecimal()):
        raise wrong_address(_FORM)
    index = _check_name(unquote(chosen[-1].removeprefix("index="))) if chosen else DEFAULT_INDEX
    return PostgresAddress(parameters, index, _shown(parameters, index))


def _check_name(name: str) -> str:
    if not 1 <= len(name.encode("utf-8", "replace")) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"the name of an index must have 1 to {_LONGEST_NAME} printable bytes, got {name!r}"
        )
    if name.startswith("pg_"):
        raise ValueError(f"PostgreSQL reserves names such as {name!r}; choose another name")
    return name


def _shown(parameters: dict[str, Any], index: str) -> str:
    """Return an address without its secrets."""
    left = {name: str(value) for name, value in parameters.items()}
    user = f"{quote(left.pop('user'), safe='')}@" if "user" in left else ""
    database = quote(left.pop("dbname", ""), safe="")
    host = ""
    if not {"/", ","} & set(left.get("host", "/")):  # neither a socket nor several servers
        host = left.pop("host")
        host = f"[{host}]" if ":" in host else host
        host += f":{left.pop('port')}" if "port" in left else ""
    if index != DEFAULT_INDEX:
        left["index"] = index
    options = "&".join(
        f"{name}={quote(value, safe='/')}"
        for name, value in left.items()
        if not any(word in name for word in _SECRETS)
    )
    return f"postgresql://{user}{host}/{database}" + (f"?{options}" if options else "")


class Connections:
    """A small pool of connections; each call of a thread uses one.

    Parameters
    ----------
    address : PostgresAddress
    timeout : float
        Maximum seconds to wait for a lock, and for a connection.
    """

    def __init__(self, address: PostgresAddress, timeout: float) -> None:
        self.address = address
        self._timeout = timeout
        self._idle: list[Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._local = threading.local()  # the connection of this thread's transaction
        self._closed = False

    @property
    def in_transaction(self) -> bool:
        """Whether this thread is inside `transaction`."""
        return getattr(self._local, "connection", None) is not None

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """Lend a connection for a call; inside a transaction, use a savepoint of its connection."""
        if self.in_transaction:
            connection = self._local.connection
            with _explained(self.address.shown, connection), _atomic(connection):
                yield connection
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
        """Lend a connection and commit at the end; inside a transaction, use a savepoint."""
        with self.use() as connection:
            if self.in_transaction:
                yield connection
                return
            self._local.connection = connection
            try:
                with _atomic(connection):
                    yield connection
            finally:
                self._local.connection = None

    def close(self) -> None:
        """Close idle connections now, and the others when their calls end."""
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
            if "FATAL" in reason:
                problem, advice = "the server refused the connection", "the user, the password and"
                advice += " the database"
            else:
                problem, advice = "cannot reach the server", "that it is running, and the options"
                advice += " of the address"
            raise ConnectionError(
                f"{self.address.shown}: {problem} ({reason}); check {advice}"
            ) from None  # the error contains the password
        return connection


def _is_quiet(connection: Connection) -> bool:
    """Return whether the server has sent nothing, such as the message that it shuts down."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection.fileno(), selectors.EVENT_READ)
        return not selector.select(timeout=0)


@contextmanager
def _atomic(connection: Connection) -> Iterator[None]:
    """Begin a transaction, or a savepoint inside one; undo it if an error is raised."""
    with connection.transaction():
        yield
    if connection.closed:  # psycopg ignores it here if the caller caught the error
        raise psycopg.OperationalError("the transaction was undone")


@contextmanager
def _explained(place: str, connection: Connection) -> Iterator[None]:
    """Turn errors of the server into built-in errors of one sentence."""
    try:
        yield
    except errors.LockNotAvailable as error:
        raise TimeoutError(
            f"{place}: another process is writing to this index; try again when it has finished"
        ) from error
    except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
        raise no_such_index(place) from error
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
        raise PermissionError(
            f"{place}: the server does not allow this ({_reason(error)}); connect as a user with "
            "more rights, to a server that accepts writes"
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
