"""Ledger: what an index knows of the picture files behind its codes, and where they came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bitprint.codes import Codes
from bitprint.photos.below import OrderedPaths, outermost
from bitprint.photos.files import Listing, Picture
from bitprint.search.stores.interface import Store

_FILE, _PLACES = "file/", "places.json"


class Fact(NamedTuple):
    """What a file was like when its picture was encoded."""

    size: int
    modified: int
    digest: str


class Places(NamedTuple):
    """Where the pictures of a collection came from."""

    folders: list[str]
    """Those that were searched through."""
    parents: list[str]
    """Those in which files that were named one by one lie."""


class Ledger:
    """The files of a collection, kept as attachments of its index: one for each file.

    Codes and facts change in one transaction. A picture counts as held if the index has both.
    """

    def __init__(self, index: Store) -> None:
        self._index = index

    def facts(self) -> dict[str, Fact]:
        """Return the facts of every picture that is held, by path."""
        held = set(self._index.ids())
        return {
            path: self._parse_fact(content)
            for name, content in self._index.attachments(_FILE).items()
            if (path := name.removeprefix(_FILE)) in held
        }

    def labels(self, paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return the labels of pictures that are held, by path."""
        items = self._index.items(paths)
        return {path: item.labels for path, item in zip(paths, items, strict=True)}

    def store(self, pictures: Sequence[Picture], digests: Sequence[str], codes: Codes) -> None:
        """Write pictures, N of them, each with the digest of its content and its code."""
        paths = [picture.path for picture in pictures]
        facts = [
            Fact(picture.size, picture.modified, digest)
            for picture, digest in zip(pictures, digests, strict=True)
        ]
        with self._index.transaction():
            self._index.add(paths, codes, paths, [picture.labels for picture in pictures])
            self._attach(dict(zip(paths, facts, strict=True)))

    def relabel(self, pictures: Sequence[Picture]) -> None:
        """Give pictures that are held other labels; their codes stay."""
        paths = [picture.path for picture in pictures]
        with self._index.transaction():
            codes = self._index.codes(paths)
            self._index.add(paths, codes, paths, [picture.labels for picture in pictures])

    def move(self, moved: Sequence[tuple[str, Picture]], facts: dict[str, Fact]) -> None:
        """Give the codes of old paths to the pictures that lie elsewhere now."""
        old = [path for path, _ in moved]
        with self._index.transaction():
            digests = [facts[path].digest for path in old]
            self.store([picture for _, picture in moved], digests, self._index.codes(old))
            self.forget(old)

    def forget(self, paths: Sequence[str]) -> None:
        """Remove pictures that are held."""
        with self._index.transaction():
            self._index.remove(paths)
            self._attach(dict.fromkeys(paths))

    def places(self) -> Places:
        """Return the folders that the pictures came from."""
        content = self._index.attachments(_PLACES).get(_PLACES)
        return Places([], []) if content is None else self._parse_places(content)

    def add_places(self, listing: Listing) -> None:
        """Remember where a listing comes from."""
        with self._index.transaction():
            folders, parents = self.places()
            self._write_places(folders + listing.folders, parents + listing.parents)

    def drop_places(self, names: Iterable[str] = ()) -> None:
        """Forget these places, and those that are gone and of which no picture is held."""
        held = OrderedPaths(self.facts())
        dropped = set(names) | {
            place
            for places in self.places()
            for place in places
            if not Path(place).is_dir() and not held.below(place)
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
            raise ValueError(f"{self._index.path}: the facts of a file are damaged") from None
        return Fact(size, modified, digest)

    def _parse_places(self, content: bytes) -> Places:
        try:
            folders, parents = map(_strings, Places(**json.loads(content)))
        except (TypeError, ValueError, RecursionError):
            raise ValueError(f"{self._index.path}: the list of its folders is damaged") from None
        return Places(folders, parents)

    def _attach(self, facts: dict[str, Fact] | dict[str, None]) -> None:
        self._index.attach(
            {
                _FILE + path: None if fact is None else json.dumps(fact).encode()
                for path, fact in facts.items()
            }
        )


def _strings(values: Any) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of strings was expected")
    return values
