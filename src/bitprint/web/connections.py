"""HTTP connections with deadlines, and limits on their number.

uvicorn has no limit on the time in which a request header arrives or a client reads a response: its
only timeout applies between requests. Its `limit_concurrency` refuses the requests of everybody
while slow clients keep the connections, and `h11_max_incomplete_event_size` does not apply to a
header that arrives at once. ASGI middleware cannot help, because it is called after the header has
arrived, and does not see whether a client reads. Therefore `Connection` extends uvicorn's protocol,
which knows the state of the request (in `h11`) and of the write buffer. A layer in front of uvicorn
would have to parse HTTP a second time.

If new connections were refused at the limit, slow clients could lock out all others. Instead, the
connection that has waited for its client longest is closed. A connection does not wait for its
client while the server processes its request; `BoundedRequests` limits the number of those.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import Counter
from enum import Enum
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from bitprint.web.limits import HEADER_TOO_LARGE, OVERLOADED, RETRY, Limits
from bitprint.web.security import HEADERS

_MOST_AT_ONCE = 1 << 16
"""Bytes that asyncio reads from a connection before it reads from the next one."""

_log = logging.getLogger("bitprint.web")


class Wait(Enum):
    """What a connection waits for."""

    HEADER = "the header of the next request"
    BODY = "the rest of a request; BoundedRequests limits the time"
    REMAINDER = "the rest of a request that was refused early, which is discarded"
    READER = "the client, which has not read the response"


class Connections(ServerState):
    """The connections of a server, from which the slowest is closed if there are too many.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.limits = limits
        self.most = limits.connections
        """Maximum number of connections."""
        self._open: Counter[str] = Counter()
        # Ordered by the time since when they wait.
        self._waiting: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Add a connection; at a limit, close the one that has waited longest."""
        address = connection.address
        self._open[address] += 1
        slowest = None
        if self._open[address] > self.limits.connections_per_address:
            slowest = next((one for one in self._waiting if one.address == address), None)
        elif self._open.total() > self.most:
            # One of the address with the most connections.
            slowest = max(self._waiting, key=lambda one: self._open[one.address], default=None)
        if slowest is not None:
            _log.warning("too many connections: closed the slowest one, from %s", slowest.address)
            self.remove(slowest)
            slowest.give_up(HTTPStatus.SERVICE_UNAVAILABLE, OVERLOADED)

    def remove(self, connection: Connection) -> None:
        """Remove a connection unless it has been removed."""
        self._waiting.pop(connection, None)
        if connection.is_counted:
            connection.is_counted = False
            self._open[connection.address] -= 1
            self._open += Counter()  # removes addresses with count 0

    def note(self, connection: Connection) -> None:
        """Note since when a connection waits for its client, or that it does not."""
        self._waiting.pop(connection, None)
        if connection.wait is not None and connection.is_counted:
            self._waiting[connection] = None


class Connection(H11Protocol):
    """One connection; it is closed if its client keeps it waiting for too long."""

    server_state: Connections
    wait: Wait | None = None
    """What it waits for, or None while its request is processed."""
    is_counted = True
    _deadline: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        """The IP address of the client or proxy."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection."""
        super().connection_made(transport)
        # asyncio calls pause_writing as soon as the client is slower than the server.
        transport.set_write_buffer_limits(high=0)
        transport.max_size = _MOST_AT_ONCE  # type: ignore[attr-defined]
        self.server_state.add(self)
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        super().connection_lost(exc)
        self.server_state.remove(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        """Wait for the client, which does not read as fast as the server writes."""
        super().pause_writing()
        self._update()

    def resume_writing(self) -> None:
        """Continue after the client has read everything."""
        super().resume_writing()
        self._update()

    def send_400_response(self, msg: str) -> None:
        """Refuse an invalid request; uvicorn calls this while it handles the error of h11."""
        status = HTTPStatus(getattr(sys.exc_info()[1], "error_status_hint", 400))
        reason = "the request is not valid HTTP"
        if status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            reason = HEADER_TOO_LARGE
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(status, reason)
        else:
            self.transport.abort()

    def give_up(self, status: HTTPStatus, reason: str) -> None:
        """Close the connection, with a response if a part of a header has arrived."""
        has_begun = self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]
        if has_begun and not self.flow.write_paused:
            self._refuse(status, reason)
        else:
            self.transport.abort()

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        body = json.dumps({"detail": reason}).encode()
        headers = HEADERS | {"Content-Type": "application/json", "Connection": "close"}
        headers |= {"Content-Length": str(len(body))}
        headers |= RETRY if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
        start = h11.Response(
            status_code=status, headers=list(headers.items()), reason=status.phrase.encode()
        )
        for event in (start, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _update(self) -> None:
        """Start a new deadline if the connection waits for something else than before."""
        wait = self._find_wait()
        if wait is self.wait:
            return
        self.wait = wait
        self.server_state.note(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if wait is not None and wait is not Wait.BODY:
            self._deadline = self.loop.call_later(self.server_state.limits.seconds, self._expire)

    def _find_wait(self) -> Wait | None:
        if self.flow.write_paused:
            return Wait.READER
        if self.conn.their_state is h11.IDLE:
            return Wait.HEADER
        if self.conn.their_state is h11.SEND_BODY:
            return Wait.REMAINDER if self.cycle.response_complete else Wait.BODY
        return None

    def _expire(self) -> None:
        seconds = f"{self.server_state.limits.seconds:g} seconds"
        reason = f"the request did not arrive within {seconds}"
        self.give_up(HTTPStatus.REQUEST_TIMEOUT, reason)
