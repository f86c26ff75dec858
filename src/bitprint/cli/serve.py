"""`bitprint serve`."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress
from typing import Annotated

import typer

from bitprint.cli._shared import note, say


def serve(
    index: Annotated[
        str, typer.Argument(help="index file, as `bitprint index` makes it, or address of a store")
    ],
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="port to listen on; 0 takes a free one")
    ] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="BITPRINT_TOKEN", help="ask this of every request")
    ] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="another host name under which it is reached")
    ] = None,
    max_megabytes: Annotated[int, typer.Option(min=1, help="largest upload, in MiB")] = 20,
    max_megapixels: Annotated[int, typer.Option(min=1, help="largest picture decoded")] = 64,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds a request may take")] = 30.0,
) -> None:
    """Serve a page to search a collection by example, and its HTTP interface."""
    try:
        from bitprint.web import Collection, Limits, create_app, listen, make_server
    except ImportError as error:
        raise ValueError(str(error)) from error
    if token == "":
        raise ValueError("the token is empty; give one with --token, or none at all")
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
            "anybody who can reach this machine can now see the pictures; "
            "--token keeps strangers out",
            style="yellow",
        )
    url = f"http://{f'[{address}]' if ':' in address else address}:{chosen_port}/"
    what = (
        f"{collection.index.path}: {len(collection.index):,} codes of {collection.index.bits} bits"
    )
    note(f"loading {what}")
    server = make_server(app, limits, lambda: say(f"serving on {url}"))
    with collection.index, suppress(KeyboardInterrupt):  # which is how a person stops it
        server.run(sockets=[listener])
