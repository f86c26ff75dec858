"""Copy an index from one store to another: in batches, resumable and verified."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.search.details import NOTHING, Item
from bitprint.search.ids import Ids, kind_of, to_bytes
from bitprint.search.index import Index
from bitprint.search.promises import grouped
from bitprint.search.stores import Store, is_uri, open_index

_BATCH = 65_536  # codes per transaction
_ATTACHED = 1_024  # attachments per transaction
_MARK = "unfinished copy"  # attachment of an unfinished target, describes the source

Place = str | os.PathLike[str]
Progress = Callable[[int, int], None]


class Copied(NamedTuple):
    """Result of `copy_index`.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/a.bp", bits=4) as index:
    ...         index.add(["x"], bp.Codes.from_signs([[1, 1, 1, -1]]))
    ...     first = copy_index(f"{folder}/a.bp", f"{folder}/b.bp")
    ...     second = copy_index(f"{folder}/a.bp", f"{folder}/b.bp")
    >>> (first.new, first.kept), (second.new, second.kept), first.checksum == second.checksum
    ((1, 0), (0, 1), True)
    """

    new: int
    """Number of codes that this call copied."""
    kept: int
    """Number of codes that earlier calls had copied."""
    checksum: str
    """Checksum of the full contents, independent of the store."""


def copy_index(source: Place, target: Place, *, progress: Progress | None = None) -> Copied:
    """Copy codes, ids, paths, labels, records and attachments to a new index.

    Codes are copied in insertion order, in batches. Call the function again to
    resume an interrupted copy; until it is finished, the target stores a description of its source.
    Finally, both indexes are read again and compared. If the target is already a finished copy, it
    is only compared.

    An index file may be changed during the copy, which has the state at the beginning. An index in
    another store must not be changed.

    All ids and attachments are read at once; codes, paths and labels are read in batches.

    Parameters
    ----------
    source, target : path, or address of a store
        As for `bitprint.open_index`.
    progress : callable, optional
        Called with the number of finished steps and the total. Each code takes two steps: copy
        and compare.

    Returns
    -------
    Copied

    Raises
    ------
    ValueError
        If the target contains something else, if a source in another store changes during the
        copy, if the source has records and the target is not a file, or if the indexes differ
        afterwards.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/a.bp", bits=4) as index:
    ...         index.add(["x"], bp.Codes.from_signs([[1, 1, 1, -1]]), labels=[["cat"]])
    ...     copied = copy_index(f"{folder}/a.bp", f"{folder}/b.bp")
    ...     with bp.Index.open(f"{folder}/b.bp") as index:
    ...         copied.new, index.codes(["x"]).signs().tolist(), index.items(["x"])
    (1, [[1, 1, 1, -1]], [Item(path=None, labels=('cat',))])
    """
    report = progress or (lambda done, total: None)
    with open_index(source) as original, one_state(original):
        if _mark_of(original) is not None:
            raise ValueError(f"{original.path}: is itself an unfinished copy; finish it first")
        ids = original.ids()
        mark = _describe(original, ids)
        with _open_target(target, original, mark) as copy:
            with _unchanged(original, mark):
                kept = _count_kept(copy, original, ids, mark)
                unfinished = _mark_of(copy) is not None
                if unfinished:
                    _copy_codes(original, copy, ids, kept, report)
                    _copy_attachments(original, copy)
                checksum = _compare(original, copy, ids, mark, report)
            if unfinished:
                copy.attach({_MARK: None})
    return Copied(len(ids) - kept, kept, checksum)


def one_state(store: Store) -> AbstractContextManager[None]:
    """Let all reads in a `with` statement see the same state, if the store is a file."""
    return store.snapshot() if isinstance(store, Index) else nullcontext()


def _open_target(place: Place, source: Store, mark: bytes) -> Store:
    record_bytes = _record_bytes(source)
    if record_bytes and is_uri(place):
        raise ValueError(
            f"{source.path}: stores {record_bytes} bytes with each code, which only an index file "
            "can contain; `bitprint index export` writes the codes and ids without them"
        )
    try:
        return open_index(place)
    except FileNotFoundError:
        if record_bytes:
            return Index.create(
                place,
                source.bits,
                model=source.model,
                attachments={_MARK: mark},
                record_bytes=record_bytes,
            )
        return open_index(
            place, bits=source.bits, model=source.model, create=True, attachments={_MARK: mark}
        )


def _record_bytes(store: Store) -> int:
    return store.record_bytes if isinstance(store, Index) else 0


def _records(store: Store, ids: Ids) -> dict[str, NDArray[np.uint8]]:
    """Return the argument `records` of `Index.add`, if the store has records."""
    if isinstance(store, Index) and store.record_bytes:
        return {"records": store.records(ids)}
    return {}


def _mark_of(store: Store) -> bytes | None:
    return store.attachments(_MARK).get(_MARK)


def _describe(store: Store, ids: Ids) -> bytes:
    """Return a description that identifies an index: code length, model and ids in order."""
    digest = hashlib.sha256(kind_of(ids).encode() if len(ids) else b"")
    for batch in _batches(ids):
        digest.update(_id_bytes(batch))
    about = {
        "bits": store.bits,
        "model": store.model,
        "count": len(ids),
        "ids": digest.hexdigest(),
    }
    return json.dumps(about).encode()


@contextmanager
def _unchanged(source: Store, mark: bytes) -> Iterator[None]:
    """Raise ValueError if the source changes in the `with` body, even if that caused an error."""
    try:
        yield
    except ValueError:
        _check_unchanged(source, mark)
        raise
    _check_unchanged(source, mark)


def _check_unchanged(source: Store, mark: bytes) -> None:
    if _describe(source, source.ids()) != mark:
        raise ValueError(
            f"{source.path}: the source was changed while it was copied; delete the copy and start "
            "again when no other process writes to the source"
        )


def _count_kept(target: Store, source: Store, ids: Ids, mark: bytes) -> int:
    """Return the number of codes in the target; they must be the first codes of the source."""
    found, copied = _mark_of(target), target.ids()
    if found is None and _describe(target, copied) != mark:
        raise ValueError(
            f"{target.path}: exists and is not a copy of {source.path}; choose another target"
        )
    if found not in (None, mark):
        raise ValueError(
            f"{target.path}: is an unfinished copy of another index, or of an earlier state of "
            f"{source.path}; delete it or choose another target"
        )
    if not np.array_equal(copied, ids[: len(copied)]):
        raise _concurrent_write(target)
    return len(copied)


def _concurrent_write(target: Store) -> ValueError:
    return ValueError(
        f"{target.path}: another writer changed the unfinished copy; delete it and copy again"
    )


def _copy_codes(source: Store, target: Store, ids: Ids, kept: int, report: Progress) -> None:
    done = kept
    for batch in _batches(ids[kept:]):
        codes, items = source.codes(batch), source.items(batch)
        described = any(item != NOTHING for item in items)
        with grouped(target):
            if len(target) != done:
                raise _concurrent_write(target)
            target.add(
                batch,
                codes,
                [item.path for item in items] if described else None,
                [item.labels for item in items] if described else None,
                **_records(source, batch),
            )
        done += len(batch)
        report(done, 2 * len(ids))


def _copy_attachments(source: Store, target: Store) -> None:
    contents = iter(source.attachments().items())
    while batch := dict(islice(contents, _ATTACHED)):
        target.attach(batch)


def _compare(source: Store, target: Store, ids: Ids, mark: bytes, report: Progress) -> str:
    """Return the checksum of both indexes, or raise ValueError if they differ."""
    same = _describe(target, target.ids()) == mark
    checksums = _Checksum(), _Checksum()
    done = len(ids)
    for batch in _batches(ids) if same else ():
        for store, checksum in zip((source, target), checksums, strict=True):
            checksum.add(batch, store.codes(batch), store.items(batch))
            checksum.add_records(_records(store, batch))
        done += len(batch)
        report(done, 2 * len(ids))
    for store, checksum in zip((source, target), checksums, strict=True):
        checksum.attach(store.attachments())
    if not same or checksums[0].value() != checksums[1].value():
        raise ValueError(
            f"{target.path}: differs from {source.path}, because one of them is damaged or was "
            "changed during the copy; delete the copy and start again"
        )
    return checksums[0].value()


class _Checksum:
    """SHA-256 of ids, codes, paths and labels in order, independent of the batch size."""

    def __init__(self) -> None:
        self._ids, self._codes = hashlib.sha256(), hashlib.sha256()
        self._items, self._attachments = hashlib.sha256(), hashlib.sha256()
        self._records = hashlib.sha256()

    def add(self, ids: Ids, codes: Codes, items: Sequence[Item]) -> None:
        """Add a non-empty batch."""
        self._ids.update(_id_bytes(ids))
        self._codes.update(codes.packed.tobytes())
        self._items.update(json.dumps(items)[1:-1].encode() + b", ")

    def add_records(self, records: Mapping[str, NDArray[np.uint8]]) -> None:
        """Add the records of a batch, if the index has records."""
        for content in records.values():
            self._records.update(content.tobytes())

    def attach(self, attachments: Mapping[str, bytes]) -> None:
        """Add all attachments except the mark."""
        for name, content in sorted(attachments.items()):
            if name != _MARK:
                self._attachments.update(f"{json.dumps(name)} {len(content)} ".encode() + content)

    def value(self) -> str:
        """Return the checksum of everything added so far."""
        parts = (self._ids, self._codes, self._items, self._attachments)
        total = b"".join(part.digest() for part in parts)
        if self._records.digest() != hashlib.sha256().digest():  # only some indexes have records
            total += self._records.digest()
        return hashlib.sha256(total).hexdigest()


def _batches(ids: Ids) -> Iterator[Ids]:
    return (ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH))


def _id_bytes(ids: Ids) -> bytes:
    return to_bytes(ids) + (b"\0" if kind_of(ids) == "string" else b"")
