"""Store computed features next to an index until all images are indexed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bitprint.data.home import data_home
from bitprint.photos.files import Picture
from bitprint.search.stores import is_uri
from bitprint.utils.files import write_atomically

Key = tuple[str, int, int]

_PART = re.compile(r"[0-9]{6,}\.npz")
_PARTIAL = re.compile(r"[0-9]{6,}\.npz\.partial")  # left by a crash


class KeptFeatures:
    """Stored feature vectors of images; those of changed files are ignored.

    Parameters
    ----------
    folder : Path
        The folder of the stored features, created by the first `keep`.
    digest : str
        Identifies the features, see `Features.digest`. Other features in the folder are ignored.
    """

    def __init__(self, folder: Path, digest: str) -> None:
        self._folder = folder
        self._digest = digest
        self._vectors: dict[Key, NDArray[np.float32]] = {}
        self._parts = 0
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(
                f"{folder}: is a file, but a folder for features is needed; "
                "rename this file or the index"
            )
        for part in sorted(_named(folder, _PART)):
            self._read(part)

    def get(self, picture: Picture) -> NDArray[np.float32] | None:
        """Return the features of an image, shape (d,), or None."""
        return self._vectors.get(_key(picture))

    def keep(self, pictures: Sequence[Picture], features: NDArray[np.float32]) -> None:
        """Write the features (n, d) of n images to disk."""
        keys = [_key(picture) for picture in pictures]
        about = json.dumps({"digest": self._digest, "pictures": keys}).encode()
        content = io.BytesIO()
        np.savez(content, features=features, about=np.frombuffer(about, np.uint8))
        write_atomically(self._folder / f"{self._parts:06d}.npz", content.getvalue())
        self._parts += 1
        self._vectors.update(zip(keys, features, strict=True))

    def _read(self, part: Path) -> None:
        try:
            with np.load(part) as arrays:
                features, about = arrays["features"], json.loads(arrays["about"].tobytes())
            if features.dtype != np.float32 or features.ndim != 2:
                raise ValueError(f"features are {features.dtype} of shape {features.shape}")
            keys = [(path, size, modified) for path, size, modified in about["pictures"]]
            vectors: dict[Key, NDArray[np.float32]] = dict(zip(keys, features, strict=True))
            matches = about["digest"] == self._digest
            self._parts = int(part.stem) + 1
        except Exception as error:  # NumPy and zipfile raise many types for damaged files
            raise ValueError(f"{part}: damaged ({error}); delete this file") from error
        if matches:
            self._vectors.update(vectors)


def kept_beside(place: str | os.PathLike[str]) -> Path:
    """Return the folder of stored features: next to the index file or in the data folder.

    Examples
    --------
    >>> kept_beside("albums/photos.bp").as_posix()
    'albums/photos.bp.features'
    """
    if is_uri(place):
        name = hashlib.sha256(str(place).encode()).hexdigest()[:16]
        return data_home() / "photos" / f"{name}.features"
    return Path(place).with_name(Path(place).name + ".features")


def discard_kept(folder: Path) -> None:
    """Delete the files of `KeptFeatures` in a folder, and the folder if it is then empty."""
    for part in [*_named(folder, _PART), *_named(folder, _PARTIAL)]:
        part.unlink()
    with suppress(OSError):  # the folder does not exist or contains other files
        folder.rmdir()


def _named(folder: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    """Yield the files of a folder whose names match a pattern."""
    for path in folder.glob("*"):
        if pattern.fullmatch(path.name) and path.is_file():
            yield path


def _key(picture: Picture) -> Key:
    return picture.path, picture.size, picture.modified
