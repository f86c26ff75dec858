"""Access control and security headers."""

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

HEADERS = {
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
    """Middleware that adds security headers to all responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request and add the headers to its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


class AccessControl:
    """Middleware that checks the host name or, if there is one, the token; and the origin.

    A hostile site can resolve its own name to 127.0.0.1 to read responses of a local server (DNS
    rebinding). Its requests have that host name and are rejected. With a token, all host names are
    accepted, because a hostile site does not have the token.

    A hostile site can also make a browser send requests to the server without reading the
    responses. Browsers mark such requests by the headers Sec-Fetch-Site and Origin. They are
    rejected unless they contain the token in the header Authorization, which other sites cannot
    send; a cookie is not enough, because browsers add it themselves. Only the page can be requested
    from anywhere, so that links to it work.

    Parameters
    ----------
    app : ASGI application
    token : str or None
        Required for everything except the page, its static files, /health and /openapi.json, either
        in the header `Authorization: Bearer TOKEN` or in a cookie (for images in browsers).
    names : collection of str
        Host names of the server in addition to localhost and numeric addresses.
    """

    def __init__(self, app: ASGIApp, token: str | None, names: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._names = {name.lower() for name in names if not _is_local_or_numeric(name.lower())}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle or reject a request."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = None
            if self._token is None and not self._is_own_name(headers.get("host", "")):
                detail = "the server does not accept this host name; use its numeric address"
                refusal = JSONResponse({"detail": detail}, 421)
            elif self._token is not None and not self._is_authorized(scope["path"], headers):
                detail = "token required: send the header Authorization: Bearer TOKEN"
                refusal = JSONResponse({"detail": detail}, 401, {"WWW-Authenticate": "Bearer"})
            elif (
                scope["path"] != "/" and self._is_foreign(headers) and not self._has_token(headers)
            ):
                detail = "the request comes from another website; open the page of this server"
                refusal = JSONResponse({"detail": detail}, 403)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_own_name(self, host: str) -> bool:
        name = host.partition("]")[0].lstrip("[") if host.startswith("[") else host.split(":")[0]
        return name.lower() in self._names or _is_local_or_numeric(name.lower())

    def _is_foreign(self, headers: Headers) -> bool:
        """Return whether a browser sent the request for a page of another origin.

        Browsers send Sec-Fetch-Site to localhost and over HTTPS. Elsewhere they send Origin, except
        with GET. A reverse proxy may replace the host name, but then --name contains the original.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None:
            return site not in ("same-origin", "none")
        if origin is None:
            return False
        place = origin.lower().partition("://")[2]
        return place != headers.get("host", "").lower() and place not in self._names

    def _is_authorized(self, path: str, headers: Headers) -> bool:
        if path in ("/", "/health", "/openapi.json") or path.startswith("/static/"):
            return True
        cookie = unquote(cookie_parser(headers.get("cookie", "")).get(COOKIE, "")).encode()
        return self._has_token(headers) or self._is_token(cookie)

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self._is_token(rest.strip().encode("latin-1"))

    def _is_token(self, given: bytes) -> bool:
        return self._token is not None and secrets.compare_digest(given, self._token.encode())


def _is_local_or_numeric(name: str) -> bool:
    """Return whether a host name cannot belong to a hostile site."""
    if name == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
