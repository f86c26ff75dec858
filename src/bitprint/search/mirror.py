"""An index file with a synchronized copy in memory."""

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
from bitprint.search import records as record_rows
from bitprint.search.checks import check_kind, check_records
from bitprint.search.closing import on_error
from bitprint.search.details import NOTHING, Item
from bitprint.search.errors import is_closed, no_such_id
from bitprint.search.file import IndexFile, IndexHeader
from bitprint.search.ids import Ids, Positions, ids_after, kind_of
from bitprint.search.memory import Memory, Snapshot
from bitprint.search.records import Records

_CACHED_LABELS = 8  # bitmaps of one bit per code


class Mirror:
    """Writes an index file, and updates memory by reading back what was written.

    Every method takes the lock, so that threads can share a mirror. Snapshots need no lock.
    """

    header: IndexHeader
    _memory: Memory
    _generation: int  # of the memory
    _data_version: int  # of the file when the memory was last updated
    _commit_state: bytes | None  # of the file before the memory was last updated
    _labels: dict[str, NDArray[np.uint8]]

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = path
        self._file = IndexFile(path, timeout)
        self._lock = threading.RLock()
        self._closed = False
        with on_error(self._file.close):
            self.header = self._file.header()
            self._reset()
            with self._reading():
                pass

    def close(self) -> None:
        """Close the file; repeated calls do nothing."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._file.close()

    def live(self) -> int:
        """Count the codes that are not removed."""
        with self._lock:
            self._refresh()
            return self.header.live

    def add(
        self,
        ids: Ids,
        packed: chunks.Packed,
        items: Sequence[Item] | None,
        records: Records | None = None,
    ) -> None:
        """Append codes, and mark earlier codes with the same ids as removed."""
        with self._lock, self._writing() as header:
            check_kind(self.path, header.kind, ids)
            check_records(self.path, header.record, len(ids), records)
            replaced = self._memory.find(ids)
            replaced = replaced[replaced >= 0]
            chunks.append(self._file, header.total, packed, ids, items)
            if records is not None:
                record_rows.append(self._file, header.total, records)
            self._mark_removed(replaced)
            self._write_next_header(
                kind=kind_of(ids),
                total=header.total + len(ids),
                live=header.live + len(ids) - len(replaced),
            )

    def remove(self, ids: Ids) -> None:
        """Mark codes as removed."""
        with self._lock, self._writing() as header:
            positions = np.unique(self._positions(ids))
            self._mark_removed(positions)
            self._write_next_header(live=header.live - len(positions))

    def compact(self) -> None:
        """Rewrite the file without removed codes."""
        with self._lock:
            self._check_open()
            if self._file.in_transaction:
                raise ValueError(
                    f"{self.path}: compact cannot be called inside a transaction or a snapshot"
                )
            with self._writing() as header:
                chunks.rewrite(self._file, header, self._memory.chunks, self._memory.alive)
                if header.record and self._memory.alive is not None:
                    record_rows.rewrite(self._file, self._memory.alive)
                self._write_next_header(compacted=header.generation + 1, total=header.live)
            self._file.merge_log()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Group calls into one transaction: commit all of them, or none if an error is raised.

        Inside another transaction, an error undoes only the calls of the inner one.
        """
        with self._lock:
            self._check_open()
            # A rollback leaves memory ahead of the file, so discard it.
            with on_error(self._reset), self._file.transaction():
                yield

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let all calls inside read the same state."""
        with self._lock:
            self._check_open()
            with self._file.snapshot():
                self._update()
                yield

    def attach(self, contents: Mapping[str, bytes | None]) -> None:
        """Write attachments, or delete those that are None."""
        with self._lock, self._writing() as header:
            more = attachments.write(self._file.db, contents)
            self._write_next_header(attached=header.attached + more)

    def attachments(self, prefix: str) -> dict[str, bytes]:
        """Return the attachments whose names start with `prefix`."""
        with self._lock, self._reading():
            return attachments.read(self._file, self.header, prefix)

    def ids(self) -> Ids:
        """Return the ids of the codes that are not removed, in insertion order."""
        with self._lock:
            self._refresh()
            return self._memory.live_ids()

    def next_ids(self, count: int) -> Ids:
        """Return `count` new numbers as ids, after the largest number in the index."""
        with self._lock:
            self._refresh()
            return ids_after(self._memory.largest_number(), count, self.header.kind)

    def packed(self, ids: Ids) -> chunks.Packed:
        """Return the packed codes of ids."""
        with self._lock, self._reading():
            return self._memory.packed(self._positions(ids))

    def labels(self) -> list[str]:
        """Return the names of the labels in use, sorted."""
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

    def snapshot(self, label: str | None) -> Snapshot:
        """Return a snapshot of the codes; with a label, other codes are marked as removed."""
        with self._lock:
            if label is None:
                self._refresh()
                return self._memory.snapshot()
            with self._reading():
                codes = self._memory.snapshot()
                alive = np.unpackbits(self._label_bitmap(label), count=codes.count)
                return replace(codes, alive=alive if codes.alive is None else alive & codes.alive)

    def records(self, ids: Ids) -> Records:
        """Return the records of ids."""
        with self._lock, self._reading():
            positions, width = self._positions(ids), self.header.record
            if not width:
                return np.empty((len(positions), 0), np.uint8)
            return record_rows.read_at(self._file, positions, width)

    def _label_bitmap(self, label: str) -> NDArray[np.uint8]:
        """Return one bit per position, set if the code has the label."""
        if label not in self._labels:
            described = [chunk[:2] for chunk in self._memory.chunks if chunk.described]
            flags = np.zeros(self._memory.count, np.uint8)
            flags[details.labeled(self._file, described, label)] = 1
            if len(self._labels) == _CACHED_LABELS:
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

    def _mark_removed(self, positions: Positions) -> None:
        if not len(positions):
            return
        positions, memory = np.sort(positions), self._memory
        firsts = np.array([chunk.first for chunk in memory.chunks])
        numbers = np.searchsorted(firsts, positions, side="right") - 1
        for number, start, count in zip(
            *np.unique(numbers, return_index=True, return_counts=True), strict=True
        ):
            first, size, _ = memory.chunks[number]
            removed = memory.removed(first, size)
            removed[positions[start : start + count] - first] = 1
            chunks.write_removed(self._file, first, self.header.generation + 1, removed)

    def _write_next_header(self, **changes: Any) -> None:
        generation = self.header.generation + 1
        self._file.write_header(replace(self.header, generation=generation, **changes))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Open a read transaction, with the memory updated to its state of the file."""
        self._check_open()
        with self._file.reading():
            self._update()
            yield

    @contextmanager
    def _writing(self) -> Iterator[IndexHeader]:
        """Open a write transaction; update the memory after the commit."""
        self._check_open()
        with self._file.writing():
            self._update()
            yield self.header
        # The data are stored. If they cannot be loaded, the next call loads them or fails.
        try:
            with self._file.reading():
                self._update()
        except Exception:
            self._reset()

    def _refresh(self) -> None:
        """Load the changes of other writers; takes a microsecond if there are none."""
        self._check_open()
        state = self._file.commit_state()
        if state is not None and state == self._commit_state:
            return
        version = self._file.data_version()
        if version != self._data_version:
            with self._reading():
                pass
            self._data_version = version
        self._commit_state = state

    def _update(self) -> None:
        """Load what has changed in the file since the generation of the memory."""
        header = self._file.header()
        if header.generation == self._generation:
            return
        known, memory = self._generation, self._memory
        if header.compacted > known or header.kind != memory.kind:
            known, memory = 0, Memory(header.bits, header.kind)
        # If loading fails midway, the next call starts over.
        self._reset()
        memory.reserve(chunks.count_stored(self._file, header, memory.count))
        for chunk, packed, ids in chunks.read(self._file, header, memory.count):
            memory.append(chunk, packed, ids)
        memory.mark_removed(list(chunks.read_removed(self._file, known, memory.chunks)))
        if memory.live != header.live:
            raise self._file.damaged("the number of removed codes")
        self.header, self._memory, self._generation = header, memory, header.generation

    def _reset(self) -> None:
        self._generation = -1
        self._data_version = -1
        self._commit_state = None
        self._memory = Memory(self.header.bits, self.header.kind)
        self._labels = {}

    def _check_open(self) -> None:
        if self._closed:
            raise is_closed(self.path)
