"""What a request may cost: bytes, pixels and seconds, and how many may wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_RESULTS = 1000
OVERLOADED = "too many requests wait already; try again in a second"
RETRY = {"Retry-After": "1"}


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Parameters
    ----------
    upload_bytes : int
        The largest body of a request.
    pixels : int
        The largest picture, width times height, that is ever decoded.
    seconds : float
        The time in which a request must have arrived and its answer begun.
    waiting : int
        How many jobs of one kind (decoding, encoding, searching) may wait, and how many requests
        with bodies of one type that have arrived may be without an answer.
    connections : int
        How many connections are served at a time.

    Examples
    --------
    >>> Limits(upload_bytes=5 * 2**20).pixels
    64000000
    """

    upload_bytes: int = 20 * 2**20
    pixels: int = 64_000_000
    seconds: float = 30.0
    waiting: int = 128
    connections: int = 1024


class BoundedRequests:
    """Middleware: refuses bodies that are too large, requests that take too long, and too many.

    A request counts from when it has arrived, so that slow clients take no room from others, and
    among those of its type, so that codes are searched for while pictures wait.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._unanswered: Counter[bytes] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, its body counted and its time measured."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._limits.upload_bytes
        headers = dict(scope["headers"])
        announced = headers.get(b"content-length", b"")
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if announced.isdigit() and int(announced) > most:
            await _refuse(413, _too_large(most), scope, receive, send)
            return
        bytes_received, arrived, answering = 0, False, False

        async def counted_receive() -> Message:
            nonlocal bytes_received, arrived
            message = await receive()
            bytes_received += len(message.get("body", b""))
            if bytes_received > most:
                raise HTTPException(413, _too_large(most))
            if not arrived and not message.get("more_body", False):
                if self._unanswered[kind] >= self._limits.waiting:
                    raise HTTPException(503, OVERLOADED, RETRY)
                arrived = True
                self._unanswered[kind] += 1
            return message

        async def watched_send(message: Message) -> None:
            nonlocal answering
            if not answering:
                # From here on it is the client's own time: a large picture over a slow network.
                answering = True
                clock.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self._limits.seconds) as clock:
                await self._app(scope, counted_receive, watched_send)
        except TimeoutError:
            if answering:
                raise
            seconds = f"{self._limits.seconds:g} seconds"
            if arrived:
                detail = f"the answer took longer than {seconds}; try again later"
                await _refuse(503, detail, scope, receive, send)
            else:
                detail = f"the request did not arrive within {seconds}"
                await _refuse(408, detail, scope, receive, send)
        finally:
            self._unanswered[kind] -= arrived
            self._unanswered += Counter()  # forgets types of which there is none


def _too_large(most: int) -> str:
    return f"the upload is larger than {most / 2**20:g} MiB; send a smaller picture"


async def _refuse(status: int, detail: str, scope: Scope, receive: Receive, send: Send) -> None:
    # What is left of the body stays unread, so the connection cannot serve another request.
    headers = {"Connection": "close"} | (RETRY if status == 503 else {})
    await JSONResponse({"detail": detail}, status, headers)(scope, receive, send)
