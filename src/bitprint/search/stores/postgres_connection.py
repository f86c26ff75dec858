"""Connections to PostgreSQL: the address of an index, a small pool, and errors in one sentence."""

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

_DEFAULT_INDEX = "bitprint"
_LONGEST_NAME = 63  # PostgreSQL cuts longer ones off, silently
_MOST_CONNECTIONS = 8
_LONGEST_CONNECTING = 10.0
_SECRETS = ("password", "secret", "key")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Address:
    """Where an index is."""

    parameters: dict[str, Any] = field(repr=False)
    """What libpq connects with, the password included."""
    index: str
    """The name of the index, which is that of a schema in the database."""
    shown: str
    """The address as it may be shown."""


def parse_address(uri: str) -> Address:
    """Split `postgresql://user:password@host/database?index=NAME`.

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
        parameters = {"dbname": "@"}
    ports = str(parameters.get("port", "")).replace(",", "")
    places = f"{parameters.get('host', '')}{parameters.get('dbname', '')}"
    if "@" in places or (ports and not ports.isdecimal()):
        # The reason could name a part of the password, and so could the cause.
        raise ValueError(
            "the address of the database is not postgresql://user:password@host/database; write "
            "signs such as @ and / in a password as %40 and %2F"
        ) from None
    index = _check_name(unquote(chosen[-1].removeprefix("index="))) if chosen else _DEFAULT_INDEX
    return Address(parameters, index, _shown(parameters, index))


def _check_name(name: str) -> str:
    if not 1 <= len(name.encode("utf-8", "replace")) <= _LONGEST_NAME or not name.isprintable():
        raise ValueError(
            f"the name of an index has 1 to {_LONGEST_NAME} bytes that can be printed, got {name!r}"
        )
    if name.startswith("pg_"):
        raise ValueError(f"names like {name!r} belong to PostgreSQL; call the index otherwise")
    return name


def _shown(parameters: dict[str, Any], index: str) -> str:
    """Write an address without its secrets."""
    left = {name: str(value) for name, value in parameters.items()}
    user = f"{quote(left.pop('user'), safe='')}@" if "user" in left else ""
    database = quote(left.pop("dbname", ""), safe="")
    host = ""
    if not {"/", ","} & set(left.get("host", "/")):  # neither a socket nor several servers
        host = left.pop("host")
        host = f"[{host}]" if ":" in host else host
        host += f":{left.pop('port')}" if "port" in left else ""
    if index != _DEFAULT_INDEX:
        left["index"] = index
    options = "&".join(
        f"{name}={quote(value, safe='/')}"
        for name, value in left.items()
        if not any(word in name for word in _SECRETS)
    )
    return f"postgresql://{user}{host}/{database}" + (f"?{options}" if options else "")


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
                    raise ValueError(f"{self.address.shown}: the index is closed; open it again")
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
        patience = max(1, int(min(self._timeout, _LONGEST_CONNECTING)))
        parameters = {"connect_timeout": patience, **self.address.parameters}
        milliseconds = str(max(1, int(1000 * self._timeout)))
        try:
            connection = psycopg.connect(
                **parameters | {"client_encoding": "utf8"}, autocommit=True, prepare_threshold=None
            )
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds,))
        except psycopg.OperationalError as error:
            reason = _reason(error)
            answered = "FATAL" in reason
            raise ConnectionError(
                f"{self.address.shown}: "
                + ("the server refused the connection" if answered else "cannot reach the server")
                + f" ({reason}); check "
                + ("the user, the password and the database" if answered else "that it runs there")
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
        raise FileNotFoundError(f"{place}: no such index; create it first") from error
    except (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction) as error:
        raise PermissionError(
            f"{place}: the server does not allow this ({_reason(error)}); connect as a user who "
            "may, to a server that takes changes"
        ) from error
    except errors.ProgramLimitExceeded as error:
        raise ValueError(
            f"{place}: too long for PostgreSQL ({_reason(error)}); shorten the labels"
        ) from error
    except psycopg.OperationalError as error:
        if connection.closed:
            raise ConnectionError(
                f"{place}: the connection was lost ({_reason(error)}), and nothing is half done; "
                "try again"
            ) from error
        raise OSError(
            f"{place}: the server failed ({_reason(error)}), so nothing of this call was stored; "
            "see to the server and try again"
        ) from error


def _reason(error: psycopg.Error) -> str:
    """The first line of an error."""
    return str(error).strip().partition("\n")[0].removeprefix("connection failed: ")
