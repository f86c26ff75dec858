"""Encoder: a fitted hasher and the features that it needs; from pictures to codes."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.data.decoding import resize_pixels
from bitprint.data.images import ImageSet
from bitprint.data.vectors import as_features
from bitprint.features.deep import deep_features, trunk_digest, trunk_for
from bitprint.features.gist import gist
from bitprint.methods import DeepHasher, FeatureHasher, Hasher, load_files
from bitprint.methods._store import (
    DESCRIPTION,
    WEIGHTS,
    dump_description,
    find_model,
    parse_description,
    read_files,
    unpack_files,
)
from bitprint.nets import Trunk

_FOLDER_SIZE = 256  # what pictures of a folder are decoded to for training
_LARGEST_SIZE = 8192

Pixels = NDArray[np.uint8]


class Features:
    """Features of square pictures by name: "pixels", "gist", or a backbone's.

    Parameters
    ----------
    name : str
    size : int, optional
        Height and width of the pictures; by default what the network takes.

    Attributes
    ----------
    digest : str
        Equal for features that agree: it covers the weights of a network.
    trunk : Trunk or None
        The network, if it is one.

    Examples
    --------
    >>> Features("pixels", 8)(np.zeros((3, 8, 8, 3), np.uint8)).shape
    (3, 192)
    """

    def __init__(self, name: str, size: int | None = None) -> None:
        self.name = name
        self.size = size or _FOLDER_SIZE
        self.trunk: Trunk | None = None
        weights = ""
        if name not in ("pixels", "gist"):
            blank = ImageSet(np.zeros((1, self.size, self.size, 3), np.uint8))
            self.trunk = trunk_for(blank, name)
            if size is None:
                self.size = getattr(self.trunk.preprocess, "size", None) or _FOLDER_SIZE
            weights = trunk_digest(self.trunk)
        facts = f"{name} {self.size} {weights}"
        self.digest = hashlib.sha256(facts.encode()).hexdigest()

    def __call__(self, pictures: Pixels) -> NDArray[np.float32]:
        """Features of pictures (n, size, size, 3), shape (n, d)."""
        if self.name == "pixels":
            return as_features(ImageSet(pictures))
        if self.trunk is None:
            return gist(pictures)
        return deep_features(pictures, self.trunk)


class Encoder:
    """A fitted hasher, and what it takes to give it pictures.

    Parameters
    ----------
    hasher : Hasher
        Fitted; one that treats queries differently from other pictures is refused.
    features : Features, optional
        What a `FeatureHasher` was fitted on; by default pixels. A `DeepHasher` that was trained on
        pictures has none.
    pictures : int, optional
        How many pictures it was fitted on, if that is known.

    Attributes
    ----------
    size : int
        Pictures become squares of this height and width, as they were for training.

    Examples
    --------
    >>> from bitprint.methods import create
    >>> pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
    >>> encoder = Encoder(create("itq", bits=16).fit(ImageSet(pictures)))
    >>> encoder.encode([pictures[0], np.zeros((30, 20, 3), np.uint8)])
    Codes(2 x 16 bits)
    >>> encoder.describe()
    'ITQ, 16 bits, on pixels features'
    """

    def __init__(
        self, hasher: Hasher, features: Features | None = None, pictures: int | None = None
    ) -> None:
        if type(hasher).encode_queries is not Hasher.encode_queries:
            raise ValueError(
                f"{hasher.name} has other codes for queries than for pictures, so that one "
                "picture could not be told by its code; choose another method"
            )
        if isinstance(hasher, DeepHasher) and len(hasher.input_shape_) == 3:
            features = None
            self.size = int(hasher.input_shape_[0])
        elif isinstance(hasher, DeepHasher) and features is None:
            raise ValueError(
                f"this {hasher.name} model takes feature vectors, not pictures; its model.json "
                "must name the features under about"
            )
        else:
            features = features or Features("pixels", _side(hasher))
            self.size = features.size
        self.hasher = hasher
        self.bits = hasher.bits
        self.features = features
        self.pictures = pictures

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Encoder:
        """Load a model folder of `bitprint train` or `Hasher.save`.

        `model.json` says under "about" which features the model takes, and of which size the
        pictures were (256 where it does not).

        Examples
        --------
        >>> from bitprint.methods import create
        >>> pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> hasher = create("itq", bits=16).fit(ImageSet(pictures))
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hasher.save(folder, features="pixels")
        ...     encoder = Encoder.load(folder)
        >>> encoder.encode_squares(pictures) == hasher.encode(ImageSet(pictures))
        True
        """
        return cls._read(read_files(folder), find_model(folder))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Encoder:
        """Make an encoder of the `files` of another.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> encoder = Encoder(create("itq", bits=16).fit(ImageSet(pictures)))
        >>> sorted(encoder.files), Encoder.from_files(encoder.files).identity == encoder.identity
        (['model.json', 'model.safetensors'], True)
        """
        try:
            return cls._read(files)
        except ValueError as error:
            raise ValueError(f"the model is damaged ({error})") from error

    @classmethod
    def of(cls, hasher: Hasher, place: str | os.PathLike[str] = "") -> Encoder:
        """Make the encoder of a fitted method, on the features that its `about` names, if any.

        Parameters
        ----------
        hasher : Hasher
            As `bitprint.train` returns it, or fitted on an `ImageSet`.
        place : path, optional
            Where it was read, for the errors.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> pictures = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> Encoder.of(create("itq", bits=16).fit(ImageSet(pictures))).size
        8
        """
        name, size, pictures = _parse_about({"about": hasher.about}, place)
        features = None
        if name is not None:
            if name == "pixels" and isinstance(hasher, FeatureHasher):
                size = _side(hasher)
            features = Features(name, size)
        return cls(hasher, features, pictures)

    @classmethod
    def _read(cls, files: Mapping[str, bytes], place: str | os.PathLike[str] = "") -> Encoder:
        encoder = cls.of(load_files(files, place), place)
        # Keep the description as it was read. This version may write other options, which would
        # change the identity.
        encoder.files = _with_about(files, encoder._about())
        return encoder

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The contents of `model.json` and `model.safetensors`, by these names.

        They are what an index stores of its model: those that the encoder was read from, if any.
        """
        return _with_about(unpack_files(self.hasher.to_bytes()), self._about())

    @cached_property
    def identity(self) -> str:
        """Equal for encoders that give the same codes: a description, and a digest of the model."""
        document = parse_description(self.files[DESCRIPTION])
        facts = {key: document[key] for key in ("method", "options", "fitted", "sha256")}
        facts["features"] = self.features and self.features.digest
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return f"{self.describe()} ({digest[:12]})"

    def describe(self) -> str:
        """Say in one line what makes the codes."""
        if self.features is None:
            assert isinstance(self.hasher, DeepHasher)
            made_of = f"trained end to end on {self.hasher.net_.trunk.name}"
        else:
            made_of = f"on {self.features.name} features"
        return f"{type(self.hasher).__name__}, {self.bits} bits, {made_of}"

    def encode(self, pictures: Sequence[Pixels]) -> Codes:
        """Codes of pictures of any sizes, each (height, width, 3).

        A picture is resized straight to a square, as `bitprint.data.decode_image` does it: what
        that gives for `size` has the code that the same file has in a collection.
        """
        squares = np.empty((len(pictures), self.size, self.size, 3), np.uint8)
        for row, picture in enumerate(pictures):
            squares[row] = _square(picture, self.size)
        return self.encode_squares(squares)

    def encode_squares(self, pictures: Pixels) -> Codes:
        """Codes of pictures that are squares of the right size, (n, size, size, 3)."""
        if len(pictures) == 0:
            return Codes(np.empty((0, -(-self.bits // 8)), np.uint8), self.bits)
        if self.features is None:
            return self.hasher.encode(ImageSet(pictures))
        return self.hasher.encode(self.features(pictures))

    def _about(self) -> dict[str, Any]:
        return {
            "features": self.features and self.features.name,
            "size": self.size,
            "pictures": self.pictures,
        }


def _with_about(files: Mapping[str, bytes], about: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a model with these further facts alone: no names of training data."""
    document = parse_description(files[DESCRIPTION]) | {"about": about}
    return {DESCRIPTION: dump_description(document), WEIGHTS: files[WEIGHTS]}


def _parse_about(
    document: Mapping[str, Any], place: str | os.PathLike[str]
) -> tuple[str | None, int, int | None]:
    """Return which features a model takes, the size of its pictures, and how many it has seen."""
    invalid = ValueError(f'{Path(place) / DESCRIPTION}: invalid "about" section')
    about = document.get("about")
    if not isinstance(about, dict):
        raise invalid
    name, pictures = about.get("features"), about.get("pictures")
    size = about.get("size", _FOLDER_SIZE)
    if not isinstance(name, str | None) or not isinstance(pictures, int | None):
        raise invalid
    if type(size) is not int or not 1 <= size <= _LARGEST_SIZE:
        raise invalid
    return name, size, pictures


def _side(hasher: Hasher) -> int:
    """Height of the square pictures whose pixels a hasher was fitted on."""
    count = int(getattr(hasher, "n_features_in_", 0))
    side = math.isqrt(count // 3)
    if side == 0 or 3 * side * side != count:
        raise ValueError(
            f"this {hasher.name} model was fitted on {count} features, which are not the pixels of "
            "a square picture; its model.json must name the features under about"
        )
    return side


def _square(picture: Pixels, size: int) -> Pixels:
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ValueError(
            "a picture is uint8 of shape (height, width, 3), "
            f"got {pixels.dtype} of shape {pixels.shape}"
        )
    return resize_pixels(pixels, size)
