"""Measure how long honest clients wait for the server beside many slow ones.

Example: `python -m soak.slow_clients --clients 1000 --seconds 30`

The server is a process of its own. All clients have the same address. A slow client connects again
when the server has closed its connection. The honest clients search by code, search by photo and
load photos in turns, each request on a new connection. The exit code is 1 if one of their requests
fails, or if their 99th percentile is above a second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from PIL import Image

from bitprint.data import draw_shapes
from bitprint.methods import create
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.web.collection import key_of

_HONEST = 4
_LARGE = 1500, 2000  # height and width of the photo that slow clients do not read: 9 MB
_SLOWEST = 1.0  # seconds
_PATIENCE = 120.0
_PAUSE = 1.0  # until a slow client connects again
_UNREAD = 10.0  # until a client closes a connection from which it does not read
_PAUSE_OF_HONEST = 0.05
_SETTLING = 5.0  # until the slow clients are connected

KINDS = ("half headers", "half bodies", "half uploads", "unread responses")


class Result(NamedTuple):
    """Requests of the honest clients, and the memory of the server."""

    seconds: list[float]
    """Duration of each request."""
    failures: list[str]
    memory: int
    """Largest memory of the server in bytes (resident set)."""

    def percentile(self, q: float) -> float:
        """Return a percentile of the durations in seconds."""
        return float(np.percentile(self.seconds, q))

    @property
    def is_good(self) -> bool:
        """Whether all requests were answered, and nearly all of them quickly."""
        return bool(self.seconds) and not self.failures and self.percentile(99) < _SLOWEST


class Server:
    """A running `bitprint serve` with a collection of drawn photos.

    Parameters
    ----------
    folder : Path
        An empty folder for the collection.
    """

    def __init__(self, folder: Path) -> None:
        album = folder / "album"
        album.mkdir()
        self.photos = [album / f"{number}.png" for number in range(20)]
        scenes = draw_shapes(len(self.photos), size=200)
        for path, pixels in zip(self.photos, scenes.pixels, strict=True):
            Image.fromarray(pixels).save(path)
        self.large = album / "large.bmp"
        noise = np.random.default_rng(0).integers(0, 256, (*_LARGE, 3), np.uint8)
        Image.fromarray(noise).save(self.large)
        hasher = create("itq", bits=48).fit(draw_shapes(60, size=24))
        with Photos.create(folder / "photos.bp", Encoder(hasher)) as photos:
            photos.add(album)
        self._errors = (folder / "errors.txt").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bitprint", "serve", str(folder / "photos.bp"), "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        found = re.fullmatch(r"serving on http://127\.0\.0\.1:(\d+)/\n", first)
        if found is None:
            raise OSError(f"the server did not start: {Path(self._errors.name).read_text()}")
        self.port = int(found[1])

    @property
    def log(self) -> str:
        """The messages of the server."""
        return Path(self._errors.name).read_text()

    def memory(self) -> int:
        """Return the current memory of the server and its children in bytes (resident set)."""
        process = Path(f"/proc/{self._process.pid}")
        lists = [_read_proc(path) for path in process.glob("task/*/children")]
        sizes = [
            _read_proc(Path(f"/proc/{one}/statm"))
            for one in (process.name, *(child for children in lists for child in children.split()))
        ]
        return sum(int(size.split()[1]) for size in sizes if size) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> float:
        """Stop the server; return the seconds until it has stopped."""
        started = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(_PATIENCE)
        if code:
            raise AssertionError(f"exit code {code}: {self.log}")
        return time.perf_counter() - started


def _read_proc(path: Path) -> str:
    """Return the contents of a file in /proc; empty if its process or thread has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def slow_request(kind: str, server: Server) -> bytes:
    """Return what a slow client of a kind sends."""
    host = "Host: 127.0.0.1\r\n"
    if kind == "half headers":
        return f"GET /health HTTP/1.1\r\n{host}".encode()
    if kind == "unread responses":
        return f"GET /api/picture/{key_of(str(server.large))} HTTP/1.1\r\n{host}\r\n".encode()
    is_form = kind == "half uploads"
    content = "multipart/form-data; boundary=x" if is_form else "application/json"
    head = f"POST /api/search HTTP/1.1\r\n{host}Content-Type: {content}\r\n"
    if not is_form:
        return f'{head}Content-Length: 60000\r\n\r\n{{"code": "'.encode()
    part = '--x\r\nContent-Disposition: form-data; name="picture"; filename="a.png"\r\n\r\n'
    return f"{head}Content-Length: 20000000\r\n\r\n{part}".encode() + bytes(200_000)


async def _be_slow(port: int, request: bytes, reads: bool) -> None:
    """Send a request, wait until the server closes the connection, connect again; repeat."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as client:
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            try:
                await loop.sock_connect(client, ("127.0.0.1", port))
                await loop.sock_sendall(client, request)
                while reads and await loop.sock_recv(client, 4096):
                    pass
                if not reads:  # the end of the connection cannot be noticed
                    await asyncio.sleep(_UNREAD)
            except OSError:
                pass  # the server has closed the connection
        await asyncio.sleep(_PAUSE)


@contextmanager
def slow_clients(server: Server, kind: str, clients: int) -> Iterator[None]:
    """Run slow clients of a kind in a thread."""
    request, reads = slow_request(kind, server), kind != "unread responses"
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(_be_slow(server.port, request, reads)) for _ in range(clients)]
    thread = threading.Thread(target=loop.run_until_complete, args=(asyncio.wait(tasks),))
    thread.start()
    try:
        yield
    finally:
        for task in tasks:
            loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


class _Honest(threading.Thread):
    """Sends requests in turns, each on a new connection, until it is stopped."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._ending = threading.Event()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        """Send each request at least once, and record durations and failures."""
        photo = self._server.photos[0]
        key, large = key_of(str(photo)), key_of(str(self._server.large))
        requests: list[dict[str, Any]] = [
            {"method": "POST", "url": "/api/search", "json": {"code": "00" * 6}},
            {"method": "GET", "url": f"/api/thumbnail/{key}"},
            {"method": "POST", "url": "/api/search", "files": {"picture": photo.read_bytes()}},
            {"method": "GET", "url": f"/api/picture/{large}"},
        ]
        address = f"http://127.0.0.1:{self._server.port}"
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(base_url=address, limits=limits, timeout=_PATIENCE) as client:
            for request in itertools.cycle(requests):
                started = time.perf_counter()
                try:
                    answer = client.request(**request)
                    if answer.status_code != 200:
                        self.failures.append(f"{answer.status_code}: {answer.text}")
                except httpx.TransportError as error:
                    self.failures.append(repr(error))
                self.seconds.append(time.perf_counter() - started)
                if self._ending.wait(_PAUSE_OF_HONEST) and len(self.seconds) >= len(requests):
                    return

    def stop(self) -> None:
        """Wait for the last response."""
        self._ending.set()
        self.join()


def measure(server: Server, kind: str | None, clients: int, seconds: float) -> Result:
    """Send requests of honest clients beside slow ones, or alone if `kind` is None."""
    with ExitStack() as stack:
        if kind is not None:
            stack.enter_context(slow_clients(server, kind, clients))
            time.sleep(min(seconds, _SETTLING))
        honest = [_Honest(server) for _ in range(_HONEST)]
        for one in honest:
            one.start()
        memory = 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            memory = max(memory, server.memory())
            time.sleep(0.05)
        for one in honest:
            one.stop()
    durations = [duration for one in honest for duration in one.seconds]
    failures = [failure for one in honest for failure in one.failures]
    return Result(durations, failures, memory)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak.slow_clients", description=__doc__)
    parser.add_argument("--clients", type=int, default=1000, help="slow clients (default: 1000)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each kind (default: 30)")
    parser.add_argument("--only", nargs="+", choices=KINDS, help="only these kinds")
    given = parser.parse_args(arguments)
    good = True
    with tempfile.TemporaryDirectory(prefix="bitprint-slow-") as folder:
        server = Server(Path(folder))
        print(
            f"{'slow clients':<18}{'requests':>9}{'failed':>8}{'p50 ms':>8}{'p99 ms':>8}{'MiB':>6}"
        )
        for kind in given.only or (None, *KINDS):
            result = measure(server, kind, given.clients, given.seconds)
            good &= result.is_good
            row = [len(result.seconds), len(result.failures)]
            row += [round(1000 * result.percentile(q)) for q in (50, 99)]
            cells = "".join(f"{n:>{w}}" for n, w in zip(row, (9, 8, 8, 8), strict=True))
            print(f"{kind or 'none':<18}{cells}{result.memory >> 20:>6}", flush=True)
            for failure in sorted(set(result.failures))[:3]:
                print(f"  {failure}")
        lines = len(server.log.splitlines())
        print(f"stopped in {server.stop():.1f} s; {lines} lines in the log")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
