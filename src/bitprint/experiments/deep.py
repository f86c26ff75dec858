"""The deep rows of the paper's tables: on which network each method is trained, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from bitprint.experiments.cells import Cell
from bitprint.experiments.published import BITS
from bitprint.methods import DeepHasher, create, method

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

_KINDS: dict[str, dict[str, Any]] = {
    "": {"recipe": "paper"},
    "authors": {"recipe": "paper", "mode": "authors"},
    "recipe": {"recipe": "recommended"},
    "recommended": {"recipe": "recommended"},  # the name in results/recommended_cifar10.csv
    "original": {"recipe": "original"},
}
"""What the second word of a row's name stands for."""


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
    """Return what a network is called in a table: not where its weights are, nor its size.

    Examples
    --------
    >>> network_name("hub:microsoft/resnet-50"), network_name("cnnf:imagenet-vgg-f.mat")
    ('resnet-50', 'cnnf')
    """
    name, _, source = backbone.partition(":")
    return source.rstrip("/").rpartition("/")[2] if name == "hub" else name


def training_of(row: str, bits: int, backbone: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a row's network in a table, and its options for `bitprint.create`.

    A row is the name of a method, trained by the recipe "paper", and possibly one more word:
    "recommended" or "recipe" for the recommended recipe, "original", or "authors" for DSDH's other
    mode.

    Examples
    --------
    >>> training_of("ninh", 12, "efficientnet-lite0")
    ('nin-small', {'recipe': 'paper', 'backbone': 'nin-small:600'})
    """
    name, _, kind = row.partition(" ")
    if not issubclass(method(name), DeepHasher):  # learns from features of that network
        return backbone, {}
    if kind not in _KINDS:
        known = ", ".join(f"'{name} {word}'" for word in _KINDS if word)
        raise ValueError(f"there is no row {row!r}; there are {name!r}, {known}")
    hasher = create(name, bits)
    assert isinstance(hasher, DeepHasher)
    network = hasher.own_backbone() or backbone
    return network_name(network), {**_KINDS[kind], "backbone": network}
