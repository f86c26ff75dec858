"""Measure the memory of the server over many requests.

Example: `python -m soak.memory --requests 100000`

Prints the memory of the server and its child processes (resident set) after each twentieth of the
requests: searches by code, by item and by photo, photos, thumbnails, the page, and requests that
are refused. The exit code is 1 if the memory in the second half is more than 5% larger than in the
first half, each at its maximum.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from bitprint.web.collection import key_of
from soak.slow_clients import Server

_CLIENTS = 4
_ROWS = 20
_GROWTH = 1.05
_PATIENCE = 120.0


def make_uploads() -> list[bytes]:
    """Return photos of 13 KB to 4 MB, up to 12 megapixels."""
    rng = np.random.default_rng(0)
    uploads = []
    for height, width in ((150, 200), (480, 640), (800, 1000), (2000, 3000), (3000, 4000)):
        noise = rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        for kind in ("JPEG", "PNG") if width <= 1000 else ("JPEG",):
            file = io.BytesIO()
            Image.fromarray(noise).resize((width, height)).save(file, kind)
            uploads.append(file.getvalue())
    return uploads


def draw_request(rng: random.Random, photos: list[Path], uploads: list[bytes]) -> dict[str, Any]:
    """Return a random request; most are valid."""
    photo = rng.choice(photos)
    if rng.random() < 0.5:
        os.utime(photo)  # as if it had been replaced, to fill the server's cache of thumbnails
    key = key_of(str(photo))
    code = {"code": rng.randbytes(6).hex(), "k": rng.choice([1, 24, 1000])}
    upload = {"picture": rng.choice(uploads)}
    post = {"method": "POST", "url": "/api/search"}
    get = {"method": "GET"}
    kinds: list[tuple[int, dict[str, Any]]] = [
        (20, post | {"json": code}),
        (10, post | {"json": {"id": key, "label": rng.choice(["", "album", "other"])}}),
        (15, post | {"files": upload}),
        (30, get | {"url": f"/api/thumbnail/{key}"}),
        (10, get | {"url": f"/api/picture/{key}"}),
        (3, get | {"url": rng.choice(["/", "/static/app.js", "/metrics", "/health"])}),
        (3, get | {"url": "/api/info"}),
        (3, get | {"url": f"/{rng.randbytes(20).hex()}"}),
        (3, post | {"content": rng.randbytes(1000)}),
        (3, get | {"url": "/", "headers": {"X-Long": "x" * 40_000}}),
    ]
    weights = [weight for weight, _ in kinds]
    _, request = rng.choices(kinds, weights)[0]
    return request


def send(server: Server, uploads: list[bytes], count: int, seed: int) -> Counter[int]:
    """Send random requests; return the number of responses by status."""
    rng = random.Random(seed)
    statuses: Counter[int] = Counter()
    address = f"http://127.0.0.1:{server.port}"
    with httpx.Client(base_url=address, timeout=_PATIENCE) as client:
        for _ in range(count):
            request = draw_request(rng, server.photos, uploads)
            statuses[client.request(**request).status_code] += 1
    return statuses


def send_all(server: Server, uploads: list[bytes], count: int, seed: int) -> Counter[int]:
    """Send random requests by several clients."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        share = count // _CLIENTS
        results = [pool.submit(send, server, uploads, share, seed + n) for n in range(_CLIENTS)]
        return sum((result.result() for result in results), Counter())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak.memory", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="(default: 100,000)")
    given = parser.parse_args(arguments)
    share = given.requests // _ROWS
    statuses: Counter[int] = Counter()
    memory = []
    uploads = make_uploads()
    with tempfile.TemporaryDirectory(prefix="bitprint-memory-") as folder:
        server = Server(Path(folder))
        print(f"{'requests':>9}{'MiB':>6}\n{0:>9}{server.memory() >> 20:>6}", flush=True)
        for row in range(1, _ROWS + 1):
            statuses += send_all(server, uploads, share, seed=row * _CLIENTS)
            memory.append(server.memory())
            print(f"{statuses.total():>9}{memory[-1] >> 20:>6}", flush=True)
        server.stop()
    print("responses by status:", dict(sorted(statuses.items())))
    first, second = max(memory[: _ROWS // 2]), max(memory[_ROWS // 2 :])
    print(f"maximum of the halves: {first >> 20} and {second >> 20} MiB")
    return 0 if second < _GROWTH * first else 1


if __name__ == "__main__":
    sys.exit(main())
