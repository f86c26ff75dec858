"""Limits on requests: bytes, pixels, seconds, connections and queue lengths."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_RESULTS = 1000
OVERLOADED = "the server is overloaded; try again in a second"
RETRY = {"Retry-After": "1"}
MOST_HEADER_BYTES = 2**15
"""Maximum size of a request line and its headers."""
HEADER_TOO_LARGE = f"the header is larger than {MOST_HEADER_BYTES >> 10} KiB"

_FORM, _JSON, _OTHER = "multipart/form-data", "application/json", "other"


@dataclass(frozen=True)
class Limits:
    """Limits on the requests to a server.

    Parameters
    ----------
    upload_bytes : int
        Maximum size of a form with an image.
    json_bytes : int
        Maximum size of other request bodies.
    received_bytes : int
        Maximum total size of the request bodies that are being received or processed, at least
        `upload_bytes`.
    pixels : int
        Maximum size (width x height) of decoded images.
    seconds : float
        Maximum time until the header of a request has arrived, from then until the body has arrived
        and the response has started, and until the client has read a part of the response.
    waiting : int
        Maximum number of queued jobs of each kind (decoding, encoding, searching), and of received
        but unanswered searches by form and by JSON.
    connections : int
        Maximum number of simultaneous connections that wait for their clients, and of received but
        unanswered requests other than searches.
    connections_per_address : int
        Maximum number of connections of one IP address that wait for the client. A browser has at
        most 6 for all its tabs; a reverse proxy has one for each request in progress.

    Examples
    --------
    >>> Limits(upload_bytes=5 * 2**20).pixels
    64000000
    """

    upload_bytes: int = 20 * 2**20
    json_bytes: int = 64 * 2**10
    received_bytes: int = 256 * 2**20
    pixels: int = 64_000_000
    seconds: float = 30.0
    waiting: int = 128
    connections: int = 2048
    connections_per_address: int = 1024

    def __post_init__(self) -> None:
        if self.received_bytes < self.upload_bytes:
            raise ValueError(
                f"received_bytes is {self.received_bytes:,}, less than upload_bytes "
                f"({self.upload_bytes:,}); choose several times upload_bytes"
            )


class _Request:
    """State of one request."""

    def __init__(self, kind: str, seconds: float) -> None:
        self.kind = kind
        self.clock = asyncio.timeout(seconds)
        self.bytes = 0
        self.refused = False
        self.arrived = False
        self.answering = False


class BoundedRequests:
    """Middleware that limits the size, duration and number of requests.

    Searches are counted after their bodies have arrived, so that slow clients do not block others.
    They are counted per content type, so that searches by code are possible while uploads are
    queued. If the bodies of all requests are too large in total, the one that has been arriving for
    longest is refused.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._unanswered: Counter[str] = Counter()
        self._bytes = 0
        # Requests whose bodies are arriving, oldest first.
        self._arriving: dict[_Request, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        kind = _kind_of(headers)
        fault = self._find_fault(scope, headers, kind)
        if fault is not None:
            await _reject(*fault, scope, receive, send)
            return
        request = _Request(kind, self._limits.seconds)

        async def counted_receive() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not request.arrived:
                self._count(request, message)
            return message

        async def watched_send(message: Message) -> None:
            if not request.answering:
                # Sending may take longer, such as a large file over a slow network.
                request.clock.reschedule(None)
                request.answering = True
                self._unanswered[kind] -= request.arrived
            await send(message)

        try:
            if scope["method"] != "POST":
                self._arrive(request)
            async with request.clock:
                await self._app(scope, counted_receive, watched_send)
        except (TimeoutError, HTTPException) as error:
            if request.answering:
                raise
            await _reject(*self._explain(request, error), scope, receive, send)
        finally:
            self._release(request)
            self._unanswered[kind] -= request.arrived and not request.answering

    def _find_fault(
        self, scope: Scope, headers: dict[bytes, bytes], kind: str
    ) -> tuple[int, str] | None:
        """Return status and reason if a request is refused because of its header."""
        size = len(scope.get("raw_path") or b"") + len(scope.get("query_string", b""))
        size += sum(len(name) + len(value) + 4 for name, value in scope["headers"])
        if size > MOST_HEADER_BYTES:
            return 431, HEADER_TOO_LARGE
        announced = headers.get(b"content-length", b"")
        if announced and b"transfer-encoding" in headers:
            return 400, "the request has both Content-Length and Transfer-Encoding; send only one"
        most = self._most_bytes(kind)
        if announced.isdigit() and int(announced) > most:
            return 413, _too_large(most)
        return None

    def _most_bytes(self, kind: str) -> int:
        return self._limits.upload_bytes if kind == _FORM else self._limits.json_bytes

    def _count(self, request: _Request, message: Message) -> None:
        """Count the bytes of a message, and the request if it is the last one."""
        size = len(message.get("body", b""))
        request.bytes += size
        self._bytes += size
        if request.bytes > (most := self._most_bytes(request.kind)):
            raise HTTPException(413, _too_large(most))
        self._arriving[request] = None
        while self._bytes > self._limits.received_bytes:
            slowest = next(iter(self._arriving))
            if slowest is request:
                raise HTTPException(503, OVERLOADED, RETRY)
            self._release(slowest)
            if not slowest.clock.expired():
                slowest.refused = True
                slowest.clock.reschedule(0)
        if not message.get("more_body", False):
            self._arrive(request)

    def _arrive(self, request: _Request) -> None:
        """Count a request that has arrived; raise HTTPException if there are too many."""
        self._arriving.pop(request, None)
        limits = self._limits
        most = limits.connections if request.kind == _OTHER else limits.waiting
        if self._unanswered[request.kind] >= most:
            raise HTTPException(503, OVERLOADED, RETRY)
        request.arrived = True
        self._unanswered[request.kind] += 1

    def _release(self, request: _Request) -> None:
        """Do not count the bytes of a request any longer."""
        self._arriving.pop(request, None)
        self._bytes -= request.bytes
        request.bytes = 0

    def _explain(self, request: _Request, error: Exception) -> tuple[int, str]:
        """Return status and reason for a request that was stopped."""
        if isinstance(error, HTTPException):
            return error.status_code, error.detail
        if request.refused:
            return 503, OVERLOADED
        seconds = f"{self._limits.seconds:g} seconds"
        if request.arrived:
            return 503, f"the response took longer than {seconds}; try again later"
        return 408, f"the request did not arrive within {seconds}"


def _kind_of(headers: dict[bytes, bytes]) -> str:
    """Return the content type of a request for counting."""
    given = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    return next((kind for kind in (_FORM, _JSON) if given == kind.encode()), _OTHER)


def _text_of(size: int) -> str:
    """Return a number of bytes as text."""
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB"


def _too_large(most: int) -> str:
    return f"the body is larger than {_text_of(most)}; send a smaller one"


async def _reject(status: int, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
    # The rest of the body is not read, so the connection cannot be reused.
    headers = {"Connection": "close"} | (RETRY if status == 503 else {})
    await JSONResponse({"detail": detail}, status, headers)(scope, receive, send)
