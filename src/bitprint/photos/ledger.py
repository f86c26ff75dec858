"""Attachments of an index: its model, the indexed files and the added folders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bitprint.codes import Codes
from bitprint.photos.below import OrderedPaths, outermost
from bitprint.photos.files import Listing, Picture
from bitprint.search.promises import grouped
from bitprint.search.stores.interface import Store

if TYPE_CHECKING:
    from bitprint.photos.encoder import Encoder

_FILE, _PLACES, _MODEL = "file/", "places.json", "model/"
_DESCRIPTION = _MODEL + "model.json"


class Fact(NamedTuple):
    """Properties of an image file at the time of encoding."""

    size: int
    modified: int
    digest: str


class Places(NamedTuple):
    """The folders of a collection."""

    folders: list[str]
    """Folders that were added."""
    parents: list[str]
    """Folders of files that were added individually."""


class Ledger:
    """The files of a collection, stored as attachments of its index, one per file.

    An image is in the collection if the index contains its code and its file properties. They are
    changed in one transaction, if the index has transactions. Otherwise codes are written and
    removed first, so after an interruption an image is missing or up to date, and the next `add`
    or `sync` completes the change.
    """

    def __init__(self, index: Store) -> None:
        self._index = index

    def facts(self) -> dict[str, Fact]:
        """Return the file properties of all stored images, by path."""
        stored = set(self._index.ids())
        return {
            path: self._parse_fact(content)
            for name, content in self._index.attachments(_FILE).items()
            if (path := name.removeprefix(_FILE)) in stored
        }

    def labels(self, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the labels of stored images, by path."""
        items = self._index.items(paths)
        return {path: item.labels for path, item in zip(paths, items, strict=True)}

    def store(self, pictures: Sequence[Picture], digests: Sequence[str], codes: Codes) -> None:
        """Store N images with the digests of their contents and their codes."""
        paths = [picture.path for picture in pictures]
        facts = [
            Fact(picture.size, picture.modified, digest)
            for picture, digest in zip(pictures, digests, strict=True)
        ]
        with grouped(self._index):
            self._index.add(paths, codes, paths, [picture.labels for picture in pictures])
            self._attach(dict(zip(paths, facts, strict=True)))

    def relabel(self, pictures: Sequence[Picture]) -> None:
        """Replace the labels of stored images and keep their codes."""
        paths = [picture.path for picture in pictures]
        with grouped(self._index):
            codes = self._index.codes(paths)
            self._index.add(paths, codes, paths, [picture.labels for picture in pictures])

    def move(self, moved: Sequence[tuple[str, Picture]], facts: dict[str, Fact]) -> None:
        """Store the codes of old paths under the new paths of moved images."""
        old = [path for path, _ in moved]
        with grouped(self._index):
            digests = [facts[path].digest for path in old]
            self.store([picture for _, picture in moved], digests, self._index.codes(old))
            self.forget(old)

    def forget(self, paths: Sequence[str]) -> None:
        """Remove stored images."""
        with grouped(self._index):
            self._index.remove(paths)
            self._attach(dict.fromkeys(paths))

    def places(self) -> Places:
        """Return the folders of the collection."""
        content = self._index.attachments(_PLACES).get(_PLACES)
        return Places([], []) if content is None else self._parse_places(content)

    def add_places(self, listing: Listing) -> None:
        """Add the folders of a listing."""
        with grouped(self._index):
            folders, parents = self.places()
            self._write_places(folders + listing.folders, parents + listing.parents)

    def drop_places(self, names: Iterable[str] = ()) -> None:
        """Remove these folders, and missing folders without stored images."""
        stored = OrderedPaths(self.facts())
        dropped = set(names) | {
            place
            for places in self.places()
            for place in places
            if not Path(place).is_dir() and not stored.below(place)
        }
        kept = [[place for place in places if place not in dropped] for places in self.places()]
        self._write_places(*kept)

    def _write_places(self, folders: Sequence[str], parents: Sequence[str]) -> None:
        places = Places(outermost(folders), outermost(parents))
        content = json.dumps(places._asdict()).encode()
        if content != self._index.attachments(_PLACES).get(_PLACES):
            self._index.attach({_PLACES: content})

    def _parse_fact(self, content: bytes) -> Fact:
        try:
            size, modified, digest = json.loads(content)
        except (TypeError, ValueError, RecursionError):
            raise ValueError(f"{self._index.path}: the properties of a file are damaged") from None
        return Fact(size, modified, digest)

    def _parse_places(self, content: bytes) -> Places:
        try:
            folders, parents = map(_strings, Places(**json.loads(content)))
        except (TypeError, ValueError, RecursionError):
            raise ValueError(f"{self._index.path}: the list of folders is damaged") from None
        return Places(folders, parents)

    def _attach(self, facts: dict[str, Fact] | dict[str, None]) -> None:
        self._index.attach(
            {
                _FILE + path: None if fact is None else json.dumps(fact).encode()
                for path, fact in facts.items()
            }
        )


def holds_pictures(index: Store) -> bool:
    """Return whether an index contains a model, so that `Photos` can open it.

    Other attachments are ignored.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/codes.bp", bits=16) as index:
    ...         index.attach({"note": b"codes of last year"})
    ...         holds_pictures(index)
    False
    """
    return _DESCRIPTION in index.attachments(_DESCRIPTION)


def is_own_attachment(name: str) -> bool:
    """Return whether an attachment belongs to the collection and not to its user.

    Examples
    --------
    >>> is_own_attachment("file//photos/tom.jpg"), is_own_attachment("note/owner")
    (True, False)
    """
    return name.startswith((_FILE, _MODEL)) or name == _PLACES


def check_holds_pictures(index: Store) -> None:
    """Raise a ValueError if an index contains no model."""
    if not holds_pictures(index):
        if index.attachments(_MODEL):
            raise ValueError(f"{index.path}: the model is damaged (model.json: missing)")
        raise ValueError(
            f"{index.path}: contains codes without a model, so images cannot be encoded for it; "
            "use codes, or create another index for images"
        )


def to_attachments(encoder: Encoder) -> dict[str, bytes]:
    """Return the attachments that store a model in an index."""
    return {_MODEL + name: content for name, content in encoder.files.items()}


def load_encoder(index: Store) -> Encoder:
    """Load the model of an index; raise ValueError if it computes other codes here."""
    from bitprint.photos.encoder import Encoder

    found = index.attachments(_MODEL)
    try:
        encoder = Encoder.from_files({name.removeprefix(_MODEL): found[name] for name in found})
    except ValueError as error:
        raise ValueError(f"{index.path}: {error}") from error
    if encoder.identity != index.model:
        raise ValueError(
            f"{index.path}: the codes were computed by {index.model}, but this installation "
            f"computes those of {encoder.identity}; create another index"
        )
    return encoder


def _strings(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of strings was expected")
    return values
