"""Run the application with uvicorn, configured for a private network."""

from __future__ import annotations

import gc
import resource
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from bitprint.web.connections import Connection, Connections
from bitprint.web.limits import MOST_HEADER_BYTES, Limits
from bitprint.web.logs import limited_logs

# A socket, a file of the collection or an upload, and as many of requests that are not counted
# as connections, because they do not wait for their clients.
_DESCRIPTORS_PER_CONNECTION = 4
_OTHER_DESCRIPTORS = 64
_BACKLOG = 1024
# asyncio accepts so many connections before it reads from others, so that a request is read before
# later connections displace its own.
_ACCEPTED_TOGETHER = 16
# The system would buffer megabytes for each client that does not read.
_SEND_BUFFER = 1 << 17
_HIGHEST_PORT = 65535


class _NotifyingServer(uvicorn.Server):
    server_state: Connections

    def __init__(self, config: uvicorn.Config, limits: Limits, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self.server_state = Connections(limits)
        self._ready = ready

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self.server_state.most = _allow_connections(self.server_state.most)
        with limited_logs():
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            for listener in sockets or []:
                listener.listen(_BACKLOG)  # uvicorn has set it to `_ACCEPTED_TOGETHER`
            # Loaded objects are never freed. Excluding them from garbage collection avoids pauses
            # of 0.2 s.
            gc.collect()
            gc.freeze()
            self._ready()


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; port 0 chooses a free port.

    Parameters
    ----------
    host : str
    port : int

    Returns
    -------
    socket

    Raises
    ------
    ValueError
        If the address or port is invalid, or the port is in use.

    Examples
    --------
    >>> with listen("127.0.0.1", 0) as listener:
    ...     host, port = listener.getsockname()
    >>> host, port > 0
    ('127.0.0.1', True)
    """
    if not 0 <= port <= _HIGHEST_PORT:  # a larger number would wrap around
        raise ValueError(f"invalid port {port}: choose one from 0 to {_HIGHEST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        # asyncio disables the delay of small packets (40 ms per response) only if the socket was
        # created with an explicit protocol.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
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
    """Create the server of an application.

    Parameters
    ----------
    app : FastAPI
        Returned by `create_app`.
    limits : Limits
        The limits of the application.
    ready : callable
        Called when the server is ready for requests.

    Returns
    -------
    uvicorn.Server
        `run(sockets=[listener])` serves until it is interrupted or `should_exit` is set.

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
    >>> server.server_state.most
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
        loop="asyncio",  # `Connection` and `_ACCEPTED_TOGETHER` depend on it
        http=Connection,
        ws="none",
        backlog=_ACCEPTED_TOGETHER,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
        timeout_graceful_shutdown=5,
    )
    return _NotifyingServer(config, limits, ready)


def _allow_connections(wanted: int) -> int:
    """Raise the limit on open files for a number of connections; return the number possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _OTHER_DESCRIPTORS + _DESCRIPTORS_PER_CONNECTION * wanted
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, (files - _OTHER_DESCRIPTORS) // _DESCRIPTORS_PER_CONNECTION)
