"""Serving faults: kill the server and remove its files; answers must stay the same.

The server only reads: it searches for uploaded images and does not store them. Images that another
process adds while the server runs must persist, and searches must return the same answers.
"""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import httpx

from bitprint.data import draw_shapes
from bitprint.methods import create
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.web.collection import key_of
from soak.encoding import write_images
from soak.processes import Child, run_command
from soak.rounds import FaultKind, Round, check

_SIDE = 16
_CLIENTS = 3
_ADDED = 4
_PATIENCE = 120.0


class ServingFaults(FaultKind):
    """Each round kills the server and starts a new one."""

    name = "serving"

    def prepare(self) -> None:
        """Create a collection and start a server."""
        self._path, self._album = self.folder / "photos.bp", self.folder / "album"
        self._album.mkdir()
        hasher = create("itq", bits=32).fit(draw_shapes(40, size=_SIDE))
        Photos.create(self._path, Encoder(hasher)).close()
        self._images: dict[str, bytes] = {}
        """Added images by path; some of the files are deleted later."""
        self._starts = 0
        self._add_images()
        self._start()

    def inject(self) -> Round:
        """Add images and remove files under load, kill the server, restart and search again."""
        chosen = self.rng.sample(sorted(self._images), _CLIENTS)
        clients = [_Client(self._url, path, self._images[path]) for path in chosen]
        added = self._add_images()
        check_found(self._url, added[0], self._images[added[0]])
        self._lose_image(self.rng.choice(added))
        time.sleep(self.rng.uniform(0, 0.5))
        check(self._server.kill(), "the server ended before it was killed")
        answers = sum(client.stop() for client in clients)
        check("Traceback" not in self._log.read_text(), f"a traceback: {self._log.read_text()}")
        with Photos.open(self._path) as photos:
            stored = set(photos.index.ids().tolist())
        check(stored == set(self._images), "the index does not contain exactly the added images")
        self._start()
        for path in chosen:
            check_found(self._url, path, self._images[path])
        self._lose_index()
        return Round(faults=3, checked=answers + len(stored) + len(chosen))

    def close(self) -> None:
        """Stop the server."""
        self._server.kill()

    def _start(self) -> None:
        self._starts += 1
        self._log = self.folder / f"log-{self._starts}.txt"
        arguments = ["serve", str(self._path), "--port", "0"]
        self._server = Child(run_command, arguments, self._log)
        deadline = time.monotonic() + _PATIENCE
        while not (found := re.search(r"serving on (http://\S+)/\n", _text_of(self._log))):
            check(time.monotonic() < deadline, f"the server did not start: {_text_of(self._log)}")
            time.sleep(0.05)
        self._url = found[1]

    def _add_images(self) -> list[str]:
        """Generate images, and add them to the collection in this process."""
        folder = self._album / f"{self._starts}"
        paths = write_images(folder, _ADDED, self.rng)
        with Photos.open(self._path) as photos:
            photos.add(folder)
        self._images |= {str(path): path.read_bytes() for path in paths}
        return [str(path) for path in paths]

    def _lose_image(self, path: str) -> None:
        """Delete or truncate an image; the server must return status 404."""
        if self.rng.random() < 0.5:
            Path(path).unlink()
        else:
            Path(path).write_bytes(self._images[path][:100])
        answer = httpx.get(f"{self._url}/api/thumbnail/{key_of(path)}", timeout=_PATIENCE)
        check(answer.status_code == 404, f"status {answer.status_code} for a lost image")
        check(answer.json() == {"detail": "there is no such photo"}, f"unclear: {answer.text}")

    def _lose_index(self) -> None:
        """Move the index away while the server runs, and back; no traceback may be shown."""
        hidden = self.folder / "hidden"
        hidden.mkdir(exist_ok=True)
        parts = list(self.folder.glob("photos.bp*"))
        for part in parts:
            part.rename(hidden / part.name)
        path = self.rng.choice(sorted(self._images))
        answer = search(self._url, self._images[path])
        check(answer.status_code in (200, 503), f"status {answer.status_code} without an index")
        log = self.folder / "log-lost.txt"
        command = Child(run_command, ["index", "info", str(self._path)], log)
        check(command.wait() == 1, "a command succeeded without an index")
        check("no such index" in _text_of(log), f"unclear error: {_text_of(log)}")
        log.unlink()
        for part in parts:
            (hidden / part.name).rename(part)
        check_found(self._url, path, self._images[path])


class _Client(threading.Thread):
    """Repeats the same search until the server is gone."""

    def __init__(self, url: str, path: str, image: bytes) -> None:
        super().__init__(daemon=True)
        self._arguments = url, path, image
        self._answers = 0
        self._violation: Exception | None = None
        self.start()

    def run(self) -> None:
        """Search in a loop and count the answers."""
        try:
            while True:
                check_found(*self._arguments)
                self._answers += 1
        except httpx.TransportError:
            return
        except Exception as error:
            self._violation = error

    def stop(self) -> int:
        """Wait for the end of the thread; return the number of answers, or raise its error."""
        self.join(_PATIENCE)
        if self._violation is not None:
            raise self._violation
        return self._answers


def check_found(url: str, path: str, image: bytes) -> None:
    """Search for an image of the collection, and check that it is found."""
    answer = search(url, image)
    check(answer.status_code == 200, f"{answer.status_code}: {answer.text}")
    nearest = {hit["id"] for hit in answer.json()["results"] if hit["distance"] == 0}
    check(key_of(path) in nearest, f"{path} was added but is not found")


def search(url: str, image: bytes) -> httpx.Response:
    """Upload an image to search for."""
    files = {"picture": ("a.png", image, "image/png")}
    return httpx.post(f"{url}/api/search", files=files, timeout=_PATIENCE)


def _text_of(log: Path) -> str:
    return log.read_text() if log.exists() else ""
