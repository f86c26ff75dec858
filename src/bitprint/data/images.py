"""ImageSet: uint8 images of one size, with labels and ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bitprint.supervision import check_labels, class_count, class_names

PARTS = ("query", "train", "database")
"""Parts of a split that is stored with an image set."""


@dataclass(frozen=True, eq=False)
class ImageSet:
    """N images of one size, with labels and ids.

    A subset shares the pixels of its parent, so that a memory-mapped set of any size can be split
    into queries, training set and database without copying images.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (M, height, width, 3)
        RGB, in memory or memory-mapped.
    labels : array_like, optional
        (N,) class numbers or class names, (N, c) zeros and ones, or a list of names per image.
        Names are converted to numbers, see `label_names`.
    ids : sequence, optional
        N names of the images; row numbers by default. For a folder these are file names.
    label_names : sequence of str, optional
        Names of the classes. By default the sorted names in `labels`, if labels are names.
    name : str
        Name of the set in reports.
    skipped : sequence of (str, str)
        Files that could not be read, each with the reason.
    rows : ndarray of int64, optional
        Rows of `pixels` that are the N images; all rows by default.
    split : sequence of str, optional
        Part of each of the N images, if the set defines a split: "query", "train" (part of the
        training set and of the database) or "database".
    left_out : sequence of str
        Names of image files in unsupported formats.
    protocol : {"cifar10", "nuswide", "general"}, optional
        Protocol that `bitprint.data.split_for` applies, set by the loader. A set with a protocol
        is split by default in training. None for a folder of images.
    backbone : str, optional
        Recommended backbone for these images, if not the default one.
    mirrored_alike : bool
        Whether a mirrored image has the same meaning. False for digits and other writing.

    Examples
    --------
    >>> images = ImageSet(np.zeros((3, 8, 8, 3), np.uint8), labels=[0, 1, 1])
    >>> part = images.subset([2, 0])
    >>> len(part), part.labels.tolist(), part.ids.tolist(), part.read([0]).shape
    (2, [1, 0], ['2', '0'], (1, 8, 8, 3))
    >>> images
    ImageSet('images': 3 images of 8 x 8, 2 classes)
    >>> images.size, part.fingerprint() == images.subset([0, 2]).fingerprint()
    ((8, 8), False)
    """

    pixels: NDArray[np.uint8]
    labels: NDArray | None = None
    ids: NDArray[np.str_] | Sequence[str] | None = None
    label_names: Sequence[str] | None = None
    name: str = "images"
    skipped: Sequence[tuple[str, str]] = field(default=())
    rows: NDArray[np.int64] | None = None
    split: NDArray[np.str_] | Sequence[str] | None = None
    left_out: Sequence[str] = ()
    protocol: str | None = None
    backbone: str | None = None
    mirrored_alike: bool = True

    def __post_init__(self) -> None:
        pixels = self.pixels
        if not isinstance(pixels, np.ndarray):
            raise ValueError(
                f"pixels must be a NumPy array, got {type(pixels).__name__}; convert other images "
                "by bitprint.data.inputs.read_inputs(x)[0]"
            )
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
            raise ValueError(
                "images must be uint8 of shape (N, height, width, 3), "
                f"got {pixels.dtype} of shape {pixels.shape}; convert floats in [0, 1] or images "
                "with channels first by bitprint.data.inputs.read_inputs(x)[0]"
            )
        rows = np.arange(len(pixels)) if self.rows is None else np.asarray(self.rows, np.int64)
        if len(rows) and not (rows.min() >= 0 and rows.max() < len(pixels)):
            raise ValueError(f"rows must be in 0..{len(pixels) - 1}")
        ids = (rows if self.ids is None else np.asarray(self.ids)).astype(str)
        if len(ids) != len(rows):
            raise ValueError(f"{len(rows)} images but {len(ids)} ids")
        # The class is frozen; normalize the fields here.
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "ids", ids)
        if self.labels is not None:
            names = class_names(self.labels) if self.label_names is None else self.label_names
            object.__setattr__(self, "labels", check_labels(self.labels, len(rows), names))
            object.__setattr__(self, "label_names", names)
        if self.split is not None:
            object.__setattr__(self, "split", _check_parts(self.split, len(rows)))

    def __len__(self) -> int:
        assert self.rows is not None
        return len(self.rows)

    def __repr__(self) -> str:
        classes = "no labels" if self.labels is None else f"{class_count(self.labels)} classes"
        height, width = self.size
        return f"ImageSet({self.name!r}: {len(self)} images of {height} x {width}, {classes})"

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of every image."""
        return self.pixels.shape[1], self.pixels.shape[2]

    def read(self, rows: NDArray | Sequence[int] | slice) -> NDArray[np.uint8]:
        """Return the pixels of some images, shape (n, height, width, 3)."""
        assert self.rows is not None
        return np.asarray(self.pixels[self.rows[rows]])

    def subset(self, rows: ArrayLike) -> ImageSet:
        """Return the images at `rows` (numbers or a boolean mask) with shared pixels."""
        rows = np.asarray(rows)
        if rows.size == 0 and rows.dtype != np.bool_:
            rows = rows.astype(np.int64)
        assert self.rows is not None
        assert isinstance(self.ids, np.ndarray)
        return replace(
            self,
            rows=self.rows[rows],
            ids=self.ids[rows],
            labels=None if self.labels is None else self.labels[rows],
            skipped=(),
            split=None if self.split is None else np.asarray(self.split)[rows],
            left_out=(),
        )

    def labelled(self) -> ImageSet:
        """Return the images that have a label, with shared pixels; the set itself if all do.

        If each of them has exactly one label, the labels become class numbers.

        Examples
        --------
        >>> images = ImageSet(np.zeros((3, 8, 8, 3), np.uint8), labels=[[0, 1], [0, 0], [1, 0]])
        >>> images.labelled().ids.tolist(), images.labelled().labels.tolist()
        (['0', '2'], [1, 0])
        """
        if self.labels is None:
            return self.subset([])
        if self.labels.ndim == 1 or self.labels.any(axis=1).all():
            return self
        part = self.subset(self.labels.any(axis=1))
        assert part.labels is not None
        if np.all(part.labels.sum(axis=1, dtype=np.int64) == 1):
            return replace(part, labels=part.labels.argmax(axis=1))
        return part

    def fingerprint(self) -> str:
        """Return the SHA-256 of size, ids, labels and pixels, to compare the sets of two runs.

        Only the pixels of 256 images, spread evenly over the set, are included.
        """
        digest = hashlib.sha256(repr((self.name, len(self), self.size)).encode())
        assert isinstance(self.ids, np.ndarray)
        # File names can contain bytes that are not UTF-8.
        digest.update("\n".join(self.ids.tolist()).encode("utf-8", "surrogatepass"))
        if self.labels is not None:
            digest.update(repr(self.labels.shape).encode())
            digest.update(np.ascontiguousarray(self.labels).data)
        spread = np.unique(np.linspace(0, len(self), 256, endpoint=False, dtype=np.int64))
        if len(self):
            digest.update(np.ascontiguousarray(self.read(spread)).data)
        return digest.hexdigest()

    def pixels_fingerprint(self) -> str:
        """Return the SHA-256 of the pixels that this set and its subsets share.

        Equal for two subsets of one set. Only the pixels of 256 images, spread evenly over the
        set, are included.

        Examples
        --------
        >>> images = ImageSet(np.zeros((3, 8, 8, 3), np.uint8))
        >>> images.pixels_fingerprint() == images.subset([1]).pixels_fingerprint()
        True
        """
        digest = hashlib.sha256(repr(self.pixels.shape).encode())
        spread = np.unique(np.linspace(0, len(self.pixels), 256, endpoint=False, dtype=np.int64))
        if len(self.pixels):
            digest.update(np.ascontiguousarray(self.pixels[spread]).data)
        return digest.hexdigest()


def _check_parts(split: NDArray[np.str_] | Sequence[str], count: int) -> NDArray[np.str_]:
    parts = np.asarray(split, np.str_)
    if parts.shape != (count,):
        raise ValueError(f"{count} images but a split of shape {parts.shape}")
    unknown = parts[~np.isin(parts, PARTS)]
    if len(unknown):
        raise ValueError(
            f"the split of an image must be one of {', '.join(PARTS)}, got {str(unknown[0])!r}"
        )
    return parts
