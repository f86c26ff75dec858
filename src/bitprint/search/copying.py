"""Copying an index from one store to another: in batches, resumable, verified in the end."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

import numpy as np

from bitprint.codes import Codes
from bitprint.search.details import NOTHING, Item
from bitprint.search.ids import Ids, kind_of, to_bytes
from bitprint.search.stores import Store, open_index

_BATCH = 65_536  # codes of one transaction
_ATTACHED = 1_024  # attachments of one
_MARK = "unfinished copy"  # the attachment of a target that says what it is to become

Place = str | os.PathLike[str]
Progress = Callable[[int, int], None]


class Copied(NamedTuple):
    """What `copy_index` did.

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
    """How many codes were copied now."""
    kept: int
    """How many an earlier call had copied."""
    checksum: str
    """Of everything that the index holds, the same for every store that holds it."""


def copy_index(source: Place, target: Place, *, progress: Progress | None = None) -> Copied:
    """Copy codes, ids, paths, labels and attachments to a place where nothing is yet.

    Codes arrive in the order in which they were inserted, each batch in one transaction. A copy
    that was interrupted goes on when it is called again: the target says what it is a copy of
    until it is finished. In the end both are read once more and compared. A target that is a
    finished copy already is only compared.

    Besides the ids and the attachments, which are read at once, memory holds one batch.

    Parameters
    ----------
    source, target : path, or address of a store
        As for `bitprint.open_index`.
    progress : callable, optional
        Called with how many codes are copied or compared, and how many that will be: each is
        copied, then compared.

    Returns
    -------
    Copied

    Raises
    ------
    ValueError
        If the target holds something else, the source changes meanwhile, or both differ in the
        end.

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
    with open_index(source) as original:
        if _mark_of(original) is not None:
            raise ValueError(f"{original.path}: is an unfinished copy itself; finish it first")
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


def _open_target(place: Place, source: Store, mark: bytes) -> Store:
    try:
        return open_index(place)
    except FileNotFoundError:
        return open_index(
            place, bits=source.bits, model=source.model, create=True, attachments={_MARK: mark}
        )


def _mark_of(store: Store) -> bytes | None:
    return store.attachments(_MARK).get(_MARK)


def _describe(store: Store, ids: Ids) -> bytes:
    """What tells an index from others: its length, its model, and its ids in order."""
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
    """Raise a ValueError if the source has changed inside, also where that made another fail."""
    try:
        yield
    except ValueError:
        _check_unchanged(source, mark)
        raise
    _check_unchanged(source, mark)


def _check_unchanged(source: Store, mark: bytes) -> None:
    if _describe(source, source.ids()) != mark:
        raise ValueError(
            f"{source.path}: was changed while it was copied; delete the copy and start again when "
            "nothing writes to it"
        )


def _count_kept(target: Store, source: Store, ids: Ids, mark: bytes) -> int:
    """How many codes the target has; raises a ValueError unless they are the source's first."""
    found, held = _mark_of(target), target.ids()
    if found is None and _describe(target, held) != mark:
        raise ValueError(
            f"{target.path}: holds another index than {source.path}; copy to a place where nothing "
            "is yet"
        )
    if found not in (None, mark):
        raise ValueError(
            f"{target.path}: is the unfinished copy of another index, or of {source.path} as it "
            "was before; delete it, or copy to another place"
        )
    if not np.array_equal(held, ids[: len(held)]):
        raise _interfered(target)
    return len(held)


def _interfered(target: Store) -> ValueError:
    return ValueError(
        f"{target.path}: something else writes to the unfinished copy; delete it and copy again"
    )


def _copy_codes(source: Store, target: Store, ids: Ids, kept: int, report: Progress) -> None:
    done = kept
    for batch in _batches(ids[kept:]):
        codes, items = source.codes(batch), source.items(batch)
        described = any(item != NOTHING for item in items)
        with target.transaction():
            if len(target) != done:
                raise _interfered(target)
            target.add(
                batch,
                codes,
                [item.path for item in items] if described else None,
                [item.labels for item in items] if described else None,
            )
        done += len(batch)
        report(done, 2 * len(ids))


def _copy_attachments(source: Store, target: Store) -> None:
    contents = iter(source.attachments().items())
    while batch := dict(islice(contents, _ATTACHED)):
        target.attach(batch)


def _compare(source: Store, target: Store, ids: Ids, mark: bytes, report: Progress) -> str:
    """Return the checksum of both; raises a ValueError if they differ."""
    same = _describe(target, target.ids()) == mark
    checksums = _Checksum(), _Checksum()
    done = len(ids)
    for batch in _batches(ids) if same else ():
        for store, checksum in zip((source, target), checksums, strict=True):
            checksum.add(batch, store.codes(batch), store.items(batch))
        done += len(batch)
        report(done, 2 * len(ids))
    for store, checksum in zip((source, target), checksums, strict=True):
        checksum.attach(store.attachments())
    if not same or checksums[0].value() != checksums[1].value():
        raise ValueError(
            f"{target.path}: differs from {source.path}, for one of the two is damaged or was "
            "changed meanwhile; delete the copy and start again"
        )
    return checksums[0].value()


class _Checksum:
    """SHA-256 of ids, codes, paths and labels in order, however they are divided into batches."""

    def __init__(self) -> None:
        self._ids, self._codes = hashlib.sha256(), hashlib.sha256()
        self._items, self._attachments = hashlib.sha256(), hashlib.sha256()

    def add(self, ids: Ids, codes: Codes, items: Sequence[Item]) -> None:
        """Go on with a batch, which is not empty."""
        self._ids.update(_id_bytes(ids))
        self._codes.update(codes.packed.tobytes())
        self._items.update(json.dumps(items)[1:-1].encode() + b", ")

    def attach(self, attachments: Mapping[str, bytes]) -> None:
        """Take in all attachments but the mark."""
        for name, content in sorted(attachments.items()):
            if name != _MARK:
                self._attachments.update(f"{json.dumps(name)} {len(content)} ".encode() + content)

    def value(self) -> str:
        """The checksum so far."""
        parts = (self._ids, self._codes, self._items, self._attachments)
        return hashlib.sha256(b"".join(part.digest() for part in parts)).hexdigest()


def _batches(ids: Ids) -> Iterator[Ids]:
    return (ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH))


def _id_bytes(ids: Ids) -> bytes:
    return to_bytes(ids) + (b"\0" if kind_of(ids) == "string" else b"")
