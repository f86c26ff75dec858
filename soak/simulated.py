"""A simulated disk: replays a trace of writes, and loses what was not synced."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_SECTOR = 512  # bytes that a disk writes completely or not at all
_HEADER = struct.Struct("<cQQQII")

Choose = Callable[[], bool]
"""Decides whether an operation that was not synced is on disk."""

Lose = Callable[[], Choose]
"""Returns the decision for one file or folder."""


def everything() -> Choose:
    """Lose nothing."""
    return lambda: True


def losing(rng: random.Random) -> Lose:
    """Lose nothing, everything or a part of each file and folder."""

    def lose() -> Choose:
        share = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        return lambda: rng.random() < share

    return lose


class Operation(NamedTuple):
    """One record of the trace, see `trace.c`."""

    kind: str
    first: int
    second: int
    third: int
    data: bytes
    name: str


def read_trace(path: Path) -> Iterator[Operation]:
    """Yield the operations of a trace."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        kind, first, second, third, size, more = _HEADER.unpack_from(content, at)
        at += _HEADER.size
        data, name = content[at : at + size], content[at + size : at + size + more]
        at += size + more
        yield Operation(kind.decode(), first, second, third, data, name.decode())


@dataclass
class File:
    """A file: its content on disk, and the writes and changes of size since its last sync."""

    synced: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self, is_on_disk: Choose) -> bytearray:
        """Return the content after a power failure; each sector is on disk or not."""
        content = bytearray(self.synced)
        for place, data in self.waiting:
            if data is None:
                if is_on_disk():
                    _resize(content, place)
                continue
            for start in range(place - place % _SECTOR, place + len(data), _SECTOR):
                if is_on_disk():
                    first = max(start, place)
                    part = data[first - place : start + _SECTOR - place]
                    _resize(content, max(len(content), first + len(part)))
                    content[first : first + len(part)] = part
        return content

    def sync(self) -> None:
        """Write everything to disk."""
        self.synced = self.content(everything())
        self.waiting = []


@dataclass
class Folder:
    """A folder: its names on disk, and their changes since its last sync."""

    synced: dict[str, File | Folder] = field(default_factory=dict)
    waiting: list[tuple[str | None, str | None, File | Folder | None]] = field(default_factory=list)
    """Old name, new name and what has the new name; a name is None if there is none."""

    def names(self, is_on_disk: Choose) -> dict[str, File | Folder]:
        """Return the names after a power failure."""
        names = dict(self.synced)
        for old, new, named in self.waiting:
            if is_on_disk():
                if old is not None:
                    names.pop(old, None)
                if new is not None and named is not None:
                    names[new] = named
        return names

    def sync(self) -> None:
        """Write everything to disk."""
        self.synced = self.names(everything())
        self.waiting = []


class Disk:
    """A disk with one folder, to which a trace is applied."""

    def __init__(self, root: Path) -> None:
        self.root = Folder()
        self._found: dict[int, File | Folder] = {root.stat().st_ino: self.root}

    def apply(self, operation: Operation) -> None:
        """Apply one operation; only a sync writes to disk."""
        kind, first, second, third, data, name = operation
        if kind == "W":
            self._file(first).waiting.append((second, data))
        elif kind == "T":
            self._file(first).waiting.append((second, None))
        elif kind == "S":
            self._found[first].sync()
        elif kind in "NM":  # the number of a deleted file may be used again
            self._found[second] = File() if kind == "N" else Folder()
            self._name(first, None, data.decode(), second)
        elif kind == "L":
            self._name(first, None, data.decode(), second)
        elif kind == "U":
            self._name(first, data.decode(), None, None)
        elif first == second:
            self._name(first, data.decode(), name, third)
        else:
            self._name(first, data.decode(), None, None)
            self._name(second, None, name, third)

    def write(self, target: Path, lose: Lose) -> None:
        """Write what is left after a power failure into a new folder."""
        _write(self.root, target, lose)

    def _file(self, number: int) -> File:
        found = self._found[number]
        assert isinstance(found, File)
        return found

    def _name(self, folder: int, old: str | None, new: str | None, file: int | None) -> None:
        if folder == 0:
            return
        if folder not in self._found or isinstance(self._found[folder], File):
            raise AssertionError(f"the trace changes names in an unknown folder: {old or new}")
        place = self._found[folder]
        assert isinstance(place, Folder)
        place.waiting.append((old, new, None if file is None else self._found[file]))


def _write(folder: Folder, target: Path, lose: Lose) -> None:
    target.mkdir()
    for name, found in folder.names(lose()).items():
        if isinstance(found, Folder):
            _write(found, target / name, lose)
        else:
            (target / name).write_bytes(found.content(lose()))


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content.extend(bytes(size - len(content)))
