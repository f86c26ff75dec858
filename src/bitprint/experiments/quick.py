"""Every experiment in a small form: the same path on digits, in seconds a table on one core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bitprint.experiments.cells import Cell
from bitprint.experiments.tables import experiment_cells
from bitprint.methods import DeepHasher, method

DATASET = "digits"
BITS = (12, 24)
NETWORK = "small"
NOTE = (
    "These figures only show that the whole path works; they say nothing about the methods. "
    "Settings 1 and 2 are the same on digits, which has fewer than 500 images of a class."
)

# Each takes longer than all other rows of its table together.
_SLOW = ("oph", "fasth", "ksh", "bre")
_SHORT: dict[str, Any] = {"backbone": NETWORK, "epochs": 2, "lr": 1e-3, "trunk_lr": 1e-3}
_SHORT_ON_FEATURES = {"vdsh": {"iterations": 5, "width": 64}}


def quick_cells(
    name: str, methods: str = "all", *, bits: Sequence[int] | None = None, splits: int = 1
) -> list[Cell]:
    """List the cells of an experiment with embedded images, a small network and little training.

    They show that everything runs; what they measure says nothing about the methods.

    Parameters
    ----------
    name : str
        One of `bitprint.experiments.tables.EXPERIMENTS`.
    methods : str
        As in `experiment_cells`; "all" and "shallow" leave out the slowest.
    bits : sequence of int, optional
        `BITS` by default.
    splits : int

    Examples
    --------
    >>> {cell.options["epochs"] for cell in quick_cells("figure1")}
    {2}
    """
    cells = experiment_cells(
        name, DATASET, methods, bits=bits or BITS, splits=splits, backbone=NETWORK
    )
    named = methods not in ("all", "shallow", "deep")
    return [_shortened(cell) for cell in cells if named or cell.method not in _SLOW]


def _shortened(cell: Cell) -> Cell:
    if issubclass(method(cell.method), DeepHasher):
        short = replace(cell, backbone=NETWORK, options=cell.options | _SHORT)
    else:
        short = replace(cell, options=cell.options | _SHORT_ON_FEATURES.get(cell.method, {}))
    return replace(short, quick=True)
