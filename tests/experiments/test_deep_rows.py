"""The deep rows of the paper's tables can all be made, and differ only where they should."""

import pytest

from bitprint.data import load_digits
from bitprint.data.protocols_unseen import unseen_split
from bitprint.experiments.cells import run_cell
from bitprint.experiments.deep import (
    BEYOND,
    BY_RECIPE,
    FIGURE1,
    TABLE1,
    TABLE2,
    deep_cells,
    training_of,
)
from bitprint.experiments.published import MAP
from bitprint.methods import create
from bitprint.methods.recipes import training_recipe

EVERY_ROW = sorted({*TABLE1, *TABLE2, *FIGURE1, *BEYOND, *BY_RECIPE})


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_row_is_a_method_with_options_that_it_knows(row, protocol):
    for cell in deep_cells("cifar10", [row], protocol=protocol):
        hasher = create(cell.method, cell.bits, **cell.options)
        assert (hasher.name, hasher.bits) == (row.split()[0], cell.bits)


def test_the_tables_hold_every_deep_row_that_the_paper_prints():
    printed = {
        setting: {m for d, s, m in MAP if d == "cifar10" and s == setting} for setting in (1, 2)
    }
    assert set(TABLE2) == printed[2]
    assert set(TABLE1) <= printed[1]
    assert printed[1] - set(TABLE1) == {"fasth", "sdh", "ksh", "lfh", "splh", "itq", "sh"}


def test_every_cell_once_and_seeds_outermost():
    cells = deep_cells("cifar10", TABLE1, bits=[12, 48], seeds=[0, 1])
    assert len({cell.key for cell in cells}) == len(cells) == len(TABLE1) * 2 * 2
    assert [cell.seed for cell in cells] == [0] * 14 + [1] * 14


@pytest.mark.parametrize("protocol", [1, 2])
def test_methods_on_a_pretrained_network_have_one_budget(protocol):
    settings = []
    for row in ("dqn", "dhn", "dsrh", "dpsh", "dtsh", "dsdh", "dsdh-a", "dlbhc", "classifier"):
        network, options = training_of(row, 12, protocol, "hub:some/resnet-50")
        assert (network, options["backbone"]) == ("resnet-50", "hub:some/resnet-50")
        settings.append({k: v for k, v in options.items() if k not in ("lr", "mode")})
    assert all(setting == settings[0] for setting in settings)


@pytest.mark.parametrize(("protocol", "images"), [(1, 5000), (2, 50_000)])
def test_rivals_are_trained_by_the_same_recipe(protocol, images):
    settings = []
    for row in BY_RECIPE:
        _, options = training_of(row, 12, protocol, "efficientnet-lite0")
        recommended = training_recipe("efficientnet-lite0", images)
        assert recommended.items() - {"lr": recommended["lr"]}.items() <= options.items()
        settings.append({k: v for k, v in options.items() if k not in ("lr", "mode")})
    assert all(setting == settings[0] for setting in settings)


def test_rivals_keep_the_rate_of_their_hash_layer_by_the_recipe():
    for row in set(BY_RECIPE) - {"dsdh recipe"}:
        _, by_recipe = training_of(row, 12, 1, "efficientnet-lite0")
        _, plain = training_of(row.removesuffix(" recipe"), 12, 1, "efficientnet-lite0")
        assert by_recipe["lr"] == plain["lr"]


@pytest.mark.parametrize("row", ["cnnh", "cnnh+", "ninh", "dsch", "drsch"])
def test_originals_from_scratch_keep_their_own_network(row):
    for backbone in ("efficientnet-lite0", "hub:some/resnet-50"):
        network, options = training_of(row, 12, 1, backbone)
        assert network in ("cnnh", "nin-small")
        assert options["backbone"].split(":")[0] == network


def test_changes_reach_every_cell_and_its_name():
    (cell,) = deep_cells("cifar10", ["dsdh"], bits=[12], changes={"eta": 5.0})
    assert cell.variant == "dsdh eta=5.0"
    assert (cell.options["eta"], cell.options["mode"]) == (5.0, "paper")


def test_unseen_classes_are_measured_on_their_own_split():
    digits = load_digits()
    changes = {"backbone": "small", "epochs": 1}
    (cell,) = deep_cells("digits", ["dpsh"], bits=[12], seeds=[3], unseen=True, changes=changes)
    row = run_cell(cell, digits).row
    split = unseen_split(digits.labels, 1, 3, name=digits.name)
    assert row["measured_on"] == "unseen classes"
    assert row["split"] == split.fingerprint[:12]
    assert row["paper_map"] is None
    assert not set(digits.labels[split.training]) & set(digits.labels[split.queries])
