"""The paper's tables as lists of cells, and how ours and theirs are printed side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from statistics import mean, stdev
from typing import Any

from rich.table import Table

from bitprint.experiments.cells import Cell
from bitprint.experiments.published import BITS

SHALLOW = (
    "lsh",
    "sblsh",
    "klsh",
    "nmlsh",
    "sh",
    "itq",
    "bre",
    "splh",
    "lfh",
    "oph",
    "ksh",
    "sdh",
    "fasth",
)
"""Methods that learn from features, in order of cost."""


def shallow_cells(
    dataset: str,
    methods: Sequence[str] = SHALLOW,
    *,
    protocol: int = 1,
    features: str = "gist",
    bits: Sequence[int] | None = None,
    splits: int = 3,
    validation: bool = False,
    labels: str | None = None,
) -> list[Cell]:
    """List the cells of Table 1 (features "gist") or Table 3 (features of a network).

    Parameters
    ----------
    dataset : str
        A name or a folder that `bitprint.data.open_images` knows.
    methods : sequence of str
    protocol : int
        Setting 1 or 2.
    features : str
        See `bitprint.features.extract`.
    bits : sequence of int, optional
        The table's columns by default.
    splits : int
        How many random splits; the seeds are 0, 1, 2 and so on. Where the set has its own split,
        they vary the methods alone.
    validation : bool
        Measure on held-out training images.
    labels : str, optional
        A CSV file with the labels of a folder's images.
    """
    return [
        Cell(
            dataset=dataset,
            protocol=protocol,
            variant=name,
            method=name,
            backbone=features,
            bits=length,
            seed=seed,
            validation=validation,
            labels=labels,
        )
        for seed, name, length in product(range(splits), methods, bits or BITS[protocol])
    ]


def compare(rows: Iterable[dict[str, Any]], title: str) -> Table:
    """Lay out MAP beside the paper's: mean and spread over the seeds, one line per method.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and setting.
    title : str
    """
    rows = list(rows)
    lengths = sorted({int(row["bits"]) for row in rows})
    table = Table("method", *(f"{length} bits" for length in lengths), title=title)
    for name in dict.fromkeys(row["variant"] for row in rows):
        ours, theirs = [], []
        for length in lengths:
            cells = [r for r in rows if r["variant"] == name and int(r["bits"]) == length]
            ours.append(_spell([float(cell["map"]) for cell in cells]))
            paper = cells[0]["paper_map"] if cells else None
            theirs.append(f"{float(paper):.3f}" if paper else "")
        table.add_row(name, *ours)
        if any(theirs):
            table.add_row("  paper", *theirs, style="dim")
    return table


def _spell(figures: list[float]) -> str:
    if not figures:
        return ""
    spread = f" ±{stdev(figures):.3f}" if len(figures) > 1 else ""
    return f"{mean(figures):.3f}{spread}"
