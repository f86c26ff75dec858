"""Demo on built-in images: train, compare, plot, save and search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from bitprint.data import ImageSet, load_digits, split_for
from bitprint.data.pictures import contact_sheet
from bitprint.data.protocols import Split
from bitprint.evaluation import Report, evaluate
from bitprint.evaluation.plots import plot_reports
from bitprint.methods import create, load
from bitprint.methods._base import Hasher
from bitprint.supervision import similarity

BITS = (12, 24, 48)
TRAINING = {
    "backbone": "small",
    "epochs": 30,
    "batch_size": 64,
    "optimizer": "adamw",
    "schedule": "cosine",
    "augment": "shift",
}
# DSDH uses its recommended settings, with fewer epochs to save time. The rate of DSDH-A was
# chosen on held-out training images; its eta is 55 for 5,000 images, as in the paper, scaled to the
# size of this set.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "LSH": ("lsh", {}),
    "DSDH-A (pairs only)": ("dsdh-a", TRAINING | {"lr": 3e-4, "eta": 18}),
    "DSDH": ("dsdh", {"epochs": 40}),
}
_SHOWN_QUERIES, _NEIGHBORS = 5, 10


def run_demo(folder: Path, console: Console) -> None:
    """Train three methods at three code lengths; write plots, a model and hits to `folder`."""
    # For such small images more threads are not faster, and much slower on shared cores.
    torch.set_num_threads(1)
    images = load_digits()
    split = split_for(images, protocol=1)
    console.print(
        f"[bold]{len(images)} handwritten digits[/]: {len(split.training)} for training and as the "
        f"database, {len(split.queries)} queries that are not used in training."
    )
    reports: dict[str, dict[int, Report]] = {}
    for title, (name, options) in METHODS.items():
        reports[title] = {}
        for bits in BITS:
            hasher = create(name, bits, **options)
            with console.status(f"training {title}, {bits} bits"):
                hasher.fit(images.subset(split.training))
            reports[title][bits] = _measure(hasher, images, split)
            console.print(f"  {title}, {bits} bits: MAP {reports[title][bits].map:.3f}")
    hasher.save(folder / "model", data=images.name, split=split.fingerprint)
    console.print(_table(reports))
    plots = plot_reports(reports, folder / "plots")
    sheet = folder / "neighbours.png"
    _show_neighbors(load(folder / "model"), images, split, sheet, console)
    console.print(f"\nplots: {', '.join(str(plot) for plot in plots)}")
    console.print(f"model: {folder / 'model'}\nneighbors of {_SHOWN_QUERIES} queries: {sheet}")


def _measure(hasher: Hasher, images: ImageSet, split: Split) -> Report:
    assert images.labels is not None
    return evaluate(
        hasher.encode(images.subset(split.queries)),
        images.labels[split.queries],
        hasher.encode(images.subset(split.database)),
        images.labels[split.database],
    )


def _table(reports: dict[str, dict[int, Report]]) -> Table:
    table = Table(title="Retrieval of digits that are not used in training")
    for heading in ("method", "bits", "MAP", "precision, radius 2", "precision@100", "recall@100"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for title, by_bits in reports.items():
        for bits, report in by_bits.items():
            values = (
                report.map,
                report.precision_radius2,
                report.precision_at[100],
                report.recall_at[100],
            )
            table.add_row(title, str(bits), *(f"{value:.3f}" for value in values))
        table.add_section()
    return table


def _show_neighbors(
    hasher: Hasher, images: ImageSet, split: Split, path: Path, console: Console
) -> None:
    """Search for a few queries; print the hits of the first, and draw the hits of all."""
    queries = images.subset(split.queries[:: len(split.queries) // _SHOWN_QUERIES])
    queries = queries.subset(np.arange(_SHOWN_QUERIES))
    database = images.subset(split.database)
    distances = hasher.encode(queries).hamming(hasher.encode(database))
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :_NEIGHBORS]
    found = np.take_along_axis(distances, nearest, axis=1)
    assert queries.labels is not None
    assert database.labels is not None
    relevant = np.take_along_axis(similarity(queries.labels, database.labels), nearest, axis=1)
    sheet = contact_sheet(
        queries.read(slice(None)),
        [database.read(rows) for rows in nearest],
        [[f"distance {d}" for d in row] for row in found],
        list(relevant),
    )
    sheet.save(path)
    names = images.label_names or []
    hits = ", ".join(
        f"{names[database.labels[row]]} ({d})" for row, d in zip(nearest[0], found[0], strict=True)
    )
    console.print(
        f"\nQuery image of a [bold]{names[queries.labels[0]]}[/] and its {_NEIGHBORS} "
        f"nearest (Hamming distance): {hits}"
    )
