"""`bitprint methods`."""

from __future__ import annotations

import re
from typing import Any

from rich.table import Table

from bitprint.cli._shared import JsonOption, output, say

_BITS = 48
"""Code length of the printed MAP; the JSON output contains all lengths."""

_LEGEND = f"""
input: methods with input "images" train a network; they also accept features.
paper: MAP on CIFAR-10, protocol 1, {_BITS} bits, as printed in the DSDH paper.
ours: the same, measured with Bitprint. Deep methods use their published loss
and weights here, not the recommended settings."""


def methods(as_json: JsonOption = False) -> None:
    """List the methods, their input, whether they need labels, and their MAP on CIFAR-10.

    --json also prints MAP at all code lengths and the reference of each method.
    """
    from bitprint.methods import list_methods

    rows = [_describe(name) for name in list_methods()]
    if as_json:
        output.print_json(data=rows)
    else:
        output.print(_table(rows))
        say(_LEGEND)


def _describe(name: str) -> dict[str, Any]:
    """Return the requirements of a method, its MAP in the paper and its measured MAP."""
    from bitprint.experiments.measured import measured_map
    from bitprint.experiments.published import BITS, published_map
    from bitprint.methods import DeepHasher, method

    cls, lengths = method(name), BITS[1]
    measured = {bits: measured_map("cifar10", 1, name, bits) for bits in lengths}
    return {
        "name": name,
        "learns_from": "images" if issubclass(cls, DeepHasher) else "features",
        "supervision": cls.supervision,
        "reference": cls.reference,
        "paper_map_cifar10": {bits: published_map("cifar10", 1, name, bits) for bits in lengths},
        "our_map_cifar10": {bits: each and each.map for bits, each in measured.items()},
        "our_backbone": next((each.backbone for each in measured.values() if each), None),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    """Return a table with one line per method, at most 80 columns wide."""
    table = Table(
        *("method", "input", "labels", "paper", "ours", "ours with", "published"),
        box=None,
        padding=(0, 1, 0, 0),
    )
    for row in rows:
        published = re.search(r"[^,]+ \d{4}", row["reference"])
        table.add_row(
            row["name"],
            row["learns_from"],
            "yes" if row["supervision"] == "labels" else "no",
            _format(row["paper_map_cifar10"][_BITS]),
            _format(row["our_map_cifar10"][_BITS]),
            row["our_backbone"] or "-",
            published.group().strip() if published else row["reference"],
        )
    return table


def _format(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}".lstrip("0")
