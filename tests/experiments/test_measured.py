"""`measured.csv` agrees with the tables in `results/`."""

import csv
from pathlib import Path
from statistics import mean

import pytest

import bitprint as bp
from bitprint.experiments import measured

RESULTS = Path(__file__).parents[2] / "results"


def test_measured_csv_agrees_with_the_tables():
    with measured._FILE.open(newline="") as file:
        assert list(csv.DictReader(file)) == measured.gather(RESULTS)


def test_map_is_averaged_over_seeds():
    with (RESULTS / "table1_cifar10_shallow.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["method"], row["bits"]) == ("ksh", "32")
        ]
    found = measured.measured_map("cifar10", 1, "ksh", 32)
    assert found == (pytest.approx(mean(float(row["map"]) for row in rows), abs=5e-5), "gist", 3)


def test_measured_methods_have_one_map_per_length():
    rows = measured.gather(RESULTS)
    keys = [(row["dataset"], row["protocol"], row["method"], row["bits"]) for row in rows]
    assert len(set(keys)) == len(keys)
    assert {row["method"] for row in rows} <= set(bp.list_methods())


def test_other_rows_of_a_method_are_not_averaged(tmp_path):
    header = "dataset,protocol,method,backbone,variant,bits,seed,measured_on,map\n"
    rows = [
        ("dtsh,efficientnet-lite0,dtsh", 0.5),
        ("dtsh,efficientnet-lite0,dtsh recipe", 0.9),
        ("dsdh,efficientnet-lite0,dsdh", 0.6),
        ("dsdh,resnet-50,dsdh", 0.7),
        ("dsdh,resnet-50,dsdh authors", 0.8),
    ]
    for protocol, expected in ((1, {"dtsh": 0.5, "dsdh": 0.7}), (2, {"dtsh": 0.5})):
        kept = rows if protocol == 1 else rows[:2]
        lines = [f"cifar10,{protocol},{about},48,0,test,{value}\n" for about, value in kept]
        (tmp_path / "deep_cifar10.csv").write_text(header + "".join(lines))
        (tmp_path / "table1_cifar10_shallow.csv").write_text(header)
        found = measured.gather(tmp_path)
        assert {row["method"]: float(row["map"]) for row in found} == expected
        assert {row["seeds"] for row in found} == {"1"}


def test_missing_map_is_none():
    assert measured.measured_map("cifar10", 2, "itq", 48) is None
