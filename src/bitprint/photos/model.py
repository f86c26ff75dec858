"""The model inside of an index of pictures: what made its codes, and makes those of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitprint.search.stores.interface import Store

if TYPE_CHECKING:
    from bitprint.photos.encoder import Encoder

_MODEL = "model/"
_DESCRIPTION = _MODEL + "model.json"


def holds_pictures(index: Store) -> bool:
    """Whether an index has a model inside, so that `Photos` can open it.

    Other attachments do not matter: programs may keep their own in an index of codes.

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


def check_holds_pictures(index: Store) -> None:
    """Raise a ValueError if an index has no model inside."""
    if not holds_pictures(index):
        if index.attachments(_MODEL):
            raise ValueError(f"{index.path}: the model is damaged (model.json: missing)")
        raise ValueError(
            f"{index.path}: holds codes without the model that made them, so that pictures "
            "cannot be encoded for it; use codes, or make another index for pictures"
        )


def to_attachments(encoder: Encoder) -> dict[str, bytes]:
    """Return the attachments by which an index stores a model."""
    return {_MODEL + name: content for name, content in encoder.files.items()}


def load_encoder(index: Store) -> Encoder:
    """Load the model of an index; raises a ValueError if it gives other codes here."""
    from bitprint.photos.encoder import Encoder

    found = index.attachments(_MODEL)
    try:
        encoder = Encoder.from_files({name.removeprefix(_MODEL): found[name] for name in found})
    except ValueError as error:
        raise ValueError(f"{index.path}: {error}") from error
    if encoder.identity != index.model:
        raise ValueError(
            f"{index.path}: its codes were made by {index.model}, but what is installed here makes "
            f"those of {encoder.identity}; make another index"
        )
    return encoder
