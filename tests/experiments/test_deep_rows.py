"""Deep rows of the tables: all can be created, with the intended options."""

from dataclasses import asdict

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
    network_name,
    training_of,
)
from bitprint.experiments.published import MAP
from bitprint.methods import create
from bitprint.methods.recipes import Items, settle

EVERY_ROW = sorted({*TABLE1, *TABLE2, *FIGURE1, *BEYOND, *BY_RECIPE})


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_row_has_valid_options(row, protocol):
    for cell in deep_cells("cifar10", [row], protocol=protocol):
        hasher = create(cell.method, cell.bits, **cell.options)
        assert (hasher.name, hasher.bits) == (row.split()[0], cell.bits)


def test_the_tables_contain_every_deep_row_of_the_paper():
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


def settings(row, count, backbone="hub:some/resnet-50"):
    (cell,) = deep_cells("cifar10", [row], bits=[12], backbone=backbone)
    assert (cell.backbone, cell.options["backbone"]) == (network_name(backbone), backbone)
    hasher = create(cell.method, 12, **cell.options)
    return settle(hasher, Items((32, 32, 3), count)).training


@pytest.mark.parametrize("count", [5000, 50_000])
def test_methods_on_a_pretrained_network_have_one_budget(count):
    rows = ("dqn", "dhn", "dsrh", "dpsh", "dtsh", "dsdh", "dsdh-a", "dlbhc", "classifier")
    own = {"lr", "batch_size", "momentum"}
    budgets = [
        {name: value for name, value in asdict(settings(row, count)).items() if name not in own}
        for row in rows
    ]
    assert all(budget == budgets[0] for budget in budgets)
    assert budgets[0]["epochs"] == (20 if count == 5000 else 6)


@pytest.mark.parametrize("count", [5000, 50_000])
def test_rivals_share_the_recipe_except_for_validated_options(count):
    plans = {row: settings(row, count, "efficientnet-lite0") for row in BY_RECIPE}
    own = {"dhn recipe": ["cutmix"], "dpsh recipe": ["cutmix", "drop_blocks", "freeze_norms"]}
    usual = plans["dsdh recipe"]
    for row, plan in plans.items():
        different = [n for n, value in asdict(plan).items() if value != getattr(usual, n)]
        allowed = own.get(row, []) if count == 5000 else []
        assert sorted({*different} - {"lr", "momentum"}) == allowed


@pytest.mark.parametrize("row", ["cnnh", "cnnh+", "ninh", "dsch", "drsch"])
def test_originals_from_scratch_keep_their_own_network(row):
    for backbone in ("efficientnet-lite0", "hub:some/resnet-50"):
        network, options = training_of(row, 12, backbone)
        assert network in ("cnnh", "nin-small")
        assert options["backbone"].split(":")[0] == network


def test_changes_reach_every_cell_and_its_name():
    (cell,) = deep_cells("cifar10", ["dsdh"], bits=[12], changes={"eta": 5.0})
    assert cell.variant == "dsdh eta=5.0"
    assert (cell.options["eta"], cell.options["recipe"]) == (5.0, "paper")


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
