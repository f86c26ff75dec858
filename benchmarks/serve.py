"""Measure the speed of the server for code queries, also under overload.

    python benchmarks/serve.py --codes 1000000 --clients 32

The server runs in one process and the clients in another, on the loopback interface. Each client
sends the next query after the response to the previous one, or one second later if the query was
refused. The last run has far more clients than the queue of the server allows.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import multiprocessing
import socket
import tempfile
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from bitprint.codes import Codes
from bitprint.search.index import Index
from bitprint.web import Collection, Limits, create_app, listen, make_server

BITS = 64
FIELDS = [
    "codes",
    "clients",
    "waiting",
    "per_second",
    "p50_ms",
    "p99_ms",
    "refused",
    "refused_p99_ms",
]

Responses = list[tuple[int, float]]
"""Status and duration of each response."""


def make_index(path: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    with Index.create(path, bits=BITS) as index:
        for first in range(0, count, 1 << 18):
            size = min(1 << 18, count - first)
            packed = rng.integers(0, 256, (size, BITS // 8), np.uint8)
            index.add(np.arange(first, first + size), Codes(packed, BITS))


def serve(path: str, listener: socket.socket, waiting: int, ready: Event) -> None:
    limits = Limits(waiting=waiting, connections=100_000, connections_per_address=100_000)
    app = create_app(Collection.open(path), limits=limits)
    make_server(app, limits, ready.set).run(sockets=[listener])


async def client(port: int, seed: int, k: int, until: float, responses: Responses) -> None:
    """Send queries over one connection; record the status and duration of each response."""
    rng = np.random.default_rng(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < until:
        body = f'{{"code": "{rng.bytes(BITS // 8).hex()}", "k": {k}}}'
        head = (
            "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        started = time.perf_counter()
        writer.write((head + body).encode())
        response = await reader.readuntil(b"\r\n\r\n")
        fields = response.decode("latin-1").lower().split("\r\n")
        length = next(int(f.split(":")[1]) for f in fields if f.startswith("content-length:"))
        await reader.readexactly(length)
        status = int(fields[0].split()[1])
        responses.append((status, time.perf_counter() - started))
        if status == 503:
            await asyncio.sleep(1.0)  # the value of Retry-After
    writer.close()


async def all_clients(port: int, clients: int, k: int, seconds: float) -> Responses:
    responses: Responses = []
    until = time.perf_counter() + seconds
    await asyncio.gather(*(client(port, seed, k, until, responses) for seed in range(clients)))
    return responses


def measure(path: Path, clients: int, waiting: int, k: int, seconds: float) -> Responses:
    """Start a server in another process and send queries from this one."""
    context = multiprocessing.get_context("spawn")
    listener = listen("127.0.0.1", 0)
    ready = context.Event()
    server = context.Process(target=serve, args=(str(path), listener, waiting, ready), daemon=True)
    server.start()
    try:
        if not ready.wait(300):
            raise OSError("the server did not start within 5 minutes")
        port = listener.getsockname()[1]
        asyncio.run(all_clients(port, clients, k, seconds=1.0))
        return asyncio.run(all_clients(port, clients, k, seconds))
    finally:
        server.terminate()
        server.join()


def percentile(seconds: list[float], share: float) -> float:
    return 1e3 * float(np.percentile(seconds, share)) if seconds else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--csv", type=Path, help="write the results to this file")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codes.bp"
        make_index(path, given.codes)
        for clients, waiting in ((1, 128), (given.clients, 128), (8 * given.clients, 32)):
            responses = measure(path, clients, waiting, given.k, given.seconds)
            served = [seconds for status, seconds in responses if status == 200]
            refused = [seconds for status, seconds in responses if status == 503]
            if len(served) + len(refused) != len(responses):
                raise ValueError(f"unexpected status: {sorted({s for s, _ in responses})}")
            values = (
                given.codes,
                clients,
                waiting,
                len(served) / given.seconds,
                percentile(served, 50),
                percentile(served, 99),
                len(refused) / len(responses),
                percentile(refused, 99),
            )
            rows.append(dict(zip(FIELDS, values, strict=True)))
            print(
                f"{given.codes:,} codes, {clients} clients, queue of {waiting}: "
                f"{values[3]:,.0f} responses/s, p50 {values[4]:.1f} ms, p99 {values[5]:.1f} ms; "
                f"{values[6]:.0%} refused, p99 of refusals {values[7]:.1f} ms",
                flush=True,
            )
    if given.csv:
        with given.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
