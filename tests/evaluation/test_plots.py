from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from ranking_reference import random_task

from bitprint.evaluation import evaluate, plots
from bitprint.evaluation.plots import plot_reports


def report(bits, seed=0, size=250):
    return evaluate(*random_task(np.random.default_rng(seed), 5, size, bits, classes=3))


def test_files_of_one_number_of_bits(tmp_path):
    paths = plot_reports({"itq": report(12), "lsh": report(12, seed=1)}, tmp_path / "new" / "plots")
    assert [path.name for path in paths] == [
        "precision_radius2.png",
        "precision_at_12.png",
        "precision_recall_12.png",
    ]
    for path in paths:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        for color in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
            assert np.any(np.all(pixels == color, axis=1)), (path.name, color)


def test_methods_can_have_different_numbers_of_bits(tmp_path):
    reports = {"itq": {24: report(24), 12: report(12)}, "lsh": {12: report(12, seed=1)}}
    names = {path.name for path in plot_reports(reports, tmp_path)}
    assert names == {path.name for path in tmp_path.iterdir()}
    assert {"precision_at_12.png", "precision_at_24.png", "precision_recall_24.png"} < names


def test_no_precision_at_plot_without_cutoffs(tmp_path):
    paths = plot_reports({"itq": report(8, size=50)}, tmp_path)
    assert [path.name for path in paths] == ["precision_radius2.png", "precision_recall_8.png"]


def test_styles_stay_distinct():
    styles = [
        (style["color"], style["marker"])
        for style, _ in zip(plots.styles(), range(70), strict=False)
    ]
    assert len(set(styles)) == 70


def test_nothing_to_plot(tmp_path):
    for nothing in ({}, {"itq": {}}):
        with pytest.raises(ValueError, match="no reports to plot"):
            plot_reports(nothing, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_full_disk_error_names_the_plot(tmp_path):
    (tmp_path / "precision_radius2.png").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"precision_radius2\.png: no space left on this disk"):
        plot_reports({"lsh": report(12)}, tmp_path)
