"""Measured MAP, averaged over the seeds of the tables in `results/`.

After a table has changed, run `python -m bitprint.experiments.measured results` to update
`measured.csv`.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import NamedTuple

_FILE = Path(__file__).with_name("measured.csv")
_TABLES = ("table1_cifar10_shallow.csv", "deep_cifar10.csv")
_COLUMNS = ("dataset", "protocol", "method", "backbone", "bits", "map", "seeds")
# Methods with results on two networks in protocol 1: the network that is shown.
_NETWORK = dict.fromkeys(("dsdh", "dsdh-a", "dsdh-b", "dsdh-c"), "resnet-50")


class Measured(NamedTuple):
    """MAP of a method, its features or network, and the number of seeds."""

    map: float
    backbone: str
    seeds: int


def measured_map(dataset: str, protocol: int, method: str, bits: int) -> Measured | None:
    """Return the measured MAP, or None if there is none.

    Examples
    --------
    >>> measured_map("cifar10", 1, "itq", 48).backbone
    'gist'
    """
    wanted = (dataset, str(protocol), method, str(bits))
    with _FILE.open(newline="") as file:
        for row in csv.DictReader(file):
            if tuple(row[name] for name in ("dataset", "protocol", "method", "bits")) == wanted:
                return Measured(float(row["map"]), row["backbone"], int(row["seeds"]))
    return None


def gather(results: Path) -> list[dict[str, str]]:
    """Average MAP over the seeds, for the row of each method that has its name."""
    maps: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for table in _TABLES:
        with (results / table).open(newline="") as file:
            for row in csv.DictReader(file):
                network = _NETWORK.get(row["method"]) if row["protocol"] == "1" else None
                if row["variant"] != row["method"] or row["measured_on"] != "test":
                    continue
                if network not in (None, row["backbone"]):
                    continue
                key = tuple(row[name] for name in _COLUMNS[:5])
                maps[key].append(float(row["map"]))
    return [
        dict(zip(_COLUMNS, (*key, f"{mean(values):.4f}", str(len(values))), strict=True))
        for key, values in maps.items()
    ]


def main() -> None:
    """Write `measured.csv`."""
    rows = gather(Path(sys.argv[1]))
    with _FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
