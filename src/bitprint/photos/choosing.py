"""Which model a new collection gets: one that is given, coco-64, or one learned from its images."""

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

BITS = 64
"""Length of the codes of a model that is learned, by default."""

FEATURES = "efficientnet-lite0"
"""What a model is learned on, by default."""

FEW = 100
"""From fewer images than this no model is learned by default."""

READY_MADE = "coco-64"
"""The model of a collection that begins with few images."""


class Wanted(NamedTuple):
    """What a collection is asked to have, when its first images are added."""

    place: str | os.PathLike[str]
    """Path or address of the collection."""
    encoder: Encoder | None
    """The model, if one was given."""
    bits: int | None
    features: str | None


class Chosen(NamedTuple):
    """The model that a new collection got.

    Examples
    --------
    >>> chosen = Chosen("learned", 150, Listing([], [], [], [], []))
    >>> f"{chosen.origin} from {chosen.images} images"
    'learned from 150 images'
    """

    origin: Literal["given", "ready-made", "learned"]
    """Ready-made: coco-64, because there are fewer than 100 images."""
    images: int
    """Number of images that the model was learned from; else that the collection begins with."""
    listing: Listing
    """The images that the collection begins with, for `Photos.add`."""


def choose_encoder(
    wanted: Wanted, listing: Listing, progress: Progress | None = None
) -> tuple[Encoder, Chosen]:
    """Return the model of a new collection, learned from its first images where that is needed.

    Without a model, and unless bits or features ask for one that is learned, fewer than 100 images
    get coco-64.

    Parameters
    ----------
    wanted : Wanted
    listing : Listing
        The first images.
    progress : callable, optional
        Called with (done, total) while a model is learned.
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
    """Whether a model was learned from few images, where there are many now.

    Examples
    --------
    >>> import bitprint as bp
    >>> from bitprint.data import draw_shapes
    >>> from bitprint.photos.encoder import Encoder
    >>> hasher = bp.create("itq", bits=8).fit(draw_shapes(20, size=16))
    >>> has_outgrown(Encoder(hasher, pictures=20), images=500)
    True
    """
    learned_from = encoder.pictures or FEW
    return encoder.hasher.name == "itq" and learned_from < FEW <= images


def as_encoder(model: Model) -> Encoder:
    """Return the encoder of a model folder, of a model by name, or of a fitted hasher.

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
