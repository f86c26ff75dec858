"""An index file and its copy in memory, kept in step with each other and with other writers."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.search import attachments, chunks, details
from bitprint.search.checks import check_kind
from bitprint.search.closing import on_error
from bitprint.search.details import NOTHING, Item
from bitprint.search.errors import is_closed, no_such_id
from bitprint.search.file import Header, IndexFile
from bitprint.search.ids import Ids, Positions, kind_of
from bitprint.search.memory import Memory, View

_LABELS_KEPT = 8  # one bit per code each


class Mirror:
    """The only one that writes to an index file; memory follows by reading what was written.

    Every method takes the lock, so that threads may share it; views need no lock.
    """

    header: Header
    _memory: Memory
    _generation: int  # that of memory
    _changes: int  # what the file reported when memory was last brought in step
    _labels: dict[str, NDArray[np.uint8]]

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self._file = IndexFile(path, timeout)
        self._lock = threading.RLock()
        self._closed = False
        with on_error(self._file.close):
            self.header = self._file.header()
            self._forget()
            with self._reading():
                pass

    def close(self) -> None:
        """Close the file, once."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()

    def live(self) -> int:
        """Count the codes that are not removed."""
        with self._lock:
            self._refresh()
            return self.header.live

    def add(self, ids: Ids, packed: chunks.Packed, items: Sequence[Item] | None) -> None:
        """Append codes, and bury those whose ids they take over."""
        with self._lock, self._writing() as header:
            check_kind(self.path, header.kind, ids)
            replaced = self._memory.find(ids)
            replaced = replaced[replaced >= 0]
            chunks.append(self._file, header.total, packed, ids, items)
            self._bury(replaced)
            self._advance(
                kind=kind_of(ids),
                total=header.total + len(ids),
                live=header.live + len(ids) - len(replaced),
            )

    def remove(self, ids: Ids) -> None:
        """Bury codes."""
        with self._lock, self._writing() as header:
            positions = np.unique(self._positions(ids))
            self._bury(positions)
            self._advance(live=header.live - len(positions))

    def compact(self) -> None:
        """Rewrite the file without what is buried."""
        with self._lock:
            with self._writing() as header:
                chunks.rewrite(self._file, header, self._memory.chunks, self._memory.alive)
                self._advance(compacted=header.generation + 1, total=header.live)
            self._file.fold_log()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the calls inside one: all of them happen or, if anything is raised, none."""
        with self._lock:
            self._check_open()
            # Memory has followed what an error undoes.
            with on_error(self._forget), self._file.writing():
                yield

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Write attachments, or delete those that are None."""
        with self._lock, self._writing() as header:
            more = attachments.write(self._file.db, contents)
            self._advance(attached=header.attached + more)

    def attachments(self, prefix: str) -> dict[str, bytes]:
        """Read the attachments whose names begin with `prefix`."""
        with self._lock, self._reading():
            return attachments.read(self._file, self.header, prefix)

    def packed(self, ids: Ids) -> chunks.Packed:
        """Return the packed codes of ids."""
        with self._lock, self._reading():
            return self._memory.packed(self._positions(ids))

    def labels(self) -> list[str]:
        """Return the names of labels that codes carry, sorted."""
        with self._lock, self._reading():
            described = [chunk[:2] for chunk in self._memory.chunks if chunk.described]
            return sorted(details.names_in_use(self._file, described, self._memory.alive))

    def items(self, ids: Ids) -> list[Item]:
        """Read the paths and labels of ids."""
        with self._lock, self._reading():
            places = [(self._memory.chunk_at(p), p) for p in self._positions(ids).tolist()]
            described = [(chunk.first, p) for chunk, p in places if chunk.described]
            items = iter(details.read_at(self._file, described))
            return [next(items) if chunk.described else NOTHING for chunk, _ in places]

    def view(self, label: str | None) -> View:
        """Return the codes as of now, those without the label counting as removed."""
        with self._lock:
            if label is None:
                self._refresh()
                return self._memory.view()
            with self._reading():
                view = self._memory.view()
                alive = np.unpackbits(self._carriers(label), count=view.count)
                return replace(view, alive=alive if view.alive is None else alive & view.alive)

    def _carriers(self, label: str) -> NDArray[np.uint8]:
        """One bit per position, set where a code carries the label."""
        if label not in self._labels:
            described = [chunk[:2] for chunk in self._memory.chunks if chunk.described]
            flags = np.zeros(self._memory.count, np.uint8)
            flags[details.labelled(self._file, described, label)] = 1
            if len(self._labels) == _LABELS_KEPT:
                del self._labels[next(iter(self._labels))]
            self._labels[label] = np.packbits(flags)
        return self._labels[label]

    def _positions(self, ids: Ids) -> Positions:
        positions = (
            self._memory.find(ids)
            if kind_of(ids) == self.header.kind
            else np.full(len(ids), -1, np.int64)
        )
        if np.any(positions < 0):
            raise no_such_id(self.path, ids[positions < 0].tolist()[0])
        return positions

    def _bury(self, positions: Positions) -> None:
        if not len(positions):
            return
        removed = 1 - self._memory.alive
        removed[positions] = 1
        firsts = np.array([chunk.first for chunk in self._memory.chunks])
        for number in np.unique(np.searchsorted(firsts, positions, side="right") - 1):
            first, size, _ = self._memory.chunks[number]
            chunks.write_removed(
                self._file, first, self.header.generation + 1, removed[first : first + size]
            )

    def _advance(self, **changes: Any) -> None:
        generation = self.header.generation + 1
        self._file.write_header(replace(self.header, generation=generation, **changes))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Hold one state of the file, with memory in step with it."""
        self._check_open()
        with self._file.reading():
            self._follow()
            yield

    @contextmanager
    def _writing(self) -> Iterator[Header]:
        """Hold the file for writing, and follow once the change is on disk."""
        self._check_open()
        with self._file.writing():
            self._follow()
            yield self.header
        with self._file.reading():
            self._follow()

    def _refresh(self) -> None:
        """Follow other writers; costs microseconds if there was nothing to follow."""
        self._check_open()
        changes = self._file.changes()
        if changes != self._changes:
            with self._reading():
                pass
            self._changes = changes

    def _follow(self) -> None:
        """Load what the file has and memory has not."""
        header = self._file.header()
        if header.generation == self._generation:
            return
        known, memory = self._generation, self._memory
        if header.compacted > known or header.kind != memory.kind:
            known, memory = 0, Memory(header.bits, header.kind)
        # Should loading fail half-way, the next call starts afresh instead of going on from there.
        self._forget()
        memory.reserve(memory.count + chunks.count_stored(self._file, header, memory.count))
        for chunk, packed, ids in chunks.read(self._file, header, memory.count):
            memory.append(chunk, packed, ids)
        memory.bury(list(chunks.read_removed(self._file, known, memory.chunks)))
        if memory.live != header.live:
            raise self._file.damaged("the number of removed codes")
        self.header, self._memory, self._generation = header, memory, header.generation

    def _forget(self) -> None:
        self._generation = -1
        self._changes = -1
        self._memory = Memory(self.header.bits, self.header.kind)
        self._labels = {}

    def _check_open(self) -> None:
        if self._closed:
            raise is_closed(self.path)
