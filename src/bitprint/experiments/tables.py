"""Tables and figure of the paper as lists of cells, and comparison with the paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean, stdev
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from bitprint.experiments.cells import Cell
from bitprint.experiments.deep import FIGURE1, TABLE1, TABLE2, deep_cells
from bitprint.experiments.published import BITS
from bitprint.methods import FeatureHasher, method

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
"""Shallow methods, in order of cost."""

BELOW = 0.02
"""Difference in MAP below the paper from which an entry is marked."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Parameters
    ----------
    title : str
    protocol : {1, 2}
    shallow, deep : tuple of str
        Rows of shallow methods, and rows of `bitprint.experiments.deep`.
    features : str, optional
        Input of shallow methods; by default the features of the network of deep methods.
    """

    title: str
    protocol: int
    shallow: tuple[str, ...] = ()
    deep: tuple[str, ...] = ()
    features: str | None = None


EXPERIMENTS = {
    "table1": Experiment("Table 1", 1, SHALLOW, TABLE1, "gist"),
    "table2": Experiment("Table 2", 2, deep=TABLE2),
    "table3": Experiment("Table 3", 1, shallow=SHALLOW),
    "figure1": Experiment("Figure 1", 1, deep=FIGURE1),
}
"""Experiments of `bitprint reproduce`."""


def experiment_cells(
    name: str,
    dataset: str = "cifar10",
    methods: str = "all",
    *,
    bits: Sequence[int] | None = None,
    splits: int = 3,
    features: str | None = None,
    backbone: str = "efficientnet-lite0",
    validation: bool = False,
    unseen: bool = False,
    labels: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """Return the cells of a table or figure, ordered by split, then by cost.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    methods : str
        "all", "shallow" or "deep" rows, or comma-separated names.
    features : str, optional
        Input of shallow methods; by default that of the experiment.
    backbone : str
        Network of deep methods.
    unseen : bool
        Evaluate on classes that are not used in training.
    changes : dict, optional
        Options of deep methods to change, see `deep_cells`; requires a deep row.
    dataset, bits, splits, validation, labels
        As in `shallow_cells`.

    Returns
    -------
    list of Cell

    Examples
    --------
    >>> [cell.variant for cell in experiment_cells("figure1", bits=[48], splits=1)]
    ['dsdh-a', 'dsdh-b', 'dsdh-c', 'dsdh']
    """
    experiment = EXPERIMENTS[name]
    rows = _rows(name, methods)
    shallow = shallow_cells(
        dataset,
        [row for row in rows if _learns_from_features(row)],
        protocol=experiment.protocol,
        features=features or experiment.features or backbone,
        bits=bits,
        splits=splits,
        validation=validation,
        unseen=unseen,
        labels=labels,
    )
    deep = deep_cells(
        dataset,
        [row for row in rows if not _learns_from_features(row)],
        protocol=experiment.protocol,
        bits=bits,
        seeds=range(splits),
        backbone=backbone,
        validation=validation,
        unseen=unseen,
        labels=labels,
        changes=changes,
    )
    if changes and not deep:
        raise ValueError("--set changes options of deep methods, but all selected rows are shallow")
    once = {cell.key: cell for cell in (*shallow, *deep)}  # a row or code length can be given twice
    return sorted(once.values(), key=lambda cell: cell.seed)


def _learns_from_features(row: str) -> bool:
    """Return whether a row is shallow; VDSH is listed as deep and uses network features."""
    return row != "vdsh" and issubclass(method(row.partition(" ")[0]), FeatureHasher)


def _rows(name: str, methods: str) -> list[str]:
    """Return the rows selected by the option --methods."""
    experiment = EXPERIMENTS[name]
    known = {
        "all": (*experiment.shallow, *experiment.deep),
        "shallow": experiment.shallow,
        "deep": experiment.deep,
    }
    if methods in known and not known[methods]:
        raise ValueError(f"{name} has no {methods} rows; give names of methods, comma-separated")
    rows = list(known.get(methods, [row.strip() for row in methods.split(",")]))
    for row in rows:
        method(row.partition(" ")[0])  # raises a ValueError for an unknown method
    return rows


def shallow_cells(
    dataset: str,
    methods: Sequence[str] = SHALLOW,
    *,
    protocol: int = 1,
    features: str = "gist",
    bits: Sequence[int] | None = None,
    splits: int = 3,
    validation: bool = False,
    unseen: bool = False,
    labels: str | None = None,
) -> list[Cell]:
    """Return the cells of Table 1 (features "gist") or Table 3 (features of a network).

    Parameters
    ----------
    dataset : str
        A name or folder for `bitprint.data.open_images`.
    methods : sequence of str
    protocol : {1, 2}
    features : str
        See `bitprint.features.extract`.
    bits : sequence of int, optional
        By default the columns of the table.
    splits : int
        Number of random splits; their seeds are 0, 1, 2 and so on. If the set has its own split,
        the seeds change only the methods.
    validation : bool
        Evaluate on held-out training images.
    unseen : bool
        Evaluate on classes that are not used in training.
    labels : str, optional
        CSV file with the labels of the images in a folder.

    Returns
    -------
    list of Cell
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
            unseen=unseen,
            labels=labels,
        )
        for seed, name, length in product(range(splits), methods, bits or BITS[protocol])
    ]


class Entry(NamedTuple):
    """MAP of one row at one code length: one value for each seed, and the value in the paper."""

    variant: str
    backbone: str
    bits: int
    maps: tuple[float, ...]
    paper: float | None

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return mean(self.maps)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds; None for a single seed."""
        return stdev(self.maps) if len(self.maps) > 1 else None

    @property
    def difference(self) -> float | None:
        """Difference to the paper, both rounded to three decimals as in the paper."""
        return None if self.paper is None else round(round(self.mean, 3) - self.paper, 3)

    @property
    def verdict(self) -> str:
        """Comparison with the paper: reached, near or below; empty if the paper has no value."""
        if self.difference is None:
            return ""
        if self.difference >= 0:
            return "reached"
        return "below" if self.difference < -BELOW else "near"

    def as_dict(self) -> dict[str, Any]:
        """Return the entry in types for `json.dumps`."""
        derived = ("mean", "spread", "difference", "verdict")
        return self._asdict() | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ±{self.spread:.3f}"
        return f"{self.mean:.3f}{spread}"


def summarize(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[int, Entry]]:
    """Group the rows of a table by (variant, backbone), then by bits.

    Parameters
    ----------
    rows : iterable of dict
        Rows of one data set and protocol. Of rows with the same seed the last one is used.

    Returns
    -------
    dict of dict of Entry
    """
    groups: dict[tuple[str, str], dict[int, dict[str, dict[str, Any]]]] = {}
    for row in rows:
        by_bits = groups.setdefault((row["variant"], row["backbone"]), {})
        by_bits.setdefault(int(row["bits"]), {})[str(row["seed"])] = row
    return {
        line: {bits: _entry(line, bits, [*cells.values()]) for bits, cells in by_bits.items()}
        for line, by_bits in groups.items()
    }


def _entry(line: tuple[str, str], bits: int, cells: list[dict[str, Any]]) -> Entry:
    paper = cells[0]["paper_map"]
    maps = tuple(float(cell["map"]) for cell in cells)
    return Entry(*line, bits, maps, float(paper) if paper else None)


_STYLES = {"reached": "green", "near": "", "below": "red", "": ""}


def compare(rows: Iterable[dict[str, Any]], title: str) -> Table:
    """Return a table of MAP and the MAP in the paper: mean and standard deviation over seeds.

    Entries that reach the paper are green; entries more than `BELOW` below it are red.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and protocol.
    title : str

    Returns
    -------
    rich.table.Table
    """
    lines = summarize(rows)
    lengths = sorted({bits for entries in lines.values() for bits in entries})
    table = Table("method", "on", *(f"{length} bits" for length in lengths), title=title)
    for (name, backbone), entries in lines.items():
        found = [entries.get(length) for length in lengths]
        measured = [Text(str(each), _STYLES[each.verdict]) if each else "" for each in found]
        paper = [f"{each.paper:.3f}" if each and each.paper else "" for each in found]
        table.add_row(name, backbone, *measured)
        if any(paper):
            table.add_row("  paper", "", *paper, style="dim")
    return table
