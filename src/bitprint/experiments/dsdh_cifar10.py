"""DSDH and its ablations on CIFAR-10, setting 1, on two pretrained networks.

python -m bitprint.experiments.dsdh_cifar10 --out results/dsdh_cifar10.csv
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

from bitprint.experiments.cells import Cell, run_cells
from bitprint.experiments.published import BITS
from bitprint.methods.recipes import RECIPES

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "balanced": ("dsdh", {"mode": "balanced"}),
    "paper": ("dsdh", {"mode": "paper"}),
    "authors": ("dsdh", {"mode": "authors"}),
    "A": ("dsdh-a", {}),
    "B": ("dsdh-b", {}),
    "C": ("dsdh-c", {}),
}
"""Rows of the table. "paper" and "authors" are at the paper's mu, nu and eta."""

BACKBONES = ("efficientnet-lite0", "resnet-50")


def recipe(variant: str, backbone: str) -> dict[str, Any]:
    """Return how a variant is trained.

    At the weights of "balanced" the hash layer may learn ten times faster than at the paper's:
    there, pairs rule, and at a high rate several classes fall on one code before they part.
    """
    shared = {name: value for name, value in RECIPES["dsdh"].items() if name != "mode"}
    if variant == "balanced":
        return shared | {"epochs": 40 if backbone == "efficientnet-lite0" else 30}
    return shared | {"epochs": 20, "lr": 1e-4}


def cells(
    variants: list[str],
    backbones: dict[str, str],
    bits: list[int],
    seeds: list[int],
    *,
    validation: bool = False,
    changes: dict[str, Any] | None = None,
    suffix: str = "",
) -> list[Cell]:
    """List the cells of the table, seed by seed, so that a table cut short is still whole.

    Parameters
    ----------
    variants, bits, seeds : list
        The rows, columns and repetitions.
    backbones : dict of str to str
        Names in the table, and what `bitprint.create` calls them.
    validation : bool
        Measure on held-out training images.
    changes : dict, optional
        Options to change in all cells, with a `suffix` for the names of the rows.
    """
    table = []
    for seed, length, variant, name in product(seeds, bits, variants, backbones):
        method, options = VARIANTS[variant]
        options = {"backbone": backbones[name]} | recipe(variant, name) | options | (changes or {})
        row = Cell(
            dataset="cifar10",
            protocol=1,
            variant=variant + suffix,
            method=method,
            backbone=name,
            bits=length,
            seed=seed,
            validation=validation,
            options=options,
        )
        table.append(row)
    return table


def main() -> None:
    """Run the cells that the table lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/dsdh_cifar10.csv"))
    parser.add_argument("--history", type=Path, help="CSV file for the figures of every epoch")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--backbones", nargs="+", choices=BACKBONES, default=["efficientnet-lite0"])
    parser.add_argument("--resnet50", help="model id or folder of the ResNet-50", default="")
    parser.add_argument("--bits", nargs="+", type=int, default=list(BITS[1]))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--validation", action="store_true", help="never look at the queries")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="change options")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--deadline", type=float, default=float("inf"), metavar="SECONDS")
    given = parser.parse_args()
    sources = {name: name for name in given.backbones}
    if "resnet-50" in sources:
        if not given.resnet50:
            parser.error("--resnet50 says which ResNet-50, for example microsoft/resnet-50")
        sources["resnet-50"] = f"hub:{given.resnet50}"
    changes = {name: _number(value) for name, value in (pair.split("=") for pair in given.set)}
    table = cells(
        given.variants,
        sources,
        given.bits,
        given.seeds,
        validation=given.validation,
        changes=changes,
        suffix="".join(f" {pair}" for pair in given.set),
    )
    rows = run_cells(
        table, given.out, history=given.history, workers=given.workers, deadline=given.deadline
    )
    for row in rows:
        print(
            f"{row['backbone']:20} {row['variant']:24} {row['bits']:>3} bits  seed {row['seed']}  "
            f"MAP {row['map']:.4f}  paper {row['paper_map']}  "
            f"{row['train_seconds']:.0f} + {row['encode_seconds']:.0f} s",
            flush=True,
        )


def _number(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


if __name__ == "__main__":
    main()
