"""Middleware for HEAD requests."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadRequests:
    """Answer HEAD like GET, with the same status and headers and without a body.

    It must be the outermost middleware, so that the checks for GET also apply to HEAD.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; send only the status and headers in response to HEAD."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                # End the response here, so that image files are not read.
                await send({"type": "http.response.body"})

        await self._app({**scope, "method": "GET"}, receive, send_head)
