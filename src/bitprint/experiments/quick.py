"""Quick test runs of all experiments on digits; each table takes seconds on one core."""

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
    "This is a test run. It only shows that all steps work; methods cannot be compared by it. "
    "Protocols 1 and 2 are the same on digits, which has fewer than 500 images per class."
)

# Each of these takes longer than all other rows of its table.
_SLOW = ("oph", "fasth", "ksh", "bre")
_SHORT: dict[str, Any] = {"backbone": NETWORK, "epochs": 2, "lr": 1e-3, "trunk_lr": 1e-3}
_SHORT_ON_FEATURES = {"vdsh": {"iterations": 5, "width": 64}}


def quick_cells(
    name: str, methods: str = "all", *, bits: Sequence[int] | None = None, splits: int = 1
) -> list[Cell]:
    """Return the cells of an experiment for a test run: built-in images and a small network.

    The results only show that all steps work; methods cannot be compared by them.

    Parameters
    ----------
    name : str
        One of `bitprint.experiments.tables.EXPERIMENTS`.
    methods : str
        As in `experiment_cells`, but "all" and "shallow" exclude the slowest methods.
    bits : sequence of int, optional
        By default `BITS`.
    splits : int

    Returns
    -------
    list of Cell

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
