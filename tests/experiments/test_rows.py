"""Rows of a table that are of other cells than their keys say."""

import numpy as np
import pytest

from bitprint.data import load_digits
from bitprint.experiments.cells import KEY, Cell, items_in, run_cell, settings_of, spell
from bitprint.experiments.deep import deep_cells
from bitprint.experiments.rows import check_same_cells, keep_rows
from bitprint.version import __version__

DIGITS = load_digits()


def on(backbone, row="dpsh"):
    (cell,) = deep_cells("digits", [row], bits=[12], backbone=backbone)
    return cell


def keep(cell, table, version=__version__):
    """Keep a row of a cell as if it had been run."""
    about = {"options": spell(settings_of(cell, items_in(DIGITS, 100))), "version": version}
    keep_rows(table, [dict(zip(KEY, cell.key, strict=True)) | about])


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
        with pytest.raises(ValueError, match="holds dpsh, 12 bits, split 0 on") as refusal:
            check_same_cells([on(has)], table, DIGITS)
        assert str(refusal.value).endswith(
            f"on {on(had).backbone} with backbone={had}, and here it has backbone={has}; "
            "name another file as --out, or delete such rows"
        )


def test_rows_that_do_not_say_all_settings_are_taken_as_they_are(tmp_path):
    table = tmp_path / "t.csv"
    keep(on("hub:a/resnet-50"), table, version="")
    check_same_cells([on("hub:b/resnet-50")], table, DIGITS)
    # Nor does what a later version may add make another cell of it.
    cell = on("hub:a/resnet-50")
    key = dict(zip(KEY, cell.key, strict=True))
    keep_rows(table, [key | {"options": "backbone=hub:a/resnet-50 gone=3", "version": "0.0.1"}])
    check_same_cells([cell], table, DIGITS)


def test_every_setting_that_differs_is_named(tmp_path):
    table = tmp_path / "t.csv"
    cell = on("small", "dsdh")
    keep(cell, table)
    cell.options.update(epochs=3, mode="authors", eta=5.0)
    with pytest.raises(ValueError, match="mode=paper epochs=100, and here it has eta=5"):
        check_same_cells([cell], table, DIGITS)


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("method", ["lsh", "dsdh"])
def test_what_was_run_is_found_again(method, unseen, validation, tmp_path):
    """The weights of DSDH go by the number of images that are trained on."""
    table, images = tmp_path / "t.csv", DIGITS.subset(np.arange(200))
    options = {"backbone": "small", "epochs": 1, "mode": "balanced"} if method == "dsdh" else {}
    kinds = {"unseen": unseen, "validation": validation}
    cell = Cell("digits", 1, method, method, "pixels", 12, 0, options=options, **kinds)
    keep_rows(table, [run_cell(cell, images).row])
    check_same_cells([cell], table, images)
