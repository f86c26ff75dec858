"""Collect the figures of the pages: the paper's, and ours from the tables in `results/`."""

from __future__ import annotations

import csv
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from bitprint.experiments.cells import KEY
from bitprint.experiments.published import BITS, MAP, MAP_CNN, MAP_RERUN
from bitprint.experiments.tables import SHALLOW, Entry, summarize
from bitprint.methods import METHODS, FeatureHasher

ROOT = Path(__file__).parents[1]

# Columns of a table of measured cells; other files in the folder measure speed.
_CELLS = {*KEY, "method", "map"}
_TOP = {("nuswide", 1): "5000", ("nuswide", 2): "50000"}
_NAMES = {
    "cifar10": "CIFAR-10",
    "nuswide": "NUS-WIDE",
    "coco14k": "14,000 images of COCO",
    "gist": "GIST",
    "efficientnet-lite0": "EfficientNet-Lite0",
    "efficientnet-lite2": "EfficientNet-Lite2",
    "resnet-50": "ResNet-50",
    "hub:resnet-50": "ResNet-50",
    "cnnf": "CNN-F",
    "cnnh": "CNNH's small network",
    "nin-small": "a small Network in Network",
}


class EvaluationTask(NamedTuple):
    """A task: the image set, the setting of the paper, the queries, and the cutoff of MAP."""

    dataset: str
    protocol: int
    measured_on: str = "test"
    top: str = ""

    @property
    def title(self) -> str:
        """Return the task in words."""
        title = f"{readable(self.dataset)}, setting {self.protocol}"
        if self.measured_on != "test":
            title += f", {self.measured_on}"
        return f"{title}, MAP@{self.top}" if self.top else title


class Line(NamedTuple):
    """MAP of one row of a table by bits: the paper's, or ours with its deviation over the seeds."""

    name: str
    on: str
    maps: dict[int, str]
    ours: bool = False
    seeds: str = ""
    taken: frozenset[str] = frozenset()
    """Devices and dates of the measurements."""


def readable(name: str) -> str:
    """Return the usual name of an image set or a backbone."""
    return _NAMES.get(name, name)


@cache
def measured_rows(folder: Path = ROOT / "results") -> tuple[dict[str, str], ...]:
    """Return the rows of all tables of measured cells, except validation rows."""
    rows: list[dict[str, str]] = []
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            reader = csv.DictReader(file)
            if set(reader.fieldnames or ()) >= _CELLS:
                rows += [row for row in reader if row["measured_on"] != "validation"]
    cells = Counter(tuple(row[name] for name in KEY) for row in rows)
    for cell, count in cells.items():
        if count > 1:  # would be taken for another seed
            raise ValueError(f"{folder}: {', '.join(cell)} is measured twice; delete one row")
    return tuple(rows)


def measured_lines(method: str) -> dict[EvaluationTask, list[Line]]:
    """Return our figures of a method, a line for each variant and backbone."""
    by_task: dict[EvaluationTask, list[dict[str, str]]] = {}
    for row in measured_rows():
        if row["method"] == method:
            about = row["dataset"], int(row["protocol"]), row["measured_on"]
            by_task.setdefault(EvaluationTask(*about, row.get("map_at") or ""), []).append(row)
    return {
        task: [_our_line(method, rows, entries) for entries in summarize(rows).values()]
        for task, rows in by_task.items()
    }


def _our_line(method: str, rows: list[dict[str, str]], entries: dict[int, Entry]) -> Line:
    first = next(iter(entries.values()))
    own = [row for row in rows if (row["variant"], row["backbone"]) == first[:2]]
    from_features = issubclass(METHODS[method], FeatureHasher) and first.backbone != "gist"
    return Line(
        first.variant,
        readable(first.backbone) + (" features" if from_features else ""),
        {bits: str(entry) for bits, entry in sorted(entries.items())},
        ours=True,
        seeds=" or ".join(map(str, sorted({len(entry.maps) for entry in entries.values()}))),
        taken=frozenset(f"{row['device']}, {row['date']}" for row in own),
    )


def published_lines(method: str) -> dict[EvaluationTask, list[Line]]:
    """Return the paper's figures of a method: Tables 1 and 2, re-runs, then Table 3."""
    lines: dict[EvaluationTask, list[Line]] = {}
    on = "features made by hand" if method in SHALLOW else "as published"
    rows = [(*key, on, maps) for key, maps in MAP.items()]
    rows += [(*key, "re-run by the paper", maps) for key, maps in MAP_RERUN.items()]
    rows += [
        (dataset, 1, name, "CNN-F features", maps) for (dataset, name), maps in MAP_CNN.items()
    ]
    for dataset, protocol, name, features, maps in rows:
        if name == method:
            printed = {
                bits: f"{value:.3f}" for bits, value in zip(BITS[protocol], maps, strict=True)
            }
            task = EvaluationTask(dataset, protocol, top=_TOP.get((dataset, protocol), ""))
            lines.setdefault(task, []).append(Line(f"paper, {name}", features, printed))
    return lines
