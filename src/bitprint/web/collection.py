"""A collection as the server uses it: index, encoder, image folders and URL keys."""

from __future__ import annotations

import os
import re
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.photos import Photos, holds_pictures
from bitprint.photos.searching import find_described
from bitprint.search import flat, mih
from bitprint.search.closing import on_error
from bitprint.search.stores import Store, open_index

Pixels = NDArray[np.uint8]

KEY_PATTERN = r"^(n-?[0-9]{1,19}|s[A-Za-z0-9_-]{0,16384})$"


class ImageEncoder(Protocol):
    """Interface of a model that encodes images."""

    size: int
    """Height and width of decoded images."""

    def encode(self, pictures: list[Pixels]) -> Codes:
        """Return the codes of images of any size."""

    def describe(self) -> str:
        """Return a one-line description of the model."""


class SearchRequest(NamedTuple):
    """A query for the k nearest codes within `radius`, optionally with a label."""

    code: bytes
    k: int
    radius: int
    label: str


class Found(NamedTuple):
    """One result of a search."""

    key: str
    name: str
    labels: tuple[str, ...]
    distance: int
    code: bytes
    has_picture: bool


class Collection:
    """An index with, optionally, its encoder and the folders of its images.

    Parameters
    ----------
    index : Index or another store
    encoder : ImageEncoder, optional
        Encodes uploaded images. Without it, only searches by code and by id are possible.
    roots : sequence of Path
        Only files in these folders are served.
    find_roots : callable, optional
        Returns the current folders; called when a path is in none of `roots`.

    Examples
    --------
    >>> import tempfile
    >>> from bitprint.data import draw_shapes
    >>> from bitprint.methods import create
    >>> from bitprint.photos import Photos
    >>> from bitprint.photos.encoder import Encoder
    >>> from PIL import Image
    >>> scenes = draw_shapes(20, size=16)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "photos"
    ...     place.mkdir()
    ...     for number, pixels in enumerate(scenes.pixels):
    ...         Image.fromarray(pixels).save(place / f"{number}.png")
    ...     encoder = Encoder(create("itq", bits=16).fit(scenes))
    ...     with Photos.create(f"{folder}/photos.bp", encoder) as photos:
    ...         added = photos.add(place)
    ...     collection = Collection.open(f"{folder}/photos.bp")
    ...     collection.warm_up()
    ...     [code] = collection.encode([scenes.pixels[7]])
    ...     [[found]] = collection.search([SearchRequest(code, k=1, radius=2, label="")])
    ...     same = collection.code_of(found.key) == code
    ...     path = Path(collection.path_of(found.key))
    ...     collection.index.close()
    >>> collection.name, found.name, found.distance, same, path.name
    ('photos.bp', 'photos/7.png', 0, True, '7.png')
    """

    def __init__(
        self,
        index: Store,
        encoder: ImageEncoder | None = None,
        roots: Sequence[Path] = (),
        find_roots: Callable[[], Sequence[Path]] | None = None,
    ) -> None:
        self.index = index
        self.encoder = encoder
        self.roots = _with_resolved(roots)
        self._read_roots = find_roots
        self._roots_lock = threading.Lock()
        self.count = len(index)
        """Number of codes at the last search."""
        self._width = -(-index.bits // 8)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Collection:
        """Open a photo collection or an index of codes by its path or address."""
        index = open_index(path)
        with on_error(index.close):
            if not holds_pictures(index):
                return cls(index)
            photos = Photos(index)
            return cls(index, photos.encoder, photos.roots, lambda: photos.roots)

    @property
    def name(self) -> str:
        """The file name of the index, or its name in its store."""
        path = self.index.path
        if isinstance(path, Path):
            return readable(path.name)
        address = urlsplit(path)
        return dict(parse_qsl(address.query)).get("index", address.path.rpartition("/")[2])

    def warm_up(self) -> None:
        """Compile and load everything the first request needs."""
        flat.warm_up()
        mih.warm_up()
        self.search([SearchRequest(bytes(self._width), k=1, radius=self.index.bits, label="")])
        if self.encoder is not None:
            self.encoder.encode([np.full((self.encoder.size, self.encoder.size, 3), 128, np.uint8)])

    def encode(self, pictures: list[Pixels]) -> list[bytes]:
        """Return the packed code of each image."""
        assert self.encoder is not None
        return [row.tobytes() for row in self.encoder.encode(pictures).packed]

    def code_of(self, key: str) -> bytes:
        """Return the packed code of a key; raise ValueError if there is no such item."""
        return bytes(self.index.codes([id_of(key)]).packed[0])

    def path_of(self, key: str) -> str:
        """Return the path of a key; raise ValueError if there is no such item or path.

        Update `roots` if the path is in a folder that was added after they were read.
        """
        path = self.index.items([id_of(key)])[0].path
        if path is None:
            raise ValueError("the index contains no path for this id")
        self._roots_of([path])
        return path

    def labels(self) -> list[str]:
        """Return the labels of the collection as valid Unicode text.

        Examples
        --------
        >>> import tempfile
        >>> from bitprint.search.index import Index
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         index.add(["a"], Codes.from_signs([[1, 1, 1, -1]]), labels=[["sofa", "cat"]])
        ...         Collection(index).labels()
        ['cat', 'sofa']
        """
        return [readable(label) for label in self.index.labels()]

    def search(self, searches: list[SearchRequest]) -> list[list[Found]]:
        """Return the results of each query; queries with the same k and label share one search."""
        self.count = len(self.index)
        alike: dict[tuple[int, str], list[int]] = defaultdict(list)
        for number, search in enumerate(searches):
            alike[search.k, search.label].append(number)
        answers: list[list[Found]] = [[] for _ in searches]
        for (k, label), numbers in alike.items():
            packed = np.frombuffer(b"".join(searches[n].code for n in numbers), np.uint8)
            codes = Codes(packed.reshape(len(numbers), self._width), self.index.bits)
            radii = np.array([searches[n].radius for n in numbers])
            found = find_described(
                self.index, codes, k, self._stored_label(label), self._describe, radii
            )
            for number, hits in zip(numbers, found, strict=True):
                answers[number] = hits
        return answers

    def _describe(self, ids: list[Any], distances: list[int]) -> list[Found]:
        items = self.index.items(ids)
        codes = self.index.codes(ids).packed
        roots = self._roots_of([item.path for item in items])
        return [
            Found(
                key_of(identifier),
                _name(identifier, item.path, root),
                tuple(readable(label) for label in item.labels),
                distance,
                code.tobytes(),
                root is not None,
            )
            for identifier, item, root, distance, code in zip(
                ids, items, roots, distances, codes, strict=True
            )
        ]

    def _roots_of(self, paths: Sequence[str | None]) -> list[Path | None]:
        """Return the root folder of each path, or None.

        The index stores a folder before the first path below it. The folders therefore have to be
        read again only if a path is in none of them.
        """
        found = _find_roots(paths, self.roots)
        missed = any(path and root is None for path, root in zip(paths, found, strict=True))
        if not missed or self._read_roots is None:
            return found
        with self._roots_lock:  # a later read must not be overwritten by an earlier one
            self.roots = _with_resolved(self._read_roots())
            return _find_roots(paths, self.roots)

    def _stored_label(self, label: str) -> str | None:
        """Return the stored label, which may contain bytes that are not valid text."""
        if not label:
            return None
        if "\N{REPLACEMENT CHARACTER}" not in label:
            return label
        stored = {readable(name): name for name in self.index.labels()}
        return stored.get(label, label)


def _with_resolved(roots: Sequence[Path]) -> list[Path]:
    """Return the folders with resolved links (for files) and as stored (for index paths)."""
    return list(dict.fromkeys([*(root.resolve() for root in roots), *roots]))


def _find_roots(paths: Sequence[str | None], roots: Sequence[Path]) -> list[Path | None]:
    """Return the first folder that contains each path, or None."""
    starts = [(root, str(root).rstrip("/") + "/") for root in roots]
    return [
        next((root for root, start in starts if path and path.startswith(start)), None)
        for path in paths
    ]


def _name(identifier: int | str, path: str | None, root: Path | None) -> str:
    """Return the name of a result: its path relative to the parent of its root, or its id."""
    if path is None:
        return readable(str(identifier))
    return readable(path if root is None else str(Path(path).relative_to(root.parent)))


def key_of(identifier: int | str) -> str:
    r"""Return the URL key of an id, which may contain any characters and undecodable bytes.

    Examples
    --------
    >>> key_of(7), key_of("a/ß?")
    ('n7', 'sYS_Dnz8')
    >>> id_of(key_of("caf\udce9.png")) == "caf\udce9.png"
    True
    """
    if isinstance(identifier, str):
        data = identifier.encode("utf-8", "surrogatepass")
        return "s" + urlsafe_b64encode(data).decode("ascii").rstrip("=")
    return f"n{identifier}"


def id_of(key: str) -> Any:
    """Return the id of a key; raise ValueError if the key is invalid."""
    kind, rest = key[:1], key[1:]
    if kind == "n":
        return int(rest)
    if kind != "s":
        raise ValueError(f"invalid key: {key!r}")
    return urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode("utf-8", "surrogatepass")


def readable(name: str) -> str:
    r"""Return a name as valid Unicode; undecodable bytes become replacement characters.

    Examples
    --------
    >>> readable("caf\udce9.png") == "caf\N{REPLACEMENT CHARACTER}.png"
    True
    """
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", name)
