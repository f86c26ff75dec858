"""Encode images with a fitted hasher and the features it was fitted on."""

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
from bitprint.utils.devices import pick_device

_FOLDER_SIZE = 256  # default side length, also of training images read from folders
_LARGEST_SIZE = 8192

Pixels = NDArray[np.uint8]


class Features:
    """Features of square images: "pixels", "gist", or those of a backbone.

    Parameters
    ----------
    name : str
        "pixels", "gist" or the name of a backbone.
    size : int, optional
        Height and width of the images; by default the input size of the network.

    Attributes
    ----------
    digest : str
        A hash of name, size and network weights. Equal digests mean equal features.
    trunk : Trunk or None
        The network of backbone features.

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
        """Return the features of images (n, size, size, 3), shape (n, d)."""
        if self.name == "pixels":
            return as_features(ImageSet(pictures))
        if self.trunk is None:
            return gist(pictures)
        return deep_features(pictures, self._network)

    @cached_property
    def _network(self) -> Trunk:
        """The network in its fastest form."""
        assert self.trunk is not None
        return self.trunk if pick_device("auto").type == "cuda" else self.trunk.frozen()


class Encoder:
    """A fitted hasher with its image preprocessing and features.

    Parameters
    ----------
    hasher : Hasher
        A fitted hasher. Hashers that encode queries differently from database images raise
        ValueError.
    features : Features, optional
        The features the hasher was fitted on; pixels by default. Ignored for a `DeepHasher` that
        was trained on images.
    pictures : int, optional
        Number of images it was fitted on, if known.

    Attributes
    ----------
    size : int
        Images are resized to squares of this height and width.

    Examples
    --------
    >>> from bitprint.methods import create
    >>> images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
    >>> encoder = Encoder(create("itq", bits=16).fit(ImageSet(images)))
    >>> encoder.encode([images[0], np.zeros((30, 20, 3), np.uint8)])
    Codes(2 x 16 bits)
    >>> encoder.describe()
    'ITQ, 16 bits, on pixels features'
    """

    def __init__(
        self, hasher: Hasher, features: Features | None = None, pictures: int | None = None
    ) -> None:
        if type(hasher).encode_queries is not Hasher.encode_queries:
            raise ValueError(
                f"{hasher.name} encodes queries differently from database images, which photo "
                "collections do not support; choose another method"
            )
        if isinstance(hasher, DeepHasher) and len(hasher.input_shape_) == 3:
            features = None
            self.size = int(hasher.input_shape_[0])
        elif isinstance(hasher, DeepHasher) and features is None:
            raise ValueError(
                f"this {hasher.name} model expects feature vectors, not images; its model.json "
                'must name the features in the "about" section'
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
        """Load a model folder written by `bitprint train` or `Hasher.save`.

        The "about" section of `model.json` contains the name of the features and the size of the
        images (256 by default).

        Examples
        --------
        >>> from bitprint.methods import create
        >>> images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> hasher = create("itq", bits=16).fit(ImageSet(images))
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     hasher.save(folder, features="pixels")
        ...     encoder = Encoder.load(folder)
        >>> encoder.encode_squares(images) == hasher.encode(ImageSet(images))
        True
        """
        return cls._read(read_files(folder), find_model(folder))

    @classmethod
    def from_files(cls, files: Mapping[str, bytes]) -> Encoder:
        """Create an encoder from the `files` of another one.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> encoder = Encoder(create("itq", bits=16).fit(ImageSet(images)))
        >>> sorted(encoder.files), Encoder.from_files(encoder.files).identity == encoder.identity
        (['model.json', 'model.safetensors'], True)
        """
        try:
            return cls._read(files)
        except ValueError as error:
            raise ValueError(f"the model is damaged ({error})") from error

    @classmethod
    def of(cls, hasher: Hasher, place: str | os.PathLike[str] = "") -> Encoder:
        """Create an encoder from a fitted method and the features named in its `about`.

        Parameters
        ----------
        hasher : Hasher
            Returned by `bitprint.train`, or fitted on an `ImageSet`.
        place : path, optional
            The model folder, for error messages.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> Encoder.of(create("itq", bits=16).fit(ImageSet(images))).size
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
        # Keep the description as read: this version may write other options, which would change
        # the identity.
        encoder.files = _with_about(files, encoder._about())
        return encoder

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The contents of `model.json` and `model.safetensors` by file name.

        An index stores them as its model. A loaded encoder returns the files it was loaded from.
        """
        return _with_about(unpack_files(self.hasher.to_bytes()), self._about())

    @cached_property
    def identity(self) -> str:
        """Description and hash of the model; equal for encoders that compute the same codes."""
        document = parse_description(self.files[DESCRIPTION])
        facts = {key: document[key] for key in ("method", "options", "fitted", "sha256")}
        facts["features"] = self.features and self.features.digest
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        return f"{self.describe()} ({digest[:12]})"

    def describe(self) -> str:
        """Return a one-line description of the model."""
        if self.features is None:
            assert isinstance(self.hasher, DeepHasher)
            made_of = f"trained end to end on {self.hasher.net_.trunk.name}"
        else:
            made_of = f"on {self.features.name} features"
        return f"{type(self.hasher).__name__}, {self.bits} bits, {made_of}"

    def encode(self, pictures: Sequence[Pixels]) -> Codes:
        """Return the codes of images of any size.

        Images are resized to squares without cropping. For the same code as that of a file in a
        collection, decode the file with `bitprint.data.decode_image` at `size`.

        Parameters
        ----------
        pictures : sequence of ndarray of uint8
            N images, each of shape (height, width, 3).

        Returns
        -------
        Codes
            Of length N.
        """
        return self.encode_squares(self._squares(pictures))

    def project(self, pictures: Sequence[Pixels]) -> NDArray[np.float32]:
        """Return the real-valued outputs for images of any size, shape (N, bits).

        A bit of the code is +1 if its output is at least 0.

        Examples
        --------
        >>> from bitprint.methods import create
        >>> images = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 3), np.uint8)
        >>> encoder = Encoder(create("itq", bits=16).fit(ImageSet(images)))
        >>> Codes.from_signs(encoder.project(images[:3]) >= 0) == encoder.encode(images[:3])
        True
        """
        squares = self._squares(pictures)
        return self.hasher.project(
            ImageSet(squares) if self.features is None else self.features(squares)
        )

    def encode_squares(self, pictures: Pixels) -> Codes:
        """Return the codes of square images, an array of shape (n, size, size, 3)."""
        if len(pictures) == 0:
            return Codes(np.empty((0, -(-self.bits // 8)), np.uint8), self.bits)
        if self.features is None:
            return self.hasher.encode(ImageSet(pictures))
        return self.hasher.encode(self.features(pictures))

    def _squares(self, pictures: Sequence[Pixels]) -> Pixels:
        squares = np.empty((len(pictures), self.size, self.size, 3), np.uint8)
        for row, picture in enumerate(pictures):
            squares[row] = _square(picture, self.size)
        return squares

    def _about(self) -> dict[str, Any]:
        return {
            "features": self.features and self.features.name,
            "size": self.size,
            "pictures": self.pictures,
        }


def _with_about(files: Mapping[str, bytes], about: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a model with a new "about" section, without training data names."""
    document = parse_description(files[DESCRIPTION]) | {"about": about}
    return {DESCRIPTION: dump_description(document), WEIGHTS: files[WEIGHTS]}


def _parse_about(
    document: Mapping[str, Any], place: str | os.PathLike[str]
) -> tuple[str | None, int, int | None]:
    """Return the feature name, the image size and the number of images a model was fitted on."""
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
    """Return the height of the square images whose pixels a hasher was fitted on."""
    count = int(getattr(hasher, "n_features_in_", 0))
    side = math.isqrt(count // 3)
    if side == 0 or 3 * side * side != count:
        raise ValueError(
            f"this {hasher.name} model was fitted on {count} features, which are not the pixels of "
            'a square image; its model.json must name the features in the "about" section'
        )
    return side


def _square(picture: Pixels, size: int) -> Pixels:
    pixels = np.asarray(picture)
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
        raise ValueError(
            "an image must be a uint8 array of shape (height, width, 3), "
            f"got {pixels.dtype} of shape {pixels.shape}"
        )
    return resize_pixels(pixels, size)
