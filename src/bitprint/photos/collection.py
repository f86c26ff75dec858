"""Photos: a searchable collection of image files, stored with its model in one index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bitprint.codes import Codes
from bitprint.data.decoding import Progress
from bitprint.photos.below import OrderedPaths
from bitprint.photos.choosing import (
    BITS,
    FEATURES,
    Chosen,
    Wanted,
    as_encoder,
    choose_encoder,
    has_outgrown,
)
from bitprint.photos.files import (
    Listing,
    Picture,
    Skipped,
    Source,
    absolute,
    expanded,
    is_below,
    named,
)
from bitprint.photos.kept import KeptFeatures, discard_kept, kept_beside
from bitprint.photos.ledger import (
    Fact,
    Ledger,
    check_holds_pictures,
    holds_pictures,
    load_encoder,
    to_attachments,
)
from bitprint.photos.searching import Hit, find_hits, read_query
from bitprint.photos.sources import list_for_new, list_some
from bitprint.photos.syncing import (
    Added,
    Synced,
    find_gone,
    find_moved,
    find_removed,
    keep_labels,
    list_again,
    list_folders,
)
from bitprint.search.closing import Closable, on_error
from bitprint.search.promises import grouped
from bitprint.search.stores import (
    Store,
    check_same,
    index_exists,
    is_uri,
    open_index,
    shown_place,
)

if TYPE_CHECKING:
    from bitprint.photos.choosing import Model
    from bitprint.photos.encoder import Encoder
    from bitprint.photos.searching import Query

__all__ = ["Added", "Chosen", "Hit", "Photos", "Synced", "holds_pictures"]


class Photos(Closable):
    """A collection of images that can be searched by example.

    One index file stores the codes, the model, and the size and modification time of each image
    file. The ids in the index are the absolute paths of the files, with forward slashes.

    Attributes
    ----------
    encoder : Encoder
        The model that computes the codes; loaded from the index on first use.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> from bitprint.data import draw_shapes
    >>> from PIL import Image
    >>> scenes = draw_shapes(20, size=64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number, pixels in enumerate(scenes.pixels):
    ...         Image.fromarray(pixels).save(f"{folder}/{number}.png")
    ...     with bp.Photos.open_or_create(f"{folder}/photos.bp") as photos:
    ...         added = photos.add(folder)
    ...         for hit in photos.search(f"{folder}/7.png", k=1):
    ...             print(hit.distance, Path(hit.path).name)
    0 7.png
    >>> added.new
    20
    """

    def __init__(self, index: Store | None, wanted: Wanted | None = None) -> None:
        if index is not None:
            check_holds_pictures(index)
        self._index = index
        self._wanted = wanted

    @classmethod
    def open_or_create(
        cls,
        path: str | os.PathLike[str],
        *,
        model: Model | None = None,
        bits: int | None = None,
        features: str | None = None,
    ) -> Photos:
        """Open a collection, or prepare a new one that the first `add` creates.

        The model of a new collection is chosen when its first images are added. With fewer than
        500 images it is photos-256, a model for photographs that is included in Bitprint. With
        500 images or more, or if `bits` or `features` are given, it is learned from the images as
        in `learn`. Images that are added later are encoded by the same model.

        Parameters
        ----------
        path : path, or address of a store
        model : path, Hasher or Encoder, optional
            The model of a new collection: a folder written by `bitprint train` or `Hasher.save`,
            the name of an included model, or a fitted method.
        bits : int, optional
            Code length of a learned model; 256 by default.
        features : str, optional
            Features of a learned model; those of EfficientNet-Lite0 by default.

        Returns
        -------
        Photos

        Raises
        ------
        ValueError
            If the collection exists and has another model, code length or features.

        Examples
        --------
        >>> photos = Photos.open_or_create("no such folder/photos.bp")
        >>> len(photos)
        0
        >>> photos.search("cat.jpg")
        Traceback (most recent call last):
        ValueError: no such folder/photos.bp: no images yet; first use photos.add("~/Pictures")
        """
        if model is not None and (bits is not None or features is not None):
            raise ValueError("a model already has bits and features; give only model")
        place = _place(path)
        if not index_exists(place):
            encoder = None if model is None else as_encoder(model)
            return cls(None, Wanted(place, encoder, bits, features))
        photos = cls.open(place)
        with on_error(photos.close):
            photos._check_wanted(model, bits, features)
        return photos

    @classmethod
    def create(cls, path: str | os.PathLike[str], encoder: Encoder) -> Photos:
        """Create an empty collection at a path or address that does not exist yet."""
        index = open_index(
            _place(path),
            bits=encoder.bits,
            model=encoder.identity,
            create=True,
            attachments=to_attachments(encoder),
        )
        with on_error(index.close):
            photos = cls(index)
        photos.encoder = encoder
        return photos

    @classmethod
    def learn(
        cls,
        path: str | os.PathLike[str],
        source: Source | Listing,
        *,
        bits: int = BITS,
        features: str = FEATURES,
        progress: Progress | None = None,
    ) -> Photos:
        """Create an empty collection with a model learned from images without labels.

        The model is ITQ on features of a pretrained network, fitted on all images, or on 10,000
        random ones if there are more. The features are stored in a folder next to the index until
        `add` has used them; repeat an interrupted call to resume it.

        The code length may exceed the number of images. From about 500 images on, more improve the
        codes of other images only slightly (`results/notes/photos.md`).

        Parameters
        ----------
        path : path, or address of a store
            Must not exist yet.
        source : path, iterable of paths, or Listing
            As in `add`.
        bits : int, default=256
            At most the number of features.
        features : str
            As in `bitprint.photos.encoder.Features`.
        progress : callable, optional
            Called with (done, total) images.

        Returns
        -------
        Photos

        Examples
        --------
        >>> import tempfile
        >>> from bitprint.data import draw_shapes
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for number, pixels in enumerate(draw_shapes(4).pixels):
        ...         Image.fromarray(pixels).save(f"{folder}/{number}.png")
        ...     path = f"{folder}/photos.bp"
        ...     with Photos.learn(path, folder, bits=16, features="gist") as photos:
        ...         photos.encoder.describe(), photos.add(folder).new
        ('ITQ, 16 bits, on gist features', 4)
        """
        from bitprint.photos.encoder import Features
        from bitprint.photos.learning import learn_encoder

        path = _place(path)
        place = shown_place(path)
        if index_exists(path):
            raise FileExistsError(f"{place}: already exists; open it, or choose another name")
        encoder = learn_encoder(
            list_for_new([source]).pictures,
            kept_beside(place),
            bits=bits,
            features=Features(features),
            progress=progress,
        )
        return cls.create(path, encoder)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Photos:
        """Open an existing collection by its path or by the address of its store."""
        index = open_index(_place(path))
        with on_error(index.close):
            return cls(index)

    def close(self) -> None:
        """Close the index."""
        if self._index is not None:
            self._index.close()

    def __len__(self) -> int:
        return 0 if self._index is None else len(self._index)

    @property
    def index(self) -> Store:
        """The index of the codes: an `Index` or an index in another store."""
        if self._index is None:
            assert self._wanted is not None
            raise ValueError(
                f"{shown_place(self._wanted.place)}: no images yet; "
                'first use photos.add("~/Pictures")'
            )
        return self._index

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.index)

    @cached_property
    def encoder(self) -> Encoder:
        """The model that computes the codes."""
        return load_encoder(self.index)

    @property
    def roots(self) -> list[Path]:
        """The folders from which images were added."""
        folders, parents = self._ledger.places()
        return [Path(place) for place in dict.fromkeys(folders + parents)]

    def check_model(self, model: Model) -> None:
        """Raise a ValueError unless the codes were computed by this model.

        Parameters
        ----------
        model : path, Hasher or Encoder

        Examples
        --------
        >>> import tempfile
        >>> from bitprint.data import draw_shapes
        >>> from bitprint.methods import create
        >>> from bitprint.photos.encoder import Encoder
        >>> scenes = draw_shapes(3, size=16)
        >>> encoder = Encoder(create("itq", bits=2).fit(scenes))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     encoder.hasher.save(f"{folder}/model", features="pixels")
        ...     create("lsh", bits=2).fit(scenes).save(f"{folder}/other", features="pixels")
        ...     with Photos.create(f"{folder}/photos.bp", encoder) as photos:
        ...         photos.check_model(f"{folder}/model")
        ...         try:
        ...             photos.check_model(f"{folder}/other")
        ...         except ValueError as error:
        ...             print("cannot be compared" in str(error))
        True
        """
        check_same(self.index, model=as_encoder(model).identity)

    def _check_wanted(self, model: Model | None, bits: int | None, features: str | None) -> None:
        """Raise a ValueError if an existing collection has another model, bits or features."""
        check_same(self.index, bits=bits)
        if model is not None:
            self.check_model(model)
        if features is not None:
            used = self.encoder.features
            if used is None or used.name != features:
                raise ValueError(
                    f"{self.index.path}: the codes were computed by {self.encoder.describe()}, "
                    f"not on {features} features; create another index"
                )

    def has_outgrown_model(self) -> bool:
        """Return whether the model was learned from under 500 images and there are more now."""
        return has_outgrown(self.encoder, len(self))

    def choose_model(
        self, *sources: Source | Listing, progress: Progress | None = None
    ) -> Chosen | None:
        """Choose the model for the first images and create the collection; `add` calls this.

        Call it before `add` to get the chosen model, or to show the progress of learning.

        Parameters
        ----------
        *sources : path, iterable of paths, or Listing
            As in `add`.
        progress : callable, optional
            Called with (done, total) images while a model is learned.

        Returns
        -------
        Chosen or None
            Pass `Chosen.listing` to `add`, which then does not list the sources again. None if
            the collection already exists.

        Examples
        --------
        >>> import tempfile
        >>> from bitprint.data import draw_shapes
        >>> from PIL import Image
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for number, pixels in enumerate(draw_shapes(4).pixels):
        ...         Image.fromarray(pixels).save(f"{folder}/{number}.png")
        ...     path = f"{folder}/photos.bp"
        ...     with Photos.open_or_create(path, bits=16, features="gist") as photos:
        ...         chosen = photos.choose_model(folder)
        ...         added = photos.add(chosen.listing)
        ...         print(f"{chosen.origin} from {chosen.images} images, {added.new} added")
        ...         photos.has_outgrown_model()
        learned from 4 images, 4 added
        False
        """
        if self._index is not None:
            return None
        assert self._wanted is not None
        encoder, chosen = choose_encoder(self._wanted, list_for_new(sources), progress)
        self._index = Photos.create(self._wanted.place, encoder).index
        self.encoder = encoder
        return chosen

    def search(self, query: Query, k: int = 10, *, label: str | None = None) -> list[Hit]:
        """Find the images most similar to a query, most similar first.

        The 100 nearest codes, or k if that is more, are ordered by their inner product with the
        real-valued outputs of the model for the query, which are more precise than its code. If the
        query is a code, the hits are ordered by Hamming distance.

        Parameters
        ----------
        query : path, PIL image, ndarray of uint8 (height, width, 3), or Codes of length 1
        k : int, default=10
            Maximum number of hits.
        label : str, optional
            Return only images with this label.

        Returns
        -------
        list of Hit
            Each has `id`, `path`, `distance` and `labels`.
        """
        index, outputs = self.index, None
        if not isinstance(query, Codes):
            outputs = self.encoder.project([read_query(query, self.encoder.size)])
            query = Codes.from_signs(outputs >= 0)
        if len(query) != 1:
            raise ValueError(f"search expects one image or one code, got {len(query)} codes")
        return find_hits(index, query, k, label, outputs)[0]

    def add(self, *sources: Source | Listing, progress: Progress | None = None) -> Added:
        """Add the images of folders, CSVs or files; encode new and changed images only.

        If a source gives labels for an unchanged image, its labels are replaced without encoding it
        again.

        Codes are written in batches. If a call is interrupted, only the last batch is lost; repeat
        the call to resume it.

        Parameters
        ----------
        *sources : path, iterable of paths, or Listing
            Each is a folder, a CSV, an image file, or a list of image files, see
            `bitprint.photos.files.list_pictures`. A `Listing` is not listed again.
        progress : callable, optional
            Called with (done, total) images to encode.

        Returns
        -------
        Added
        """
        chosen = self.choose_model(*sources, progress=progress)
        listing = (
            list_some(sources, self._ledger.places().folders) if chosen is None else chosen.listing
        )
        self._ledger.add_places(listing)
        return self._encode_changed(listing, progress)

    def sync(self, *folders: str | os.PathLike[str], progress: Progress | None = None) -> Synced:
        """Update the index after images were added, changed, moved or deleted on disk.

        New and changed images are encoded. Deleted images are removed from the index. A moved
        image, recognized by its size, modification time and first 64 KiB, gets its new path without
        being encoded again. If only the modification time differs and no other image has the same
        size and beginning, the image also counts as moved, but is encoded again. Labels that came
        from a folder are updated; other labels are kept. A sub-folder that was replaced by a
        symbolic link is not searched for new images, but its indexed images are still updated.

        Unmounted disks do not remove images. If no image is left of an added folder, or if the
        folder of individually added files is empty or missing, an error is raised. The images of
        an empty sub-folder are kept, and the sub-folder is listed in `Synced.skipped`.

        Parameters
        ----------
        *folders : path
            By default, all added folders and all individually added files.
        progress : callable, optional
            As in `add`.

        Returns
        -------
        Synced

        Raises
        ------
        FileNotFoundError
            If an added folder is missing.
        ValueError
            If no image is left of an added folder, or a new folder contains no images.

        Examples
        --------
        >>> import tempfile
        >>> from bitprint.data import draw_shapes
        >>> from bitprint.methods import create
        >>> from bitprint.photos.encoder import Encoder
        >>> from PIL import Image
        >>> scenes = draw_shapes(3, size=16)
        >>> encoder = Encoder(create("itq", bits=2).fit(scenes))
        >>> with tempfile.TemporaryDirectory() as name:
        ...     folder = Path(name).resolve()
        ...     for number, pixels in enumerate(scenes.pixels):
        ...         Image.fromarray(pixels).save(folder / f"{number}.png")
        ...     Photos.create(folder / "photos.bp", encoder).close()
        ...     with Photos.open(folder / "photos.bp") as photos:
        ...         added = photos.add(folder)
        ...         _ = (folder / "0.png").rename(folder / "first.png")
        ...         (folder / "1.png").unlink()
        ...         synced = photos.sync()
        ...         removed = photos.remove([folder / "2.png"])
        ...         left, same = photos.index.ids().tolist(), photos.roots == [folder]
        >>> added.new, len(synced.moved), len(synced.removed), removed
        (3, 1, 1, 1)
        >>> [Path(path).name for path in left], same
        (['first.png'], True)
        """
        facts = self._ledger.facts()
        listing = (
            list_folders(folders, self._ledger, facts)
            if folders
            else list_again(self._ledger, facts)
        )
        gone = find_gone(listing, facts)
        moved = find_moved(listing.pictures, gone, facts)
        left = {old for old, _ in moved}
        lost = [
            path
            for path in gone
            if path not in left
            and (not folders or any(is_below(path, place) for place in listing.folders))
        ]
        removed, waiting = find_removed(listing, lost, facts)
        listing = listing._replace(skipped=listing.skipped + waiting)
        with grouped(self.index):
            # Another process may have changed the index in the meantime.
            stored = self._ledger.facts()
            moved = [(old, picture) for old, picture in moved if stored.get(old) == facts[old]]
            removed = [path for path in removed if stored.get(path) == facts[path]]
            listing, moved = keep_labels(listing, moved, self._ledger, stored)
            self._ledger.move(moved, facts)
            self._ledger.forget(removed)
            self._ledger.add_places(listing)
            self._ledger.drop_places()
        added = self._encode_changed(listing, progress)
        dates = {picture.path: picture.modified for picture in listing.pictures}
        as_it_was = [picture for _, picture in moved if picture.modified == dates[picture.path]]
        return Synced(
            added.new,
            added.unchanged - len(as_it_was),
            added.skipped,
            [(old, picture.path) for old, picture in moved],
            removed,
            added.left_out,
            added.relabelled,
        )

    def remove(self, names: Iterable[str | os.PathLike[str]]) -> int:
        """Remove images from the index; return how many were removed.

        The files are not deleted. The next `add` of their folder adds them again.

        Parameters
        ----------
        names : iterable of paths
            Image files, and folders, of which all images are removed.
        """
        chosen: dict[str, None] = {}
        places = []
        with grouped(self.index):
            stored = OrderedPaths(self._ledger.facts())
            for name in names:
                place = absolute(named(name)).as_posix()
                below = stored.below(place)
                if not below:
                    raise ValueError(
                        f"{self.index.path}: the index contains no image or folder {name}"
                    )
                chosen |= dict.fromkeys(below)
                places.append(place)
            self._ledger.forget(list(chosen))
            self._ledger.drop_places(places)
        return len(chosen)

    def _encode_changed(self, listing: Listing, progress: Progress | None) -> Added:
        with grouped(self.index):
            facts = self._ledger.facts()
            stored = self._ledger.labels([p.path for p in listing.pictures if p.path in facts])
            # A source without labels keeps the stored labels.
            pictures = [
                picture if picture.labels else picture._replace(labels=stored.get(picture.path, ()))
                for picture in listing.pictures
            ]
            due = [
                picture
                for picture in pictures
                if facts.get(picture.path, (None, None))[:2] != (picture.size, picture.modified)
            ]
            changed = {picture.path for picture in due}
            relabelled = [
                picture
                for picture in pictures
                if picture.path not in changed and picture.labels != stored[picture.path]
            ]
            self._ledger.relabel(relabelled)
        skipped = self._encode(due, progress) if due else []
        discard_kept(kept_beside(self.index.path))
        self._forget_unreadable([path for path, _ in skipped if path in facts], facts)
        return Added(
            len(due) - len(skipped),
            len(pictures) - len(due),
            listing.skipped + skipped,
            listing.left_out,
            len(relabelled),
        )

    def _forget_unreadable(self, paths: Sequence[str], facts: dict[str, Fact]) -> None:
        """Remove changed files that cannot be read, unless another process updated them."""
        if paths:
            with grouped(self.index):
                stored = self._ledger.facts()
                self._ledger.forget([path for path in paths if stored.get(path) == facts[path]])

    def _encode(self, pictures: Sequence[Picture], progress: Progress | None) -> Skipped:
        from bitprint.photos.encoding import encode_pictures

        features = self.encoder.features
        place = kept_beside(self.index.path)
        kept = None if features is None else KeptFeatures(place, features.digest)
        return encode_pictures(pictures, self.encoder, self._ledger, kept, progress)


def _place(path: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return the path or address of an index, with `~` expanded in a path."""
    return path if is_uri(path) else expanded(path)
