"""Workflows: split an image set, train on one part of it, evaluate on the rest.

`bitprint train` and `bitprint evaluate` call these functions. They also record the training set in
the model file, and check that queries were not used in training.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bitprint.codes import check_bits
from bitprint.data import ImageSet, Split, open_images, split_for
from bitprint.data.decoding import Progress
from bitprint.data.inputs import Data, read_inputs
from bitprint.data.protocols import check_protocol
from bitprint.features import check_features, extract, width
from bitprint.methods import DeepHasher, FeatureHasher, Hasher, create
from bitprint.methods import method as method_class
from bitprint.methods._store import read_description
from bitprint.methods.estimate import estimate_training, spell_time
from bitprint.methods.recipes import Items, settle
from bitprint.nets import backbone_kind
from bitprint.supervision import check_several_classes
from bitprint.training.distributed import current_workers
from bitprint.training.run import has_checkpoint, other_run_error
from bitprint.utils.devices import pick_device

if TYPE_CHECKING:
    from bitprint.evaluation import Report

Note = Callable[[str], None]
_LONG = 1800  # seconds on a CPU; for longer training a faster way is suggested


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """An image set that is split by a protocol.

    Attributes
    ----------
    images : ImageSet
        The whole set.
    rows : Split
        Row numbers of the parts, name of the protocol, seed, and cutoff of MAP.
    protocol : int
        1 or 2.
    training, queries, database : ImageSet
        The parts; they share the pixels of the set.

    Examples
    --------
    >>> from bitprint.data import load_digits
    >>> parts = split(load_digits(), seed=0)
    >>> parts
    ImageSplit('digits/1', seed 0: 185 queries, 1612 training, 1612 database)
    >>> len(parts.training), len(parts.queries), len(parts.database), parts.rows.map_at
    (1612, 185, 1612, None)
    """

    images: ImageSet
    rows: Split
    protocol: int

    @property
    def training(self) -> ImageSet:
        """Training images."""
        return self.images.subset(self.rows.training)

    @property
    def queries(self) -> ImageSet:
        """Query images."""
        return self.images.subset(self.rows.queries)

    @property
    def database(self) -> ImageSet:
        """Images that are searched."""
        return self.images.subset(self.rows.database)

    def __repr__(self) -> str:
        return f"Image{self.rows!r}"


def split(images: ImageSet, protocol: int = 1, seed: int = 0) -> ImageSplit:
    """Split an image set into training images, queries and a database.

    A set with its own split keeps it. CIFAR-10 and NUS-WIDE are split by their published protocols,
    any other set by a general rule, see `bitprint.data.split_for`. Images without a label are left
    out.

    Parameters
    ----------
    images : ImageSet
        A set with labels.
    protocol : {1, 2}
        1 uses a small training set, 2 all images that are not queries.
    seed : int

    Returns
    -------
    ImageSplit

    Examples
    --------
    >>> import bitprint as bp
    >>> parts = bp.split(bp.open_images("digits"), protocol=1, seed=0)
    >>> len(parts.training), len(parts.queries), len(parts.database)
    (1612, 185, 1612)
    """
    if not isinstance(images, ImageSet):
        raise ValueError(
            f"split takes an ImageSet, got {type(images).__name__}; create one with "
            "bp.open_images(folder) or bp.ImageSet(pixels, labels)"
        )
    check_labeled(images)
    images = images.labelled()
    return ImageSplit(images, split_for(images, protocol, seed), protocol)


def training_images(
    images: ImageSet, method: str, protocol: int | None = None, seed: int = 0
) -> ImageSplit | ImageSet:
    """Return the training data of a method: a split of the set, or the whole set.

    Images without a label are left out, unless the set is not split and the method needs no labels.

    Parameters
    ----------
    images : ImageSet
    method : str
        Name of the method.
    protocol : {1, 2}, optional
        By default 1 for a set with its own split or protocol; another set is not split.
    seed : int
        Seed of the split.

    Returns
    -------
    ImageSplit or ImageSet

    Examples
    --------
    >>> from bitprint.data import load_digits
    >>> training_images(load_digits(), "dsdh")
    ImageSplit('digits/1', seed 0: 185 queries, 1612 training, 1612 database)
    """
    if protocol is None and (images.protocol is not None or images.split is not None):
        protocol = 1
    images = _learnable(images, method)
    return images if protocol is None else split(images, protocol, seed)


def _learnable(images: ImageSet, method: str) -> ImageSet:
    """Return the images that a method can learn from, or raise a ValueError."""
    if method_class(method).supervision == "labels":
        check_labeled(images)
        images = images.labelled()
        assert images.labels is not None
        check_several_classes(images.labels)
    return images


def check_training(
    method: str,
    bits: int,
    *,
    features: str | None = None,
    protocol: int | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Hasher:
    """Return the untrained hasher, or raise a ValueError for invalid options.

    Reads no images, so that options can be validated before loading data.

    Parameters
    ----------
    method, bits, features, out, **options
        As in `train`.
    protocol : {1, 2}, optional

    Returns
    -------
    Hasher

    Examples
    --------
    >>> check_training("dsdh", 12, features="gist")
    DSDH(bits=12)
    >>> check_training("dsdh", 12, features="gist", backbone="small")
    Traceback (most recent call last):
    ValueError: give features or backbone, not both: a model on gist features has no backbone small
    """
    if not issubclass(method_class(method), DeepHasher):
        for name in ("backbone", "recipe"):
            if name in options:
                raise ValueError(
                    f"{method} has no {name}: it learns from features, without a network"
                )
    hasher = create(method, check_bits(bits), **options)
    if isinstance(hasher, DeepHasher):
        pick_device(hasher.device)
    if protocol is not None:
        check_protocol(protocol)
    if features is not None:
        check_features(features)
    backbone = getattr(hasher, "backbone", "auto")
    if isinstance(backbone, str) and backbone != "auto":
        kind = backbone_kind(backbone)  # raises a ValueError for an unknown name
        if features is not None and kind != "features":
            raise ValueError(
                "give features or backbone, not both: "
                f"a model on {features} features has no backbone {backbone}"
            )
    if out is not None and Path(out).exists() and not Path(out).is_dir():
        raise ValueError(f"{out}: is a file; give the name of a folder for the output")
    return hasher


def train(
    data: ImageSplit | Data | str | os.PathLike[str],
    labels: Any = None,
    *,
    bits: int = 48,
    method: str = "dsdh",
    features: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
    note: Note | None = None,
    feature_progress: Progress | None = None,
    name: str | None = None,
    **options: Any,
) -> Hasher:
    """Train a method with its recommended settings; options override them.

    Parameters
    ----------
    data : ImageSplit, ImageSet, array, str or path
        Training data: a split, whose training images are used; an image set; any input of
        `Hasher.fit`; or a name or folder for `bitprint.open_images`. A built-in set that is given
        by name is split by protocol 1, as in `bitprint train`, and only its training images are
        used.
    labels : array_like, optional
        Labels of arrays; image sets contain their labels.
    bits : int
        Code length.
    method : str
        One of `bitprint.list_methods()`.
    features : str, optional
        Learn from features of the images instead of pixels: "gist", "pixels", or the name of a
        backbone.
    out : path, optional
        Folder for the model, its metrics and checkpoints. Run again with the same folder to
        resume.
    seed : int
        Seed of training.
    progress : bool
        Show a progress bar.
    note : callable, optional
        Called with a str: the settings of deep methods, and the estimated training time on a CPU.
    feature_progress : callable, optional
        Called with (done, total) while features are computed.
    name : str, optional
        Name of the data in the model file.
    **options
        Options of the method and of its training, such as `recipe="paper"`, `backbone`, `epochs`
        or `device`.

    Returns
    -------
    Hasher
        The trained hasher.

    Examples
    --------
    >>> import bitprint as bp
    >>> parts = bp.split(bp.open_images("digits"))
    >>> hasher = bp.train(parts, bits=16, method="itq", features="pixels")
    >>> hasher
    ITQ(bits=16)
    """
    if "y" in options:
        raise ValueError("there is no option 'y': give labels as bp.train(X, labels=y)")
    hasher = check_training(method, bits, features=features, out=out, seed=seed, **options)
    if current_workers().size > 1 and not isinstance(hasher, DeepHasher):
        raise ValueError(f"{hasher.name} trains in one process only: run without torchrun")
    if isinstance(data, str | os.PathLike):
        name = str(data) if name is None else name
        data = training_images(open_images(data), method, seed=seed)
    if not isinstance(data, ImageSplit | ImageSet):
        data, found = read_inputs(data)
        labels = found if labels is None else labels
    if not isinstance(data, ImageSplit | ImageSet):
        return _fit(hasher, data, labels, out, progress, {}, note)
    images = data.images if isinstance(data, ImageSplit) else data
    if isinstance(data, ImageSet) and labels is None:
        images = data = _learnable(data, method)
    rows = data.rows.training if isinstance(data, ImageSplit) else np.arange(len(images))
    about = describe_training(images, rows, data, name=name, features=features)
    if isinstance(hasher, FeatureHasher):
        hasher.check_width(width(images, features or "pixels"))
    with current_workers().in_turn():  # rank 0 computes features, the others read them
        items = items_of(images, features, feature_progress)(rows)
    if labels is None and images.labels is not None:
        labels = images.labels[rows]
    return _fit(hasher, items, labels, out, progress, about, note)


def evaluate_split(
    hasher: Hasher,
    split: ImageSplit,
    *,
    top: int | Iterable[int] | None = None,
    feature_progress: Progress | None = None,
    **conventions: Any,
) -> Report:
    """Evaluate a hasher on the queries of a split.

    Raises a ValueError if the hasher was trained on other images of the same set, which may include
    the queries.

    Parameters
    ----------
    hasher : Hasher
    split : ImageSplit
    top : int or iterable of int, optional
        One or several cutoffs of MAP; by default the cutoff of the protocol.
    feature_progress : callable, optional
        Called with (done, total) while features are computed.
    **conventions
        Further arguments of `bitprint.evaluate`.

    Returns
    -------
    Report

    Examples
    --------
    >>> import bitprint as bp
    >>> parts = bp.split(bp.open_images("digits"))
    >>> hasher = bp.train(parts, bits=16, method="itq", features="pixels")
    >>> report = bp.evaluate_split(hasher, parts)
    >>> report.map > 0.5
    True
    """
    from bitprint.evaluation import evaluate

    if not isinstance(hasher, Hasher) or not isinstance(split, ImageSplit):
        raise ValueError(
            "evaluate_split takes a hasher and a split: bp.evaluate_split(hasher, bp.split(images))"
        )
    check_unseen(hasher.about, split)
    items = items_of(split.images, hasher.about.get("features"), feature_progress)
    labels = split.images.labels
    assert labels is not None
    queries, database = split.rows.queries, split.rows.database
    return evaluate(
        hasher.encode_queries(items(queries)),
        labels[queries],
        hasher.encode(items(database)),
        labels[database],
        top=split.rows.map_at if top is None else top,
        **conventions,
    )


def evaluation_split(
    images: ImageSet,
    about: dict[str, Any],
    *,
    protocol: int | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> ImageSplit:
    """Return the split on which to evaluate a model.

    Parameters
    ----------
    images : ImageSet
    about : dict
        The "about" section of the model file, see `describe_training`.
    protocol : {1, 2}, optional
        By default the protocol of training, or 1.
    seed : int, optional
        By default the seed of training, or 0.
    name : str, optional
        Name or folder from which the set was opened.

    Examples
    --------
    >>> from bitprint.data import load_digits
    >>> evaluation_split(load_digits(), {"seed": 3})
    ImageSplit('digits/1', seed 3: 185 queries, 1612 training, 1612 database)
    """
    seed = about.get("seed", 0) if seed is None else seed
    protocol = (about.get("protocol") or 1) if protocol is None else protocol
    parts = split(images, protocol, seed)
    check_unseen(about, parts, name)
    return parts


def check_labeled(images: ImageSet) -> None:
    """Raise a ValueError if the images have no labels."""
    if images.labels is None:
        raise ValueError(
            f"{images.name}: the images have no labels; put the images of each class into a "
            "sub-folder, or give a CSV file with columns file and label as --labels "
            "(labels= in Python)"
        )


def items_of(
    images: ImageSet, features: str | None, progress: Progress | None = None
) -> Callable[[NDArray[np.int64]], Any]:
    """Return a row accessor of the images, or of their features if a name is given."""
    if features is None:
        return images.subset
    vectors = extract(images, features, progress=progress)
    return lambda rows: vectors[rows]


# ---- the record of a training set in the model file


def describe_training(
    images: ImageSet,
    rows: NDArray[np.int64],
    data: ImageSplit | ImageSet,
    *,
    name: str | None = None,
    features: str | None = None,
) -> dict[str, Any]:
    """Return the "about" section of `model.json`: the images that a model is trained on."""
    about: dict[str, Any] = {
        "data": name,
        "features": features,
        "size": images.size[0],
        "images": images.fingerprint(),
        "pixels": images.pixels_fingerprint(),
        "trained_on": _digest(images.subset(rows).ids),
    }
    if isinstance(data, ImageSplit):
        about |= {
            "protocol": data.protocol,
            "seed": data.rows.seed,
            "split": data.rows.fingerprint,
        }
    return {key: value for key, value in about.items() if value is not None}


def check_unseen(about: dict[str, Any], split: ImageSplit, name: str | None = None) -> None:
    """Raise a ValueError if a model was trained on other images of the same set.

    Parameters
    ----------
    about : dict
        The "about" section of the model file, see `describe_training`.
    split : ImageSplit
    name : str, optional
        Name or folder from which the set was opened.
    """
    images = split.images
    if not _is_same_set(about, name, images):
        return
    if "trained_on" in about:
        same = about["trained_on"] == _digest(images.subset(split.rows.training).ids)
    else:
        same = about.get("split") == split.rows.fingerprint
    if not same:
        raise ValueError(
            f"this model was trained on other images of {name or images.name} than the training "
            "set of this split, so it may have seen the queries; evaluate with the protocol and "
            "seed of training (--protocol and --seed), without adding, removing or renaming images"
        )


def _is_same_set(about: dict[str, Any], name: str | None, images: ImageSet) -> bool:
    """Return whether a model was trained on these images, or on images of the same folder."""
    if about.get("images") == images.fingerprint():
        return True
    if about.get("pixels") == images.pixels_fingerprint():
        return True
    place = about.get("data")
    if place is None or name is None:
        return False
    if not Path(name).is_dir() or not Path(place).is_dir():  # names of built-in sets
        return bool(place == name)
    return Path(place).resolve() == Path(name).resolve()


def _digest(ids: Any) -> str:
    """Return a digest of image names."""
    return hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()


# ---- training


def _fit(
    hasher: Hasher,
    items: Any,
    labels: Any,
    out: str | os.PathLike[str] | None,
    progress: bool,
    about: dict[str, Any],
    note: Note | None,
) -> Hasher:
    if out is not None:
        _check_free(Path(out), hasher, about)
    if not isinstance(hasher, DeepHasher):
        hasher.fit(items, labels)
        hasher.about.update(about)
        if out is not None:
            hasher.save(out)
        return hasher
    if note is not None and current_workers().first:
        _announce(hasher, items, note)
    return hasher.fit(items, labels, run=out, progress=progress, about=about)


def _announce(hasher: DeepHasher, items: Any, note: Note) -> None:
    """Report the settings, and on a CPU the estimated training time."""
    source, _ = read_inputs(items)
    settled = settle(hasher, Items.of(source))
    spelled = " ".join(f"{k}={v}" for k, v in settled._settings().items() if v is not None)
    note(f"{hasher.recipe} settings (override with --set): {spelled}")
    whole = backbone_kind(settled.backbone) != "features"
    if whole and pick_device(hasher.device).type == "cpu" and isinstance(source, ImageSet):
        training, features = estimate_training(settled, source)
        note(f"training on this CPU takes about {spell_time(training)}")
        if training > _LONG and hasher.device == "auto":
            note(
                f"without a GPU, --features {settled.backbone} is much faster: the features of all "
                f"images are computed once, in about {spell_time(features)}, and training on them "
                "takes a minute or two"
            )


def _check_free(out: Path, hasher: Hasher, about: dict[str, Any]) -> None:
    """Raise a ValueError if a folder contains a different run.

    Checkpoints of deep methods are compared in `fit`.
    """
    if has_checkpoint(out):
        if not isinstance(hasher, DeepHasher):
            raise other_run_error(out)
    elif (out / "model.json").is_file():
        found = read_description(out)
        mine = {"method": hasher.name, "options": hasher._options(), "about": about}
        if _identity(found) != _identity(json.loads(json.dumps(mine))):
            raise other_run_error(out)


def _identity(model: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of `model.json` that identify a run; device and folder name do not."""
    options, about = model.get("options") or {}, model.get("about") or {}
    known = ("protocol", "features", "seed", "images", "trained_on")
    return (
        model.get("method"),
        {name: value for name, value in options.items() if name != "device"},
        {name: about.get(name) for name in known},
    )
