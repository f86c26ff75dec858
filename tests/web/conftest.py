"""A small collection of drawn images, some with unusual names, and its server."""

import asyncio
import os
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from web_pictures import as_file

pytest.importorskip("fastapi", reason="the server needs pip install .[serve]")

from fastapi.testclient import TestClient

from bitprint.data import ImageSet, draw_shapes
from bitprint.methods import create
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.web import Collection, Limits, create_app, listen, make_server

BITS = 64
ODD_NAMES = [
    "a space & <img onerror=alert(1)>.png",
    'quote".png',
    "new\nline.png",
    "ünï #?%2e.png",
    os.fsdecode(b"latin \xe9.png"),
]


@pytest.fixture(scope="session")
def scenes():
    """Return 40 drawn images of 24 x 24 pixels."""
    return draw_shapes(40, size=24, seed=1).pixels


@pytest.fixture(scope="session")
def folder(tmp_path_factory, scenes):
    """Write the images to `odd` and `even`, those with unusual names to the top folder."""
    root = tmp_path_factory.mktemp("pictures") / "holidays"
    for number, pixels in enumerate(scenes):
        place = root / ("odd" if number % 2 else "even")
        place.mkdir(parents=True, exist_ok=True)
        path = root / ODD_NAMES[number] if number < len(ODD_NAMES) else place / f"{number}.png"
        path.write_bytes(as_file(pixels))
    return root


@pytest.fixture(scope="session")
def photos_file(tmp_path_factory, folder, scenes):
    path = tmp_path_factory.mktemp("index") / "photos.bp"
    encoder = Encoder(create("itq", bits=BITS).fit(ImageSet(scenes)))
    with Photos.create(path, encoder) as photos:
        assert photos.add(folder).new == len(scenes)
    return path


@pytest.fixture(scope="session")
def collection(photos_file):
    collection = Collection.open(photos_file)
    yield collection
    collection.index.close()


@pytest.fixture(scope="session")
def client(collection):
    limits = Limits(upload_bytes=200_000, pixels=1_000_000)
    with TestClient(create_app(collection, limits=limits), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def codes_file(tmp_path):
    """Create an index of codes with integer ids and without a model."""
    from bitprint.codes import Codes
    from bitprint.search.index import Index

    packed = np.random.default_rng(0).integers(0, 256, (50, 2), np.uint8) & [255, 240]
    with Index.create(tmp_path / "codes.bp", bits=12) as index:
        index.add(range(50), Codes(packed.astype(np.uint8), 12))
    return tmp_path / "codes.bp"


@contextmanager
def running(collection, **options):
    """Run a server on a free local port; yield its address."""
    limits = options.get("limits", Limits())
    listener = listen("127.0.0.1", 0)
    ready = threading.Event()
    server = make_server(create_app(collection, **options), limits, ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not ready.wait(0.1):
        assert thread.is_alive()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(600)
    assert not thread.is_alive()


@pytest.fixture(scope="session")
def serve():
    return running


class Clock:
    """The clock of all event loops, which a test advances."""

    def __init__(self):
        self.ahead = 0.0

    def advance(self, seconds):
        """Let deadlines expire; a server notices it within 0.1 seconds."""
        self.ahead += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    now = lambda loop: time.monotonic() + clock.ahead  # noqa: E731
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", now)
    return clock
