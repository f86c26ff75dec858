"""The model inside of an index of pictures: what made its codes, and makes those of queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bitprint.search.stores.interface import Store

if TYPE_CHECKING:
    from bitprint.photos.encoder import Encoder

_MODEL = "model/"


def holds_pictures(index: Store) -> bool:
    """Whether an index has a model inside, so that `Photos` can open it.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/codes.bp", bits=16) as index:
    ...         holds_pictures(index)
    False
    """
    return bool(index.attachments(_MODEL + "model.json"))


def to_attachments(encoder: Encoder) -> dict[str, bytes]:
    """Return what an index holds of a model."""
    return {_MODEL + name: content for name, content in encoder.files.items()}


def read_files(index: Store) -> dict[str, bytes]:
    """Return the files of the model; raises a ValueError if the index has none."""
    found = index.attachments(_MODEL)
    if not found:
        raise ValueError(
            f"{index.path}: holds codes without the model that made them, so that pictures "
            "cannot be encoded for it; use codes, or make another index for pictures"
        )
    return {name.removeprefix(_MODEL): content for name, content in found.items()}


def load_encoder(index: Store, files: Mapping[str, bytes]) -> Encoder:
    """Make the encoder of its files; raises a ValueError if it gives other codes here."""
    from bitprint.photos.encoder import Encoder

    try:
        encoder = Encoder.from_files(files)
    except ValueError as error:
        raise ValueError(f"{index.path}: {error}") from error
    if encoder.identity != index.model:
        raise ValueError(
            f"{index.path}: its codes were made by {index.model}, but what is installed here makes "
            f"those of {encoder.identity}; make another index"
        )
    return encoder
