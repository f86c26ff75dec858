"""The deep rows of the paper's tables: on which network each method is trained, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bitprint.experiments.cells import Cell
from bitprint.experiments.published import BITS
from bitprint.methods.recipes import training_recipe

TABLE1 = ("cnnh", "ninh", "dqn", "dhn", "dpsh", "dtsh", "dsdh")
"""Deep methods of Table 1, setting 1."""

TABLE2 = ("dsch", "drsch", "vdsh", "dsrh", "dpsh", "dtsh", "dsdh")
"""Methods of Table 2, setting 2."""

FIGURE1 = ("dsdh-a", "dsdh-b", "dsdh-c", "dsdh")
"""Rows of Figure 1: DSDH and the three systems that lack a part of it."""

BEYOND = ("cnnh+", "dlbhc", "ssdh", "dsprh", "dsdh authors", "classifier")
"""What the paper cites or leaves out, on the same protocols."""

_ON_PRETRAINED = ("dsdh", "dtsh", "dsprh", "dlbhc", "dhn", "dpsh", "ssdh", "dqn", "dsrh")
BY_RECIPE = tuple(f"{name} recipe" for name in _ON_PRETRAINED)
"""DSDH by our recipe, and the others that begin with pretrained weights trained in the same way."""

_VARIANTS: dict[str, dict[str, Any]] = {
    "dsdh": {"mode": "paper"},
    "dsdh authors": {"mode": "authors"},
    "dsdh recipe": {"mode": "balanced"},
}

_FROM_SCRATCH = {
    "cnnh": "cnnh",
    "cnnh+": "cnnh",
    "ninh": "nin-small",
    "dsch": "cnnh",
    "drsch": "cnnh",
}
# NINH has 50 features for each bit.
_FEATURES_PER_BIT = {"ninh": 50}

_EPOCHS = {"pretrained": {1: 20, 2: 6}, "scratch": {1: 100, 2: 20}}
_LONGER = {("ninh", 1): 300}
# To learn from, of CIFAR-10; cells of other sets have the same settings.
_IMAGES = {1: 5000, 2: 50_000}

# Rates of the hash layer on a pretrained network, and of a whole network from scratch, where they
# are not the usual ones. Chosen on held-out training images, see `results/README.md`. By the recipe
# a method other than DSDH keeps its rate.
_HEAD_RATE = {"dhn": 1e-3, "dsrh": 1e-3, "dsdh recipe": 1e-3}
_USUAL_HEAD_RATE = 1e-4
_SCRATCH_RATE = {"ninh": 1e-4}
_USUAL_SCRATCH_RATE = 1e-3


def deep_cells(
    dataset: str,
    methods: Sequence[str],
    *,
    protocol: int = 1,
    bits: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    backbone: str = "efficientnet-lite0",
    validation: bool = False,
    unseen: bool = False,
    labels: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """List the cells of deep methods, seed by seed, so that a table cut short is still whole.

    Parameters
    ----------
    dataset : str
        A name or a folder that `bitprint.data.open_images` knows.
    methods : sequence of str
        Rows, of `TABLE1`, `TABLE2`, `FIGURE1` and `BEYOND`.
    protocol : int
        Setting 1 or 2.
    bits : sequence of int, optional
        The table's columns by default.
    seeds : sequence of int
    backbone : str
        The network of methods that begin with pretrained weights, and whose features VDSH learns
        from. CNNH, NINH, DSCH and DRSCH train small networks of their own from scratch, as their
        authors did.
    validation, unseen, labels
        As in `Cell`.
    changes : dict, optional
        Options to change in all cells; they become part of the names of the rows.

    Examples
    --------
    >>> cell, = deep_cells("cifar10", ["ninh"], bits=[12])
    >>> cell.backbone, cell.options["backbone"], cell.options["epochs"]
    ('nin-small', 'nin-small:600', 300)
    """
    changed = "".join(f" {name}={value}" for name, value in (changes or {}).items())
    cells = []
    for seed, length, row in product(seeds, bits or BITS[protocol], methods):
        network, options = training_of(row, length, protocol, backbone)
        cell = Cell(
            dataset=dataset,
            protocol=protocol,
            variant=row + changed,
            method=row.partition(" ")[0],
            backbone=network,
            bits=length,
            seed=seed,
            validation=validation,
            unseen=unseen,
            options=options | dict(changes or {}),
            labels=labels,
        )
        cells.append(cell)
    return cells


def network_name(backbone: str) -> str:
    """Return what a network is called in a table: not where its weights are, nor its size.

    Examples
    --------
    >>> network_name("hub:microsoft/resnet-50"), network_name("cnnf:imagenet-vgg-f.mat")
    ('resnet-50', 'cnnf')
    """
    name, _, source = backbone.partition(":")
    return source.rstrip("/").rpartition("/")[2] if name == "hub" else name


def training_of(row: str, bits: int, protocol: int, backbone: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a row's network in a table, and its options for `bitprint.create`.

    All methods on a pretrained network have the same budget and optimiser, and so have those that
    start from scratch; the rate of the hash layer is the method's own.
    """
    if row == "vdsh":  # learns from features, which are named by the network that gives them
        return backbone, {}
    name = network_name(backbone)
    shared = {"optimizer": "adamw", "schedule": "cosine", "augment": "flip+shift"}
    if row in _FROM_SCRATCH:
        name = backbone = _FROM_SCRATCH[row]
        if row in _FEATURES_PER_BIT:
            backbone += f":{_FEATURES_PER_BIT[row] * bits}"
        rates = {"lr": _SCRATCH_RATE.get(row, _USUAL_SCRATCH_RATE), "weight_decay": 0.05}
        usual = _EPOCHS["scratch"]
    else:
        plain = _HEAD_RATE.get(row.removesuffix(" recipe"), _USUAL_HEAD_RATE)
        rates = {
            "lr": _HEAD_RATE.get(row, plain),
            "trunk_lr": 3e-4,
            "weight_decay": 0.01,
        }
        usual = _EPOCHS["pretrained"]
    epochs = _LONGER.get((row, protocol), usual[protocol])
    options = {"backbone": backbone, "epochs": epochs} | shared | rates
    if row.endswith(" recipe"):
        options |= training_recipe(backbone, _IMAGES[protocol]) | {"lr": rates["lr"]}
    return name, options | _VARIANTS.get(row, {})
