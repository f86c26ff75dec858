"""Cells: one trained and measured model each, gathered in a table that can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from bitprint.codes import check_bits
from bitprint.data import ImageSet, Split, split_for
from bitprint.data.inputs import Data
from bitprint.data.protocols_unseen import unseen_split
from bitprint.evaluation import Report, evaluate
from bitprint.experiments.published import published_map
from bitprint.features import extract
from bitprint.methods import DeepHasher, create, method
from bitprint.methods.dsdh import DSDH
from bitprint.methods.recipes import Items, settle
from bitprint.supervision import class_count, class_matrix
from bitprint.version import __version__


@dataclass(frozen=True)
class Cell:
    """One model to train and measure.

    Parameters
    ----------
    dataset, protocol
        Which images, by a name or a folder that `bitprint.data.open_images` knows, and which
        setting of the paper.
    variant : str
        Name of the row in the table.
    method, bits, seed, options
        Arguments of `bitprint.create`. The seed also draws the split, unless the set has its own.
    backbone : str
        Name of the network in the table, which `options` says how to make; or the features that
        a method without a network learns from, see `bitprint.features`.
    validation : bool
        Measure on a part of the training images, held out of training, in place of the queries:
        settings are chosen so, never on the queries. See `hold_out`.
    unseen : bool
        Search among classes that are kept from training, see `bitprint.data.protocols_unseen`.
    quick : bool
        Trained in little time, see `bitprint.experiments.quick`: not to be taken for the real one.
    labels : str, optional
        A CSV file with the labels of a folder's images.
    """

    dataset: str
    protocol: int
    variant: str
    method: str
    backbone: str
    bits: int
    seed: int
    validation: bool = False
    unseen: bool = False
    quick: bool = False
    options: dict[str, Any] = field(default_factory=dict, compare=False)
    labels: str | None = None

    @property
    def title(self) -> str:
        """What this cell is called in a log."""
        return (
            f"{self.variant}, {self.bits} {'bit' if self.bits == 1 else 'bits'}, split {self.seed}"
        )

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this cell from all others in a table, as text; of a folder its name."""
        name = Path(self.dataset).resolve().name
        about = (name, self.protocol, self.backbone, self.variant, self.bits, self.seed)
        kinds = {"validation": self.validation, "unseen classes": self.unseen, "quick": self.quick}
        measured_on = ", ".join(kind for kind, holds in kinds.items() if holds) or "test"
        return (*map(str, about), measured_on)


KEY = ("dataset", "protocol", "backbone", "variant", "bits", "seed", "measured_on")


class Done(NamedTuple):
    """What came of a cell: its row, the figures of every epoch, and all that was measured."""

    row: dict[str, Any]
    epochs: list[dict[str, Any]]
    report: Report


def run_cell(cell: Cell, images: ImageSet, *, progress: bool = False) -> Done:
    """Train and measure one cell; a network tells of its progress if that is wanted."""
    split = split_of(cell, images)
    assert images.labels is not None
    queries, training, database = split.queries, split.training, split.database
    if cell.validation:
        queries, training, database = hold_out(images, split)
    hasher = create(cell.method, cell.bits, seed=cell.seed, **cell.options)
    items = _items(cell, images)
    started = time.perf_counter()
    if progress and isinstance(hasher, DeepHasher):
        hasher.fit(items(training), images.labels[training], progress=cell.title)
    else:
        hasher.fit(items(training), images.labels[training])
    fitted = time.perf_counter()
    query_codes = hasher.encode_queries(items(queries))
    database_codes = hasher.encode(items(database))
    encoded = time.perf_counter()
    report = evaluate(
        query_codes,
        images.labels[queries],
        database_codes,
        images.labels[database],
        top=split.map_at,
    )
    history = getattr(hasher, "history_", [])
    settings = settings_of(cell, items_in(images, len(training)), class_count(images.labels))
    last = history[-1] if history else {}
    row = {
        **dict(zip(KEY, cell.key, strict=True)),
        "method": cell.method,
        "map": round(report.map, 4),
        "map_at": split.map_at,
        "paper_map": _paper_map(cell),
        "precision_radius2": round(report.precision_radius2, 4),
        "precision_at_100": round(report.precision_at.get(100, float("nan")), 4),
        "changed_bits": _rounded(last.get("changed_bits")),
        "codes_per_label": _rounded(last.get("codes_per_label")),
        "train_seconds": round(fitted - started, 1),
        "encode_seconds": round(encoded - fitted, 1),
        "device": _device_name(),
        "images": short_fingerprint(images),
        "split": split.fingerprint[:12],
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "options": spell(settings),
    }
    epochs = [dict(zip(KEY, cell.key, strict=True)) | epoch for epoch in history]
    return Done(row, epochs, report)


def split_of(cell: Cell, images: ImageSet) -> Split:
    """Return the queries, training set and database of a cell, before any are held out.

    Examples
    --------
    >>> from bitprint.data import load_digits
    >>> split_of(Cell("digits", 1, "itq", "itq", "gist", bits=12, seed=0), load_digits())
    Split('digits/1', seed 0: 185 queries, 1612 training, 1612 database)
    """
    if images.labels is None:
        raise ValueError(f"{cell.dataset} has no labels; give them in sub-folders or a CSV file")
    if not cell.unseen:
        return split_for(images, cell.protocol, cell.seed)
    return unseen_split(
        images.labels, cell.protocol, cell.seed, name=images.name, label_names=images.label_names
    )


def training_rows(cell: Cell, images: ImageSet) -> NDArray[np.int64]:
    """Return the rows that a cell is trained on: with validation, those that are not held out."""
    split = split_of(cell, images)
    return hold_out(images, split)[1] if cell.validation else split.training


def check_cells(cells: Iterable[Cell], images: ImageSet | None = None) -> None:
    """Refuse what some cell cannot be run with, before the first is run.

    Parameters
    ----------
    cells : iterable of Cell
        Of one data set.
    images : ImageSet, optional
        That set, to check what depends on it; options can be checked without it.

    Examples
    --------
    >>> check_cells([Cell("digits", 1, "itq", "itq", "gist", 12, 0, options={"lr": 1})])
    Traceback (most recent call last):
    ValueError: itq: there is no option 'lr'; its options are iterations, seed
    """
    training: dict[int, NDArray] = {}
    for cell in cells:
        check_bits(cell.bits)
        hasher = create(cell.method, cell.bits, seed=cell.seed, **cell.options)
        if images is None:
            continue
        if cell.seed not in training:
            rows = training_rows(cell, images)
            assert images.labels is not None
            training[cell.seed] = images.labels[rows]
        if isinstance(hasher, DeepHasher):
            labels = training[cell.seed]
            settle(hasher, items_in(images, len(labels)))._check_options(labels)


def _items(cell: Cell, images: ImageSet) -> Callable[[NDArray[np.int64]], Data]:
    """Return what gives the method its items: images, or rows of features."""
    if issubclass(method(cell.method), DeepHasher):
        return images.subset
    features = _features(images, cell.backbone)
    return lambda rows: np.asarray(features[rows])


@lru_cache(maxsize=1)
def _features(images: ImageSet, name: str) -> NDArray[np.float32]:
    """Features of a whole set; finding those of gigabytes of pixels on disk takes seconds."""
    return extract(images, name)


def hold_out(
    images: ImageSet, split: Split
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Make queries, a training set and a database of the training rows alone.

    Of each class a fifth are queries, at least one image. Where the split's database holds more
    than the training set, as many are the database, so that neither was seen in training; else what
    trains is also the database, as in the split. A class with fewer images than there are such
    parts, three or two, only trains. An image with several labels is drawn for the first of them,
    and counts for the size of all.
    """
    assert images.labels is not None
    carried = class_matrix(images.labels)[split.training]
    first_label, sizes = carried.argmax(axis=1), carried.sum(axis=0)
    count = 2 if len(split.database) == len(split.training) else 3
    rng = np.random.default_rng(split.seed)
    queries, others = [], []
    for label in np.unique(first_label):
        rows = rng.permutation(split.training[first_label == label])
        fifth = max(1, len(rows) // 5) if sizes[label] >= count else 0
        queries.append(rows[:fifth])
        others.append(rows[fifth : 2 * fifth])
    validation, apart = np.sort(np.concatenate(queries)), np.sort(np.concatenate(others))
    rest = np.setdiff1d(split.training, validation)
    parts = validation, np.setdiff1d(rest, apart), apart
    if count == 2:
        parts = validation, rest, rest
    if not all(map(len, parts)):
        raise ValueError(
            f"{split.name}: its classes have too few training images to hold some out; measure "
            "without --validation"
        )
    return parts


def short_fingerprint(images: ImageSet) -> str:
    """What a row says of its images: enough to tell sets of one name apart."""
    return images.fingerprint()[:12]


def _paper_map(cell: Cell) -> float | None:
    """Return the paper's figure, where it measured the same and learned from anything alike."""
    if cell.unseen or cell.validation or cell.backbone == "pixels":
        return None
    deep = issubclass(method(cell.method), DeepHasher)
    return published_map(
        cell.dataset,
        cell.protocol,
        cell.method,
        cell.bits,
        deep_features=not deep and cell.backbone != "gist",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def settings_of(cell: Cell, items: Items, classes: int = 10) -> dict[str, Any]:
    """Return all settings that a cell is trained with on these items.

    Examples
    --------
    >>> settings_of(Cell("digits", 1, "itq", "itq", "gist", 12, seed=3), Items((512,), 1612))
    {'bits': 12, 'iterations': 50, 'seed': 3}
    """
    hasher = create(cell.method, cell.bits, seed=cell.seed, **cell.options)
    if not isinstance(hasher, DeepHasher):
        return dict(hasher.get_params(deep=False))
    settled = settle(hasher, items)
    settings = {"bits": cell.bits, "seed": cell.seed} | settled._settings()
    if isinstance(settled, DSDH):  # whose weights depend on the number of images and of classes
        weights = settled.weights(items.count, classes)
        settings |= dict(zip(("mu", "nu", "eta"), weights, strict=True))
    return settings


def items_in(images: ImageSet, count: int) -> Items:
    """Describe `count` training images of a set, as recipes need it."""
    return replace(Items.of(images), count=count)


def spell(settings: dict[str, Any]) -> str:
    """Write out settings, but for those that have a column and those that are not in use."""
    return " ".join(
        f"{name}={value}"
        for name, value in settings.items()
        if name not in ("bits", "seed", "device") and value is not None
    )


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
