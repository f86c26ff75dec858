"""What the server knows of a collection: its index, its pictures, and the names of both in URLs."""

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

Picture = NDArray[np.uint8]

KEY_PATTERN = r"^(n-?[0-9]{1,19}|s[A-Za-z0-9_-]{0,16384})$"


class Encoder(Protocol):
    """Turns pictures into codes."""

    size: int
    """Height and width to which pictures are decoded."""

    def encode(self, pictures: list[Picture]) -> Codes:
        """Encode pictures of any size."""

    def describe(self) -> str:
        """Say in one line which model this is."""


class Search(NamedTuple):
    """One query: the nearest k codes that carry the label and are at most `radius` away."""

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
    """An index and, where they are known, its encoder and the folders of its pictures.

    Parameters
    ----------
    index : Index, or that of another store
    encoder : Encoder, optional
        Makes codes of uploaded pictures; without it only codes and ids can be searched for.
    roots : sequence of Path
        Only files inside these folders are ever shown.
    find_roots : callable, optional
        Returns the folders as of now; called when a path lies in none that is known.

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
    ...     [[found]] = collection.search([Search(code, k=1, radius=2, label="")])
    ...     same = collection.code_of(found.key) == code
    ...     path = Path(collection.path_of(found.key))
    ...     collection.index.close()
    >>> collection.name, found.name, found.distance, same, path.name
    ('photos.bp', 'photos/7.png', 0, True, '7.png')
    """

    def __init__(
        self,
        index: Store,
        encoder: Encoder | None = None,
        roots: Sequence[Path] = (),
        find_roots: Callable[[], Sequence[Path]] | None = None,
    ) -> None:
        self.index = index
        self.encoder = encoder
        self.roots = _both_ways(roots)
        self._find_roots = find_roots
        self._finding = threading.Lock()
        self.held = len(index)
        """How many codes there were at the last search."""
        self._width = -(-index.bits // 8)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Collection:
        """Open an index by its path or address: of photographs with their model, or of codes."""
        index = open_index(path)
        with on_error(index.close):
            if not holds_pictures(index):
                return cls(index)
            photos = Photos(index)
            return cls(index, photos.encoder, photos.roots, lambda: photos.roots)

    @property
    def name(self) -> str:
        """What to call the collection: its file, or the name of the index in its store."""
        path = self.index.path
        if isinstance(path, Path):
            return readable(path.name)
        address = urlsplit(path)
        return dict(parse_qsl(address.query)).get("index", address.path.rpartition("/")[2])

    def warm_up(self) -> None:
        """Compile and load all that the first request would otherwise wait for."""
        flat.warm_up()
        mih.warm_up()
        self.search([Search(bytes(self._width), k=1, radius=self.index.bits, label="")])
        if self.encoder is not None:
            self.encoder.encode([np.full((self.encoder.size, self.encoder.size, 3), 128, np.uint8)])

    def encode(self, pictures: list[Picture]) -> list[bytes]:
        """Return the packed code of each picture."""
        assert self.encoder is not None
        return [row.tobytes() for row in self.encoder.encode(pictures).packed]

    def code_of(self, key: str) -> bytes:
        """Return the packed code of a key; raises ValueError if there is none."""
        return bytes(self.index.codes([id_of(key)]).packed[0])

    def path_of(self, key: str) -> str:
        """Return the path of a key; raises ValueError if it is unknown or has none.

        Its folder is among the `roots` from then on, if it was added since they were read.
        """
        path = self.index.items([id_of(key)])[0].path
        if path is None:
            raise ValueError("the index holds no path for this id")
        self._roots_of([path])
        return path

    def labels(self) -> list[str]:
        """Return the labels in use, as text.

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

    def search(self, searches: list[Search]) -> list[list[Found]]:
        """Answer many queries; those with the same k and label share one pass over the codes."""
        self.held = len(self.index)
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
        """Return the folder that each path lies in, or None.

        A folder is written to the index before the first path below it. So only a path that lies
        in none tells that there are new ones, and nothing has to be asked for the others.
        """
        found = _lie_in(paths, self.roots)
        missed = any(path and root is None for path, root in zip(paths, found, strict=True))
        if not missed or self._find_roots is None:
            return found
        with self._finding:  # of two threads, the one that reads later also writes later
            self.roots = _both_ways(self._find_roots())
            return _lie_in(paths, self.roots)

    def _stored_label(self, label: str) -> str | None:
        """The label in the index that reads like this one: names of folders may not be text."""
        if not label:
            return None
        if "\N{REPLACEMENT CHARACTER}" not in label:
            return label
        stored = {readable(name): name for name in self.index.labels()}
        return stored.get(label, label)


def _both_ways(roots: Sequence[Path]) -> list[Path]:
    """Folders with links resolved, as files are opened, and as they are named in the index."""
    return list(dict.fromkeys([*(root.resolve() for root in roots), *roots]))


def _lie_in(paths: Sequence[str | None], roots: Sequence[Path]) -> list[Path | None]:
    """The first of the folders that each path lies in."""
    starts = [(root, str(root).rstrip("/") + "/") for root in roots]
    return [
        next((root for root, start in starts if path and path.startswith(start)), None)
        for path in paths
    ]


def _name(identifier: int | str, path: str | None, root: Path | None) -> str:
    """What to call a result: its path below the folder it was found in, or its id."""
    if path is None:
        return readable(str(identifier))
    return readable(path if root is None else str(Path(path).relative_to(root.parent)))


def key_of(identifier: int | str) -> str:
    r"""Return the name of an id in URLs, whatever characters or stray bytes the id holds.

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
    """Undo `key_of`; raises ValueError where the key is none."""
    kind, rest = key[:1], key[1:]
    if kind == "n":
        return int(rest)
    if kind != "s":
        raise ValueError(f"no key: {key!r}")
    return urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode("utf-8", "surrogatepass")


def readable(name: str) -> str:
    r"""Return a name as text that can be sent; what is no text becomes a replacement mark.

    Examples
    --------
    >>> readable("caf\udce9.png") == "caf\N{REPLACEMENT CHARACTER}.png"
    True
    """
    return re.sub("[\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", name)
