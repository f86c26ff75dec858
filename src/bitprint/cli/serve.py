"""`bitprint serve`."""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer

from bitprint.cli._shared import IndexArgument, note, say

_NETWORK, _LIMITS = "Network", "Limits"


def serve(
    index: IndexArgument,
    host: Annotated[
        str, typer.Option(help="address to listen on", rich_help_panel=_NETWORK)
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            help="port to listen on; 0 selects a free port",
            rich_help_panel=_NETWORK,
        ),
    ] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="BITPRINT_TOKEN",
            help="access token that clients must send",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="additional host name of this server; can be repeated",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    max_megabytes: Annotated[
        int, typer.Option(min=1, help="maximum size of an upload in MiB", rich_help_panel=_LIMITS)
    ] = 20,
    max_megapixels: Annotated[
        int,
        typer.Option(
            min=1, help="maximum size of an image in million pixels", rich_help_panel=_LIMITS
        ),
    ] = 64,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, help="maximum duration of a request in seconds", rich_help_panel=_LIMITS
        ),
    ] = 30.0,
) -> None:
    """Serve an index as a web page and an HTTP API for search by image."""
    try:
        from bitprint.web import Collection, Limits, create_app, listen, make_server
    except ImportError as error:
        raise ValueError(str(error)) from error
    if token == "":
        raise ValueError("the token is empty; give --token a value or omit the option")
    listener = listen(host, port)
    upload_bytes = max_megabytes * 2**20
    limits = Limits(
        upload_bytes=upload_bytes,
        received_bytes=max(Limits.received_bytes, 4 * upload_bytes),
        pixels=max_megapixels * 10**6,
        seconds=timeout,
    )
    collection = Collection.open(index)
    names = [host, socket.gethostname(), *(name or [])]
    app = create_app(collection, token=token, limits=limits, names=names)
    address, chosen_port = listener.getsockname()[:2]
    if token is None and not ipaddress.ip_address(address).is_loopback:
        note(
            "every computer that can connect to this address can see the images; "
            "use --token to restrict access",
            style="yellow",
        )
    url = f"http://{f'[{address}]' if ':' in address else address}:{chosen_port}/"
    codes = collection.index
    note(f"loading {codes.path}: {len(codes):,} codes of {codes.bits} bits")
    server = make_server(app, limits, lambda: say(f"serving on {url}"))
    with collection.index, suppress(KeyboardInterrupt), _interrupt_on_sigterm():
        server.run(sockets=[listener])


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C.

    After it has stopped, uvicorn raises the signal again. By default, SIGTERM would then end the
    process before the index is closed.
    """
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
