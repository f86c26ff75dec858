"""Who is ahead: DSDH against the best of the other methods, on the same network and splits."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean
from typing import Any


def standings(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each network and length where DSDH and another method were measured.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and setting.

    Examples
    --------
    >>> cells = [("dsdh", 0, 0.914), ("dsdh", 1, 0.917), ("dtsh", 0, 0.913), ("dpsh", 0, 0.8)]
    >>> rows = [
    ...     {"variant": m, "method": m, "backbone": "net", "bits": 12, "seed": seed, "map": value}
    ...     for m, seed, value in cells
    ... ]
    >>> standings(rows)
    ['12 bits on net: dsdh is ahead of dtsh, 0.914 to 0.913 over 1 split.']
    """
    groups: dict[tuple[str, int], dict[bool, dict[str, dict[int, float]]]] = {}
    for row in rows:
        group = groups.setdefault((row["backbone"], int(row["bits"])), {True: {}, False: {}})
        maps = group[row["method"] == "dsdh"].setdefault(row["variant"], {})
        maps[int(row["seed"])] = float(row["map"])
    return [
        f"{bits} bits on {backbone}: {_verdict(_best(group[True]), _best(group[False]))}"
        for (backbone, bits), group in sorted(groups.items())
        if group[True] and group[False]
    ]


def _best(variants: dict[str, dict[int, float]]) -> tuple[str, dict[int, float]]:
    """The variant with the highest mean, and its MAP by seed."""
    return max(variants.items(), key=lambda item: mean(item[1].values()))


def _verdict(ours: tuple[str, dict[int, float]], theirs: tuple[str, dict[int, float]]) -> str:
    """Compare on the splits that both have."""
    (name, own), (rival, other) = ours, theirs
    shared = own.keys() & other.keys()
    if not shared:
        return f"{name} and {rival} were measured on different splits."
    own_mean, other_mean = (mean(maps[seed] for seed in shared) for maps in (own, other))
    wins = sum(own[seed] > other[seed] for seed in shared)
    place = "ahead of" if own_mean > other_mean else "behind"
    each = "" if len(shared) == 1 else f", ahead in {wins}"
    splits = "split" if len(shared) == 1 else "splits"
    return (
        f"{name} is {place} {rival}, {own_mean:.3f} to {other_mean:.3f} "
        f"over {len(shared)} {splits}{each}."
    )
