"""Who may ask, and what a browser may do with the answers."""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Collection
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "bitprint-token"

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeaders:
    """Middleware: every answer forbids foreign scripts, frames and guessed content types."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on and add the headers to its answer."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Access:
    """Middleware: answers only to names of this server and, if there is one, to the token.

    A page of a hostile site can point its own name at 127.0.0.1 and then read what a server there
    answers; its requests carry that name, and are refused. With a token any name will do, for no
    such page knows the token.

    Parameters
    ----------
    app : ASGI application
    token : str or None
        Needed for everything but the page itself, its parts, /health and /openapi.json: in the
        header `Authorization: Bearer TOKEN`, or in a cookie, where browsers load pictures.
    names : collection of str
        Names of the server besides localhost and numeric addresses.
    """

    def __init__(self, app: ASGIApp, token: str | None, names: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = None
            if self._token is None and not self._is_own_name(headers.get("host", "")):
                detail = "this server does not answer to that host name; use its numeric address"
                refusal = JSONResponse({"detail": detail}, 421)
            elif self._token is not None and not self._may_ask(scope["path"], headers):
                detail = "a token is needed: send the header Authorization: Bearer TOKEN"
                refusal = JSONResponse({"detail": detail}, 401, {"WWW-Authenticate": "Bearer"})
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_own_name(self, host: str) -> bool:
        name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.split(":")[0]
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _may_ask(self, path: str, headers: Headers) -> bool:
        if path in ("/", "/health", "/openapi.json") or path.startswith("/static/"):
            return True
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            given = rest.strip().encode("latin-1")
        else:
            given = unquote(cookie_parser(headers.get("cookie", "")).get(COOKIE, "")).encode()
        assert self._token is not None
        return secrets.compare_digest(given, self._token.encode())
