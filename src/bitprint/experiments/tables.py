"""The paper's tables and figure as lists of cells, and ours beside theirs."""

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
"""Methods that learn from features, in order of cost."""

BELOW = 0.02
"""By how much ours may fall short of the paper's before it is marked."""


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    Parameters
    ----------
    title : str
    protocol : int
        Setting 1 or 2.
    shallow, deep : tuple of str
        Rows: methods that learn from features, and those of `bitprint.experiments.deep`.
    features : str, optional
        What the former learn from; by default the features of the latters' network.
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
"""What `bitprint reproduce` can run."""


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
    """List the cells of a table or figure in order of cost, split by split.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    methods : str
        "all", "shallow" or "deep" rows, or names with commas.
    features : str, optional
        What methods without a network learn from; the experiment's own by default.
    backbone : str
        The network of deep methods.
    unseen : bool
        Search among classes that are kept from training.
    changes : dict, optional
        Options of deep methods to change, see `deep_cells`; one of them must be among the rows.
    dataset, bits, splits, validation, labels
        As in `shallow_cells`.

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
        raise ValueError("--set changes options of deep methods, and none of these rows is one")
    once = {cell.key: cell for cell in (*shallow, *deep)}  # a row or length may be named twice
    return sorted(once.values(), key=lambda cell: cell.seed)


def _learns_from_features(row: str) -> bool:
    """Whether a row has no network; VDSH is a row of the deep ones, on their network's features."""
    return row != "vdsh" and issubclass(method(row.partition(" ")[0]), FeatureHasher)


def _rows(name: str, methods: str) -> list[str]:
    """Rows of an experiment by what a person typed."""
    experiment = EXPERIMENTS[name]
    known = {
        "all": (*experiment.shallow, *experiment.deep),
        "shallow": experiment.shallow,
        "deep": experiment.deep,
    }
    if methods in known and not known[methods]:
        raise ValueError(f"{name} has no {methods} rows; name methods to add some, with commas")
    rows = list(known.get(methods, [row.strip() for row in methods.split(",")]))
    for row in rows:
        method(row.partition(" ")[0])  # An unknown one is refused before any work.
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
    unseen : bool
        Search among classes that are kept from training.
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
            unseen=unseen,
            labels=labels,
        )
        for seed, name, length in product(range(splits), methods, bits or BITS[protocol])
    ]


class Entry(NamedTuple):
    """MAP of one row at one length: ours, one figure for each seed, and the paper's."""

    variant: str
    backbone: str
    bits: int
    maps: tuple[float, ...]
    paper: float | None

    @property
    def mean(self) -> float:
        """Mean over the seeds."""
        return mean(self.maps)

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for a single one."""
        return stdev(self.maps) if len(self.maps) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, to the three decimals that the paper prints."""
        return None if self.paper is None else round(round(self.mean, 3) - self.paper, 3)

    @property
    def verdict(self) -> str:
        """How ours stands to the paper's: reached, near or below; empty where it prints none."""
        if self.difference is None:
            return ""
        if self.difference >= 0:
            return "reached"
        return "below" if self.difference < -BELOW else "near"

    def as_dict(self) -> dict[str, Any]:
        """All of it, in types that `json.dumps` takes."""
        derived = ("mean", "spread", "difference", "verdict")
        return self._asdict() | {name: getattr(self, name) for name in derived}

    def __str__(self) -> str:
        spread = "" if self.spread is None else f" ±{self.spread:.3f}"
        return f"{self.mean:.3f}{spread}"


def summarise(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[int, Entry]]:
    """Gather the rows of a table of cells by (variant, backbone), then by bits.

    Parameters
    ----------
    rows : iterable of dict
        All of one data set and setting. Of several with the same seed the last counts.
    """
    figures: dict[tuple[str, str], dict[int, dict[str, dict[str, Any]]]] = {}
    for row in rows:
        by_bits = figures.setdefault((row["variant"], row["backbone"]), {})
        by_bits.setdefault(int(row["bits"]), {})[str(row["seed"])] = row
    return {
        line: {bits: _entry(line, bits, [*cells.values()]) for bits, cells in by_bits.items()}
        for line, by_bits in figures.items()
    }


def _entry(line: tuple[str, str], bits: int, cells: list[dict[str, Any]]) -> Entry:
    theirs = cells[0]["paper_map"]
    maps = tuple(float(cell["map"]) for cell in cells)
    return Entry(*line, bits, maps, float(theirs) if theirs else None)


_STYLES = {"reached": "green", "near": "", "below": "red", "": ""}


def compare(rows: Iterable[dict[str, Any]], title: str) -> Table:
    """Lay out MAP beside the paper's: mean and spread over the seeds, one line per method.

    Ours is green where it reaches the paper's and red where it is more than `BELOW` short of it.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and setting.
    title : str
    """
    lines = summarise(rows)
    lengths = sorted({bits for entries in lines.values() for bits in entries})
    table = Table("method", "on", *(f"{length} bits" for length in lengths), title=title)
    for (name, backbone), entries in lines.items():
        found = [entries.get(length) for length in lengths]
        ours = [Text(str(each), _STYLES[each.verdict]) if each else "" for each in found]
        theirs = [f"{each.paper:.3f}" if each and each.paper else "" for each in found]
        table.add_row(name, backbone, *ours)
        if any(theirs):
            table.add_row("  paper", "", *theirs, style="dim")
    return table
