"""The figures that the package carries are those of the tables in `results/`."""

import csv
from pathlib import Path
from statistics import mean

import pytest

import bitprint as bp
from bitprint.experiments import measured

RESULTS = Path(__file__).parents[2] / "results"


def test_the_package_carries_what_the_tables_say():
    with measured._FILE.open(newline="") as file:
        assert list(csv.DictReader(file)) == measured.gather(RESULTS)


def test_a_figure_is_the_mean_over_the_seeds():
    with (RESULTS / "table1_cifar10_shallow.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["method"], row["bits"]) == ("ksh", "32")
        ]
    found = measured.measured_map("cifar10", 1, "ksh", 32)
    assert found == (pytest.approx(mean(float(row["map"]) for row in rows), abs=5e-5), "gist", 3)


def test_every_measured_method_exists_and_has_one_figure_for_each_length():
    rows = measured.gather(RESULTS)
    keys = [(row["dataset"], row["protocol"], row["method"], row["bits"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert {row["method"] for row in rows} <= set(bp.list_methods())


def test_what_was_not_measured_is_none():
    assert measured.measured_map("cifar10", 2, "itq", 48) is None
