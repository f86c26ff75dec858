"""Cells: one trained and measured model each, gathered in a table that can be resumed."""

from __future__ import annotations

import csv
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bitprint.codes import check_bits
from bitprint.data import ImageSet, Split, open_images, split_for
from bitprint.data.protocols_unseen import unseen_split
from bitprint.data.vectors import Data
from bitprint.evaluation import Report, evaluate
from bitprint.experiments.curves import keep_curves
from bitprint.experiments.published import published_map
from bitprint.features import extract
from bitprint.methods import DeepHasher, Hasher, create, method
from bitprint.methods.dsdh import DSDH
from bitprint.supervision import class_matrix
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
        measured_on = "unseen classes" if self.unseen else "test"
        return (*map(str, about), "validation" if self.validation else measured_on)


_SECOND = 1.0

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
        "images": _short_fingerprint(images),
        "split": split.fingerprint[:12],
        "date": datetime.now(UTC).date().isoformat(),
        "version": __version__,
        "options": _spell(_settings(hasher, len(training))),
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
            rows = split_of(cell, images).training
            assert images.labels is not None
            training[cell.seed] = images.labels[rows]
        if isinstance(hasher, DeepHasher):
            hasher._check_options(training[cell.seed])


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

    Of each class a fifth are queries. Where the split's database holds more than the training set,
    another fifth is the database, so that neither was seen in training; else what trains is also
    the database, as in the split.
    """
    assert images.labels is not None
    first_label = class_matrix(images.labels)[split.training].argmax(axis=1)
    rng = np.random.default_rng(split.seed)
    queries, others = [], []
    for label in np.unique(first_label):
        rows = rng.permutation(split.training[first_label == label])
        fifth = max(1, len(rows) // 5)
        queries.append(rows[:fifth])
        others.append(rows[fifth : 2 * fifth])
    validation, apart = np.sort(np.concatenate(queries)), np.sort(np.concatenate(others))
    rest = np.setdiff1d(split.training, validation)
    if len(split.database) == len(split.training):
        return validation, rest, rest
    return validation, np.setdiff1d(rest, apart), apart


def run_cells(
    cells: Sequence[Cell],
    table: Path,
    *,
    history: Path | None = None,
    workers: int = 1,
    deadline: float = float("inf"),
    progress: Callable[[Sequence[Cell]], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Run the cells that a table lacks, in order, and yield their rows as they come.

    Parameters
    ----------
    cells : sequence of Cell
        Of one data set.
    table : path
        A CSV file; each row is added as soon as its cell is done, so that an interrupted table
        goes on where it stopped.
    history : path, optional
        A CSV file for the figures of every epoch.
    workers : int
        Processes at a time; several keep one GPU busy.
    deadline : float
        Seconds after which no further cell is started.
    progress : callable, optional
        For a log, where there is no terminal: called every second with the cells under way, whose
        networks write lines of their own to standard error.
    """
    todo = missing_cells(cells, table)
    if not todo:
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as the library asks
        raise ValueError(
            "every process that runs cells imports the script that started it, so this must stand "
            'under `if __name__ == "__main__":`'
        )
    started = time.monotonic()
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // workers)
    with (
        ProcessPoolExecutor(workers, context, _open, (todo[0], threads)) as pool,
        _ending_workers(),
    ):
        running: dict[Future[Done], Cell] = {}
        waiting = iter(todo)
        while True:
            in_time = time.monotonic() - started < deadline
            while in_time and len(running) < workers and (cell := next(waiting, None)):
                running[pool.submit(_run, cell, progress is not None)] = cell
            if not running:
                return
            while not (ended := wait(running, _SECOND, FIRST_COMPLETED).done):
                if progress is not None:
                    progress(list(running.values()))
            finished = ended.pop()
            row, epochs, report = finished.result()
            # Before the row: a cell that counts as done has its curves.
            keep_curves(running.pop(finished), report, table)
            _append(table, [row])
            if history is not None and epochs:
                _append(history, epochs)
            yield row


@contextmanager
def _ending_workers() -> Iterator[None]:
    """On an error or interruption end the processes that were started within, whatever they do.

    The pool would wait for their cells, hours perhaps, and nobody takes what comes of them.
    """
    others = multiprocessing.active_children()
    try:
        yield
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process that runs cells ended before its cell was done; if nothing above says why, "
            "it was killed, perhaps for want of memory: use fewer --workers"
        ) from error
    except BaseException:
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        raise


_images: ImageSet | None = None


def _open(cell: Cell, threads: int) -> None:
    """Load the images once in each worker, and give it its share of the cores."""
    global _images
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    _images = open_images(cell.dataset, labels=cell.labels)


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, which may have been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(cell: Cell, progress: bool) -> Done:
    assert _images is not None
    return run_cell(cell, _images, progress=progress)


def missing_cells(cells: Iterable[Cell], table: Path) -> list[Cell]:
    """Return the cells that a table lacks, in their order."""
    done = {tuple(row[name] for name in KEY) for row in read_table(table)}
    return [cell for cell in cells if cell.key not in done]


def read_table(table: Path) -> list[dict[str, str]]:
    """Return the rows of a table, none when there is no such file."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, start=1):
        missing = [name for name in KEY if row.get(name) is None]
        if missing or None in row.values():
            lack = f"lacks {', '.join(missing)}" if missing else "is cut short"
            raise ValueError(f"{table}: row {number} {lack}; name another file as --out")
    return rows


def check_same_images(cells: Sequence[Cell], table: Path, images: ImageSet) -> None:
    """Raise a ValueError if a table has these cells, but of other images or labels.

    The key of a cell has no more of its images than their name.
    """
    keys, these = {cell.key for cell in cells}, _short_fingerprint(images)
    for row in read_table(table):
        # Rows of earlier versions do not say it.
        if tuple(row[name] for name in KEY) in keys and row.get("images") not in ("", None, these):
            raise ValueError(
                f"{table} holds cells of other images or labels that are called {images.name}, "
                "too; name another file as --out"
            )


def _short_fingerprint(images: ImageSet) -> str:
    return images.fingerprint()[:12]


def _append(table: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Add rows; a new column is added to the earlier rows as well."""
    earlier = read_table(table)
    rows = [*earlier, *rows]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table.parent.mkdir(parents=True, exist_ok=True)
    partial = table.with_name(table.name + ".partial")
    with partial.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    partial.replace(table)


def _paper_map(cell: Cell) -> float | None:
    if cell.unseen:
        return None
    deep = issubclass(method(cell.method), DeepHasher)
    return published_map(
        cell.dataset,
        cell.protocol,
        cell.method,
        cell.bits,
        deep_features=not deep and cell.backbone not in ("gist", "pixels"),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _settings(hasher: Hasher, count: int) -> dict[str, Any]:
    """What a method was trained with on `count` images: its options, defaults among them."""
    settings: dict[str, Any] = hasher.get_params(deep=False)
    if isinstance(hasher, DeepHasher):
        settings |= asdict(settings.pop("training") or hasher.default_training)
    if isinstance(hasher, DSDH):  # whose weights may go by the number of images
        settings |= dict(zip(("mu", "nu", "eta"), hasher.weights(count), strict=True))
    return settings


def _spell(settings: dict[str, Any]) -> str:
    """Write out settings, but for those that have a column and those that are not in use."""
    return " ".join(
        f"{name}={value}"
        for name, value in settings.items()
        if name not in ("bits", "seed", "device") and value is not None
    )


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
