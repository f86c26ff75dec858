"""Rows of a table whose settings differ from those of their cells."""

import numpy as np
import pytest

from bitprint.data import load_digits
from bitprint.experiments.cells import KEY, Cell, format_settings, items_in, run_cell, settings_of
from bitprint.experiments.deep import deep_cells
from bitprint.experiments.rows import check_same_cells, save_rows
from bitprint.version import __version__

DIGITS = load_digits()


def on(backbone, row="dpsh"):
    (cell,) = deep_cells("digits", [row], bits=[12], backbone=backbone)
    return cell


def keep(cell, table, version=__version__):
    """Save a row of a cell without running it."""
    about = {
        "options": format_settings(settings_of(cell, items_in(DIGITS, 100))),
        "version": version,
    }
    save_rows(table, [dict(zip(KEY, cell.key, strict=True)) | about])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cnnf:a.mat", "cnnf:imagenet-vgg-f.mat"),
        ("cnnf:here/x.mat", "cnnf:my weights/x.mat"),
        ("hub:a/resnet-50", "hub:b/resnet-50"),
        ("nin-small:24", "nin-small:96"),
    ],
)
def test_a_row_on_another_network_of_the_same_name_is_refused(one, other, tmp_path):
    table = tmp_path / "t.csv"
    for had, has in ((one, other), (other, one)):
        keep(on(had), table)
        check_same_cells([on(had)], table, DIGITS)
        with pytest.raises(ValueError, match="contains dpsh, 12 bits, split 0 on") as refusal:
            check_same_cells([on(has)], table, DIGITS)
        assert str(refusal.value).endswith(
            f"on {on(had).backbone} with backbone={had}, but the settings are now backbone={has}; "
            "use another file for --out, or delete these rows"
        )


def test_rows_with_missing_settings_are_accepted(tmp_path):
    table = tmp_path / "t.csv"
    keep(on("hub:a/resnet-50"), table, version="")
    check_same_cells([on("hub:b/resnet-50")], table, DIGITS)
    # Settings that a later version adds are ignored too.
    cell = on("hub:a/resnet-50")
    key = dict(zip(KEY, cell.key, strict=True))
    save_rows(table, [key | {"options": "backbone=hub:a/resnet-50 gone=3", "version": "0.0.1"}])
    check_same_cells([cell], table, DIGITS)


def test_every_setting_that_differs_is_named(tmp_path):
    table = tmp_path / "t.csv"
    cell = on("small", "dsdh")
    keep(cell, table)
    cell.options.update(epochs=3, mode="authors", eta=5.0)
    with pytest.raises(ValueError, match="mode=paper epochs=100, but the settings are now eta=5"):
        check_same_cells([cell], table, DIGITS)


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("method", ["lsh", "dsdh"])
def test_complete_cells_are_found(method, unseen, validation, tmp_path):
    """The weights of DSDH depend on the number of training images."""
    table, images = tmp_path / "t.csv", DIGITS.subset(np.arange(200))
    options = {"backbone": "small", "epochs": 1, "mode": "balanced"} if method == "dsdh" else {}
    kinds = {"unseen": unseen, "validation": validation}
    cell = Cell("digits", 1, method, method, "pixels", 12, 0, options=options, **kinds)
    save_rows(table, [run_cell(cell, images).row])
    check_same_cells([cell], table, images)
