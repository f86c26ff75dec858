"""Answers to HEAD, by which link checkers and proxies ask whether something is there."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Middleware: answers HEAD as it would GET, with the same status and headers, and no body.

    It is the outermost, so that HEAD passes every check that GET does.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; of the answer to HEAD only its beginning comes back."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # Ended here, before the body is there: a picture is then not read to its end.
                await send({"type": "http.response.body"})

        await self._app({**scope, "method": "GET"}, receive, send_head)
