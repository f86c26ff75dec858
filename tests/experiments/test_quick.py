"""Test runs of all experiments on built-in data."""

import json
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from bitprint.cli import app
from bitprint.data import load_digits, split_for
from bitprint.experiments.cells import KEY, run_cell
from bitprint.experiments.curves import read_curves
from bitprint.experiments.quick import NOTE, quick_cells
from bitprint.experiments.rows import read_table
from bitprint.experiments.tables import EXPERIMENTS, experiment_cells


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("BITPRINT_DATA", str(tmp_path / "home"))


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def reproduce(*arguments):
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_figure_1_from_one_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # With two processes each has one thread on a machine of two cores.
    printed = reproduce("figure1", "--quick", "--workers", 2)
    assert "Figure 1: MAP on digits, protocol 1" in " ".join(printed.split())
    table = tmp_path / "results" / "figure1_digits_quick.csv"
    rows, curves = read_table(table), read_curves(table)
    variants = ["dsdh-a", "dsdh-b", "dsdh-c", "dsdh"]
    assert sorted((row["variant"], row["bits"]) for row in rows) == sorted(
        (name, bits) for bits in ("12", "24") for name in variants
    )
    assert set(curves) == {cell.key for cell in quick_cells("figure1")}
    for row in rows:
        kept = curves[tuple(row[name] for name in KEY)]
        assert kept.precision_at[0] == pytest.approx(float(row["precision_at_100"]), abs=1e-4)
        assert f"{float(row['map']):.3f}" in printed

    names = ("precision_radius2", "precision_at", "precision_recall")
    for name in names:
        with Image.open(
            tmp_path / "results" / "figure1_digits_quick_plots" / f"{name}.png"
        ) as plot:
            assert plot.format == "PNG"
    page = table.with_suffix(".html").read_text()
    assert page.count("data:image/png") == 3
    assert "bitprint reproduce figure1 --methods all --quick" in page
    for text in (printed, page):
        assert "It only shows that all steps work" in text
        assert "the order of the methods" not in text
        assert not re.search("(ahead of|behind|level with) dsdh", text)

    # A second run finds all cells; JSON contains the same values.
    content = table.read_bytes()
    about = json.loads(reproduce("figure1", "--quick", "--json"))
    assert table.read_bytes() == content
    assert about["missing"] == 0
    assert (about["notes"], about["standings"]) == ([NOTE], [])
    assert [(entry["variant"], entry["bits"], entry["mean"]) for entry in about["entries"]] == [
        (name, bits, float(row["map"]))
        for name in variants
        for bits in (12, 24)
        for row in rows
        if (row["variant"], row["bits"]) == (name, str(bits))
    ]
    assert all(entry["paper"] is None for entry in about["entries"])


def test_both_protocols_are_the_same_on_digits():
    digits = load_digits()
    one, two = (split_for(digits, protocol) for protocol in (1, 2))
    assert one.fingerprint == two.fingerprint
    assert "Protocols 1 and 2 are the same on digits" in NOTE
    assert np.bincount(digits.labels).max() < 500


def test_every_row_of_every_experiment_runs(one_thread):
    images = load_digits()
    cells = [cell for name in EXPERIMENTS for cell in quick_cells(name, bits=[12])]
    for cell in {(cell.variant, cell.backbone): cell for cell in cells}.values():
        row = run_cell(cell, images)[0]
        assert row["variant"] == cell.variant
        assert 0.1 < row["map"] < 1, cell.variant
        assert math.isnan(row["precision_radius2"]) == (cell.method == "dqn")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_run_differs_in_images_network_and_training(name):
    cells = quick_cells(name)
    real = {cell.variant: cell for cell in experiment_cells(name, splits=1)}
    left_out = set(real) - {cell.variant for cell in cells}
    assert left_out <= {"oph", "fasth", "ksh", "bre"}
    for cell in cells:
        assert (cell.dataset, cell.seed) == ("digits", 0)
        assert cell.quick
        assert cell.protocol == real[cell.variant].protocol
        assert cell.method == real[cell.variant].method
        assert cell.options.get("mode") == real[cell.variant].options.get("mode")
        assert cell.backbone in ("gist", "small")


def test_a_slow_method_runs_when_it_is_named():
    assert [cell.variant for cell in quick_cells("table1", "fasth", bits=[8])] == ["fasth"]


# ---- options that change what is measured


@pytest.mark.usefixtures("cells_in_one_process")
def test_changed_options_and_unseen_classes_reach_the_table(tmp_path):
    table = tmp_path / "t.csv"
    arguments = ["table1", "--dataset", "digits", "--methods", "dpsh", "--bits", 12, "--splits", 1]
    changes = ["--set", "epochs=1", "--set", "backbone=small", "--set", "lr=1e-3"]
    reproduce(*arguments, *changes, "--unseen", "--out", table)
    (row,) = read_table(table)
    assert row["variant"] == "dpsh epochs=1 backbone=small lr=0.001"
    assert row["measured_on"] == "unseen classes"
    assert "epochs=1 " in row["options"]
    page = (tmp_path / "t_table1_digits_unseen.html").read_text()
    assert "--unseen --set epochs=1 --set backbone=small --set lr=1e-3" in page
    assert "classes that are not in the training images" in page
    (epoch,) = read_table(tmp_path / "t_epochs.csv")
    assert epoch["epoch"] == "1"


@pytest.mark.parametrize("change", ["epochs", "=3"])
def test_invalid_changes_are_refused(change):
    arguments = ["reproduce", "table1", "--dataset", "digits", "--set", change]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "--set takes NAME=VALUE" in result.output
