"""`bitprint serve`."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
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
            help="token that every request must contain",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="additional host name that clients may use; can be repeated",
            rich_help_panel=_NETWORK,
        ),
    ] = None,
    max_megabytes: Annotated[
        int, typer.Option(min=1, help="largest upload in MiB", rich_help_panel=_LIMITS)
    ] = 20,
    max_megapixels: Annotated[
        int,
        typer.Option(
            min=1, help="largest image to decode, in million pixels", rich_help_panel=_LIMITS
        ),
    ] = 64,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="seconds until a request fails", rich_help_panel=_LIMITS)
    ] = 30.0,
) -> None:
    """Start a web page and an HTTP interface for searching an index by example."""
    try:
        from bitprint.web import Collection, Limits, create_app, listen, make_server
    except ImportError as error:
        raise ValueError(str(error)) from error
    if token == "":
        raise ValueError("the token is empty; pass a text with --token, or leave the option out")
    listener = listen(host, port)
    limits = Limits(
        upload_bytes=max_megabytes * 2**20, pixels=max_megapixels * 10**6, seconds=timeout
    )
    collection = Collection.open(index)
    names = [host, socket.gethostname(), *(name or [])]
    app = create_app(collection, token=token, limits=limits, names=names)
    address, chosen_port = listener.getsockname()[:2]
    if token is None and not ipaddress.ip_address(address).is_loopback:
        note(
            "every computer that can reach this one can now see the images; "
            "use --token to restrict access",
            style="yellow",
        )
    url = f"http://{f'[{address}]' if ':' in address else address}:{chosen_port}/"
    what = (
        f"{collection.index.path}: {len(collection.index):,} codes of {collection.index.bits} bits"
    )
    note(f"loading {what}")
    server = make_server(app, limits, lambda: say(f"serving on {url}"))
    with collection.index, suppress(KeyboardInterrupt):  # Ctrl-C stops the server
        server.run(sockets=[listener])
