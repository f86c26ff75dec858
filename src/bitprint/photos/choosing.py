"""Choose the model of a new collection: given, included, or learned from its images."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from bitprint.data.decoding import Progress
from bitprint.photos.files import Listing
from bitprint.photos.kept import kept_beside
from bitprint.search.stores import shown_place

if TYPE_CHECKING:
    from bitprint.methods import Hasher
    from bitprint.photos.encoder import Encoder

    Model = str | os.PathLike[str] | Hasher | Encoder

BITS = 256
"""Default code length of a learned model."""

FEATURES = "efficientnet-lite0"
"""Default features of a learned model."""

FEW = 500
"""With fewer images, no model is learned by default (`results/notes/photos.md`)."""

READY_MADE = "photos-256"
"""The model of collections with few images."""


class Wanted(NamedTuple):
    """The requested properties of a new collection."""

    place: str | os.PathLike[str]
    """Path or address of the collection."""
    encoder: Encoder | None
    """The given model, if any."""
    bits: int | None
    features: str | None


class Chosen(NamedTuple):
    """The model chosen for a new collection.

    Examples
    --------
    >>> chosen = Chosen("learned", 150, Listing([], [], [], [], []))
    >>> f"{chosen.origin} from {chosen.images} images"
    'learned from 150 images'
    """

    origin: Literal["given", "ready-made", "learned"]
    """"ready-made" is photos-256, used when there are fewer than 500 images."""
    images: int
    """Number of images the model was learned from; otherwise the number of first images."""
    listing: Listing
    """The first images of the collection; pass it to `Photos.add`."""


def choose_encoder(
    wanted: Wanted, listing: Listing, progress: Progress | None = None
) -> tuple[Encoder, Chosen]:
    """Return the model of a new collection; learn it from the first images if needed.

    If no model, bits or features are given, collections with fewer than 500 images use photos-256.

    Parameters
    ----------
    wanted : Wanted
    listing : Listing
        The first images.
    progress : callable, optional
        Called with (done, total) while a model is learned.

    Returns
    -------
    encoder : Encoder
    chosen : Chosen
    """
    from bitprint.photos.encoder import Encoder, Features
    from bitprint.photos.learning import learn_encoder

    count = len(listing.pictures)
    if wanted.encoder is not None:
        return wanted.encoder, Chosen("given", count, listing)
    if wanted.bits is None and wanted.features is None and count < FEW:
        return Encoder.load(READY_MADE), Chosen("ready-made", count, listing)
    encoder = learn_encoder(
        listing.pictures,
        kept_beside(shown_place(wanted.place)),
        bits=wanted.bits or BITS,
        features=Features(wanted.features or FEATURES),
        progress=progress,
    )
    return encoder, Chosen("learned", encoder.pictures or count, listing)


def has_outgrown(encoder: Encoder, images: int) -> bool:
    """Return whether a model was learned from fewer than 500 images and there are more now.

    Examples
    --------
    >>> import bitprint as bp
    >>> from bitprint.data import draw_shapes
    >>> from bitprint.photos.encoder import Encoder
    >>> hasher = bp.create("itq", bits=8).fit(draw_shapes(20, size=16))
    >>> has_outgrown(Encoder(hasher, pictures=20), images=600)
    True
    """
    learned_from = encoder.pictures or FEW
    return encoder.hasher.name == "itq" and learned_from < FEW <= images


def as_encoder(model: Model) -> Encoder:
    """Return the encoder of a model folder, a model name, or a fitted hasher.

    Examples
    --------
    >>> as_encoder("coco-64").bits
    64
    """
    from bitprint.methods import Hasher
    from bitprint.photos.encoder import Encoder

    if isinstance(model, Encoder):
        return model
    return Encoder.of(model) if isinstance(model, Hasher) else Encoder.load(model)
