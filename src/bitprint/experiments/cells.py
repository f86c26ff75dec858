"""Cells of a table: each trains and evaluates one model."""

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
from bitprint.supervision import class_count, class_matrix, has_several_labels
from bitprint.utils.commit import source_commit
from bitprint.version import __version__


@dataclass(frozen=True)
class Cell:
    """One model to train and evaluate.

    Parameters
    ----------
    dataset : str
        A name or folder for `bitprint.data.open_images`.
    protocol : {1, 2}
    variant : str
        Name of the row in the table.
    method, bits, seed, options
        Arguments of `bitprint.create`. The seed also determines the split, unless the set has its
        own.
    backbone : str
        Name of the network in the table (`options` contains the network itself), or the features
        that a shallow method learns from, see `bitprint.features`.
    validation : bool
        Evaluate on held-out training images instead of the queries, see `hold_out`. Settings are
        chosen in this way, never on the queries.
    unseen : bool
        Evaluate on classes that are not used in training, see `bitprint.data.protocols_unseen`.
    quick : bool
        A short test run, see `bitprint.experiments.quick`. Its results are kept apart.
    labels : str, optional
        CSV file with the labels of the images in a folder.
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
        """Name of this cell in a log."""
        return (
            f"{self.variant}, {self.bits} {'bit' if self.bits == 1 else 'bits'}, split {self.seed}"
        )

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of this cell in a table, as strings; a folder is identified by its name."""
        name = Path(self.dataset).resolve().name
        about = (name, self.protocol, self.backbone, self.variant, self.bits, self.seed)
        kinds = {"validation": self.validation, "unseen classes": self.unseen, "quick": self.quick}
        measured_on = ", ".join(kind for kind, applies in kinds.items() if applies) or "test"
        return (*map(str, about), measured_on)


KEY = ("dataset", "protocol", "backbone", "variant", "bits", "seed", "measured_on")


class CellResult(NamedTuple):
    """Result of a cell: its row in the table, the metrics of each epoch, and the full report."""

    row: dict[str, Any]
    epochs: list[dict[str, Any]]
    report: Report


def run_cell(cell: Cell, images: ImageSet, *, progress: bool = False) -> CellResult:
    """Train and evaluate one cell; optionally show the progress of training a network."""
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
    settings = settings_of(cell, items_in(images, len(training)), images.labels)
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
        "commit": source_commit(),
        "options": format_settings(settings),
    }
    epochs = [dict(zip(KEY, cell.key, strict=True)) | epoch for epoch in history]
    return CellResult(row, epochs, report)


def split_of(cell: Cell, images: ImageSet) -> Split:
    """Return the split of a cell, before `hold_out`.

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
    """Return the rows of the training images of a cell, without those that are held out."""
    split = split_of(cell, images)
    return hold_out(images, split)[1] if cell.validation else split.training


def check_cells(cells: Iterable[Cell], images: ImageSet | None = None) -> None:
    """Raise a ValueError if a cell cannot be run, before running any of them.

    Parameters
    ----------
    cells : iterable of Cell
        Cells of one data set.
    images : ImageSet, optional
        The data set. Without it, only checks that do not depend on the data are done.

    Examples
    --------
    >>> check_cells([Cell("digits", 1, "itq", "itq", "gist", 12, 0, options={"lr": 1})])
    Traceback (most recent call last):
    ValueError: itq: unknown option 'lr'; choose from iterations, seed
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
    """Return a row accessor of the input of the method: images or features."""
    if issubclass(method(cell.method), DeepHasher):
        return images.subset
    features = _features(images, cell.backbone)
    return lambda rows: np.asarray(features[rows])


@lru_cache(maxsize=1)
def _features(images: ImageSet, name: str) -> NDArray[np.float32]:
    """Return the features of a whole set; cached, because the lookup on disk can take seconds."""
    return extract(images, name)


def hold_out(
    images: ImageSet, split: Split
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Split the training rows into queries, a training set and a database for validation.

    A fifth of each class, at least one image, becomes queries. If the database of the split
    contains more than the training set, another fifth becomes the database, which is then not used
    in training; otherwise the database is the remaining training set, as in the split. A class with
    fewer images than parts (three or two) is used for training only. An image with several labels
    is drawn as a member of its first class, but is included in the size of each of its classes.

    Returns
    -------
    queries, training, database : ndarray of int64
    """
    assert images.labels is not None
    matrix = class_matrix(images.labels)[split.training]
    first_label, sizes = matrix.argmax(axis=1), matrix.sum(axis=0)
    count = 2 if len(split.database) == len(split.training) else 3
    rng = np.random.default_rng(split.seed)
    query_parts, database_parts = [], []
    for label in np.unique(first_label):
        rows = rng.permutation(split.training[first_label == label])
        fifth = max(1, len(rows) // 5) if sizes[label] >= count else 0
        query_parts.append(rows[:fifth])
        database_parts.append(rows[fifth : 2 * fifth])
    queries, database = (
        np.sort(np.concatenate(query_parts)),
        np.sort(np.concatenate(database_parts)),
    )
    rest = np.setdiff1d(split.training, queries)
    parts = queries, np.setdiff1d(rest, database), database
    if count == 2:
        parts = queries, rest, rest
    if not all(map(len, parts)):
        raise ValueError(
            f"{split.name}: the classes have too few training images to hold some out; run "
            "without --validation"
        )
    return parts


def short_fingerprint(images: ImageSet) -> str:
    """Return the fingerprint of the images in a row of a table."""
    return images.fingerprint()[:12]


def _paper_map(cell: Cell) -> float | None:
    """Return the MAP in the paper, if it has one for the same task and comparable features."""
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


def settings_of(cell: Cell, items: Items, labels: NDArray | None = None) -> dict[str, Any]:
    """Return all settings with which a cell is trained on these items.

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
    if isinstance(settled, DSDH):  # the weights depend on the numbers of images and classes
        classes = 10 if labels is None else class_count(labels)
        several = labels is not None and has_several_labels(labels)
        weights = settled.weights(items.count, classes, several=several)
        settings |= dict(zip(("mu", "nu", "eta"), weights, strict=True))
    return settings


def items_in(images: ImageSet, count: int) -> Items:
    """Describe `count` training images of a set for a recipe."""
    return replace(Items.of(images), count=count)


def format_settings(settings: dict[str, Any]) -> str:
    """Format settings as text, except those with a column in the table and those that are None."""
    return " ".join(
        f"{name}={value}"
        for name, value in settings.items()
        if name not in ("bits", "seed", "device") and value is not None
    )


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
