"""Encode all images of a collection again with another model."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from bitprint.data.decoding import Progress
from bitprint.photos.collection import Added, Photos
from bitprint.photos.files import Listing, expanded, list_stored
from bitprint.photos.ledger import Ledger, is_own_attachment
from bitprint.search.file import log_of
from bitprint.search.stores import is_uri

if TYPE_CHECKING:
    from bitprint.photos.choosing import Chosen, Model


def rebuild(
    path: str | os.PathLike[str],
    *,
    model: Model | None = None,
    bits: int | None = None,
    features: str | None = None,
    learning: Progress | None = None,
    progress: Progress | None = None,
    on_choice: Callable[[Chosen], None] | None = None,
) -> Added:
    """Replace a collection by one with the same images, labels and folders, and a new model.

    The new codes are computed in a second file next to the first, which is replaced at the end. If
    the call is interrupted, the collection is unchanged; repeat the call to resume it.

    Parameters
    ----------
    path : path
        The file of the collection.
    model, bits, features
        As in `Photos.open_or_create`. By default the model is chosen as for a new collection.
    learning, progress : callable, optional
        Called with (done, total) images while the model is learned, and while images are encoded.
    on_choice : callable, optional
        Called with the chosen model, unless an interrupted call is resumed.

    Returns
    -------
    Added
        Images that can no longer be decoded are in `skipped`; the new collection lacks them.

    Raises
    ------
    FileNotFoundError
        If files of images are missing, for example because a disk is not mounted.

    Examples
    --------
    >>> import tempfile
    >>> from bitprint.data import draw_shapes
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number, pixels in enumerate(draw_shapes(4).pixels):
    ...         Image.fromarray(pixels).save(f"{folder}/{number}.png")
    ...     file = f"{folder}/photos.bp"
    ...     with Photos.open_or_create(file, bits=8, features="gist") as photos:
    ...         added = photos.add(folder)
    ...     added = rebuild(file, bits=16, features="gist")
    ...     with Photos.open(file) as photos:
    ...         photos.encoder.describe(), len(photos)
    ('ITQ, 16 bits, on gist features', 4)
    """
    if is_uri(path):
        raise ValueError(f"{path}: only collections in files can be rebuilt; create a new one")
    place = expanded(path)
    draft = place.with_name(f"{place.name}.rebuilt")
    with (
        Photos.open(place) as former,
        Photos.open_or_create(draft, model=model, bits=bits, features=features) as photos,
    ):
        listing = _list_again(former)
        chosen = photos.choose_model(listing, progress=learning)
        if chosen is not None and on_choice is not None:
            on_choice(chosen)
        added = photos.add(listing, progress=progress)
        _drop_others(photos, listing)
        others = former.index.attachments()
        photos.index.attach({name: others[name] for name in others if not is_own_attachment(name)})
        if _list_again(former) != listing:
            raise ValueError(
                f"{place}: another process changed the collection in the meantime; repeat the call"
            )
    if log_of(draft.resolve()).exists():
        raise OSError(
            f"{draft}: could not be completed, because the disk is full or another process has it "
            "open; repeat the call"
        )
    if log_of(place.resolve()).exists():
        raise ValueError(
            f"{place}: another process, such as a server, has this collection open; stop it and "
            "repeat the call (the new codes are stored)"
        )
    draft.replace(place.resolve())
    return added


def _drop_others(photos: Photos, listing: Listing) -> None:
    """Remove images that an interrupted call has stored and that are no longer listed."""
    ledger = Ledger(photos.index)
    listed = {picture.path for picture in listing.pictures}
    ledger.forget([path for path in ledger.facts() if path not in listed])


def _list_again(photos: Photos) -> Listing:
    """List the stored images with their labels and the folders of the collection."""
    ledger = Ledger(photos.index)
    stored = list(ledger.facts())
    labels, places = ledger.labels(stored), ledger.places()
    listing = list_stored(stored)
    if listing.skipped:
        name, reason = listing.skipped[0]
        raise FileNotFoundError(
            f"{photos.index.path}: {len(listing.skipped)} images cannot be read; the first, "
            f"{name}: {reason}; mount their disk, or run `bitprint index sync` first"
        )
    pictures = [picture._replace(labels=labels[picture.path]) for picture in listing.pictures]
    return listing._replace(pictures=pictures, folders=places.folders, parents=places.parents)
