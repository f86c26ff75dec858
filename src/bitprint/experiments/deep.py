"""Deep rows of the tables in the paper: network and options of each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bitprint.experiments.cells import Cell
from bitprint.experiments.published import BITS
from bitprint.methods import DeepHasher, create, method

TABLE1 = ("cnnh", "ninh", "dqn", "dhn", "dpsh", "dtsh", "dsdh")
"""Deep methods of Table 1, protocol 1."""

TABLE2 = ("dsch", "drsch", "vdsh", "dsrh", "dpsh", "dtsh", "dsdh")
"""Methods of Table 2, protocol 2."""

FIGURE1 = ("dsdh-a", "dsdh-b", "dsdh-c", "dsdh")
"""Rows of Figure 1: DSDH and its three ablations."""

BEYOND = ("cnnh+", "dlbhc", "ssdh", "dsprh", "dsdh authors", "classifier")
"""Rows that are not in the paper, on the same protocols."""

_ON_PRETRAINED = ("dsdh", "dtsh", "dsprh", "dlbhc", "dhn", "dpsh", "ssdh", "dqn", "dsrh")
BY_RECIPE = tuple(f"{name} recipe" for name in _ON_PRETRAINED)
"""DSDH and other methods with pretrained networks, all trained by the recommended recipe."""

_KINDS: dict[str, dict[str, Any]] = {
    "": {"recipe": "paper"},
    "authors": {"recipe": "paper", "mode": "authors"},
    "recipe": {"recipe": "recommended"},
    "recommended": {"recipe": "recommended"},  # as named in results/recommended_cifar10.csv
    "original": {"recipe": "original"},
}
"""Options by the second word of the name of a row."""


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
    """Return the cells of deep methods, ordered by seed.

    In this order an interrupted table is complete for the first seeds.

    Parameters
    ----------
    dataset : str
        A name or folder for `bitprint.data.open_images`.
    methods : sequence of str
        Rows, such as those of `TABLE1`, `TABLE2`, `FIGURE1` and `BEYOND`.
    protocol : {1, 2}
    bits : sequence of int, optional
        By default the columns of the table.
    seeds : sequence of int
    backbone : str
        Network of methods that use pretrained weights; VDSH learns from its features. CNNH, NINH,
        DSCH and DRSCH train their own small networks from scratch, as in their papers.
    validation, unseen, labels
        As in `Cell`.
    changes : dict, optional
        Options to change in all cells. They become part of the names of the rows.

    Returns
    -------
    list of Cell

    Examples
    --------
    >>> cell, = deep_cells("cifar10", ["ninh"], bits=[12])
    >>> cell.backbone, cell.options["backbone"], cell.options["recipe"]
    ('nin-small', 'nin-small:600', 'paper')
    """
    changed = "".join(f" {name}={value}" for name, value in (changes or {}).items())
    cells = []
    for seed, length, row in product(seeds, bits or BITS[protocol], methods):
        network, options = training_of(row, length, backbone)
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
    """Return the name of a network in a table, without the location of weights and the size.

    Examples
    --------
    >>> network_name("hub:microsoft/resnet-50"), network_name("cnnf:imagenet-vgg-f.mat")
    ('resnet-50', 'cnnf')
    """
    name, _, source = backbone.partition(":")
    return source.rstrip("/").rpartition("/")[2] if name == "hub" else name


def training_of(row: str, bits: int, backbone: str) -> tuple[str, dict[str, Any]]:
    """Return the name of the network of a row in a table, and the options for `bitprint.create`.

    The first word of a row is the name of the method, which is trained by the recipe "paper". A
    second word changes this: "recommended" or "recipe" for the recommended recipe, "original" for
    the original recipe, "authors" for the mode "authors" of DSDH.

    Examples
    --------
    >>> training_of("ninh", 12, "efficientnet-lite0")
    ('nin-small', {'recipe': 'paper', 'backbone': 'nin-small:600'})
    """
    name, _, kind = row.partition(" ")
    if not issubclass(method(name), DeepHasher):  # learns from features of the network
        return backbone, {}
    if kind not in _KINDS:
        known = ", ".join(f"'{name} {word}'" for word in _KINDS if word)
        raise ValueError(f"unknown row {row!r}; choose {name!r}, {known}")
    hasher = create(name, bits)
    assert isinstance(hasher, DeepHasher)
    network = hasher.own_backbone() or backbone
    return network_name(network), {**_KINDS[kind], "backbone": network}
