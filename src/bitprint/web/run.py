"""Running the application: uvicorn, set up for a private network."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from bitprint.web.limits import Limits

_MOST_HEADER_BYTES = 1 << 15
_BACKLOG = 1024
_HIGHEST_PORT = 65535


class _Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            # All that was loaded stays: going through it again and again in search of garbage
            # would stop every request for 0.2 s.
            gc.collect()
            gc.freeze()
            self._ready()


def listen(host: str, port: int) -> socket.socket:
    """Open the socket to serve on; port 0 takes a free one.

    Raises
    ------
    ValueError
        If there is no such address or port, or the port is in use.

    Examples
    --------
    >>> with listen("127.0.0.1", 0) as listener:
    ...     host, port = listener.getsockname()
    >>> host, port > 0
    ('127.0.0.1', True)
    """
    if not 0 <= port <= _HIGHEST_PORT:  # a larger one would wrap around
        raise ValueError(f"there is no port {port}: choose one from 0 to {_HIGHEST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        # Made with its protocol named, or asyncio would not turn off the delay of small packets:
        # 40 ms in every answer.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise ValueError(
            f"cannot listen on {host} port {port} ({error.strerror}); choose another --port"
        ) from error
    return listener


def make_server(app: FastAPI, limits: Limits, ready: Callable[[], None]) -> uvicorn.Server:
    """Make the server of an application.

    Parameters
    ----------
    app : FastAPI
        As `create_app` makes it.
    limits : Limits
        Those of the application.
    ready : callable
        Called once everything is loaded and requests are answered.

    Returns
    -------
    uvicorn.Server
        Its `run(sockets=[listener])` serves until it is interrupted or `should_exit` is set.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> from bitprint.web import Collection, create_app
    >>> limits = Limits(connections=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=48) as index:
    ...         app = create_app(Collection(index), limits=limits)
    ...         server = make_server(app, limits, ready=lambda: print("serving"))
    >>> server.config.limit_concurrency
    100
    >>> server.run(sockets=[listen("127.0.0.1", 8000)])  # doctest: +SKIP
    serving
    """
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=limits.connections,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        timeout_graceful_shutdown=5,
    )
    return _Announcing(config, ready)
