"""Serving: the server is killed while it answers, and loses its files; answers stay the same.

The server only reads: pictures that are sent to it are searched for, not stored. What must outlive
it are the pictures that another process added while it ran, and the answers that it gave.
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
from soak.encoding import draw_pictures
from soak.rounds import Kind, Round, check
from soak.victims import Victim, run_command

_SIDE = 16
_CLIENTS = 3
_ADDED = 4
_PATIENCE = 120.0


class Serving(Kind):
    """The server that a round starts is the one that the next round kills."""

    name = "serving"

    def prepare(self) -> None:
        """Make a collection of no pictures, and serve it."""
        self._path, self._album = self.folder / "photos.bp", self.folder / "album"
        self._album.mkdir()
        hasher = create("itq", bits=32).fit(draw_shapes(40, size=_SIDE))
        Photos.create(self._path, Encoder(hasher)).close()
        self._pictures: dict[str, bytes] = {}
        """What was acknowledged, by path; the files of some are gone."""
        self._starts = 0
        self._add_pictures()
        self._start()

    def strike(self) -> Round:
        """Add pictures and remove files while clients ask; kill the server, and ask again."""
        chosen = self.rng.sample(sorted(self._pictures), _CLIENTS)
        clients = [_Client(self._url, path, self._pictures[path]) for path in chosen]
        added = self._add_pictures()
        ask(self._url, added[0], self._pictures[added[0]])
        self._lose_a_picture(self.rng.choice(added))
        time.sleep(self.rng.uniform(0, 0.5))
        check(self._server.kill(), "the server ended by itself")
        answers = sum(client.stop() for client in clients)
        check("Traceback" not in self._log.read_text(), f"a trace: {self._log.read_text()}")
        with Photos.open(self._path) as photos:
            held = set(photos.index.ids().tolist())
        check(held == set(self._pictures), "the index does not hold the pictures that were added")
        self._start()
        for path in chosen:
            ask(self._url, path, self._pictures[path])
        self._lose_the_index()
        return Round(faults=3, checked=answers + len(held) + len(chosen))

    def close(self) -> None:
        """Stop the server."""
        self._server.kill()

    def _start(self) -> None:
        self._starts += 1
        self._log = self.folder / f"log-{self._starts}.txt"
        arguments = ["serve", str(self._path), "--port", "0"]
        self._server = Victim(run_command, arguments, self._log)
        deadline = time.monotonic() + _PATIENCE
        while not (found := re.search(r"serving on (http://\S+)/\n", _text_of(self._log))):
            check(time.monotonic() < deadline, f"the server did not start: {_text_of(self._log)}")
            time.sleep(0.05)
        self._url = found[1]

    def _add_pictures(self) -> list[str]:
        """Draw pictures, and add them in this process; what returned is acknowledged."""
        folder = self._album / f"{self._starts}"
        paths = draw_pictures(folder, _ADDED, self.rng)
        with Photos.open(self._path) as photos:
            photos.add(folder)
        self._pictures |= {str(path): path.read_bytes() for path in paths}
        return [str(path) for path in paths]

    def _lose_a_picture(self, path: str) -> None:
        """Delete a picture, or cut it in half; the server says that there is none."""
        if self.rng.random() < 0.5:
            Path(path).unlink()
        else:
            Path(path).write_bytes(self._pictures[path][:100])
        answer = httpx.get(f"{self._url}/api/thumbnail/{key_of(path)}", timeout=_PATIENCE)
        check(answer.status_code == 404, f"{answer.status_code} for a picture that is lost")
        check(answer.json() == {"detail": "there is no such picture"}, f"not clear: {answer.text}")

    def _lose_the_index(self) -> None:
        """Move the index away under the server, and back; nobody is told a trace."""
        hidden = self.folder / "hidden"
        hidden.mkdir(exist_ok=True)
        parts = list(self.folder.glob("photos.bp*"))
        for part in parts:
            part.rename(hidden / part.name)
        path = self.rng.choice(sorted(self._pictures))
        answer = post(self._url, self._pictures[path])
        check(answer.status_code in (200, 503), f"{answer.status_code} without an index")
        log = self.folder / "log-lost.txt"
        late = Victim(run_command, ["index", "info", str(self._path)], log)
        check(late.ended() == 1, "a command took an index that is not there")
        check("no such index" in _text_of(log), f"not a clear word: {_text_of(log)}")
        log.unlink()
        for part in parts:
            (hidden / part.name).rename(part)
        ask(self._url, path, self._pictures[path])


class _Client(threading.Thread):
    """Asks the same again and again, until the server is gone."""

    def __init__(self, url: str, path: str, picture: bytes) -> None:
        super().__init__(daemon=True)
        self._arguments = url, path, picture
        self._answers = 0
        self._violation: Exception | None = None
        self.start()

    def run(self) -> None:
        """Count the answers."""
        try:
            while True:
                ask(*self._arguments)
                self._answers += 1
        except httpx.TransportError:
            return
        except Exception as error:
            self._violation = error

    def stop(self) -> int:
        """Wait for the end; return how many answers there were, or raise what was wrong."""
        self.join(_PATIENCE)
        if self._violation is not None:
            raise self._violation
        return self._answers


def ask(url: str, path: str, picture: bytes) -> None:
    """Search for a picture that the collection holds, and check that it is found."""
    answer = post(url, picture)
    check(answer.status_code == 200, f"{answer.status_code}: {answer.text}")
    nearest = {hit["id"] for hit in answer.json()["results"] if hit["distance"] == 0}
    check(key_of(path) in nearest, f"{path} was added, and is not found")


def post(url: str, picture: bytes) -> httpx.Response:
    """Send a picture to search for."""
    files = {"picture": ("a.png", picture, "image/png")}
    return httpx.post(f"{url}/api/search", files=files, timeout=_PATIENCE)


def _text_of(log: Path) -> str:
    return log.read_text() if log.exists() else ""
