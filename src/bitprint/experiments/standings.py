"""Compare DSDH with the best other method on the same network and seeds."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean
from typing import Any

from bitprint.experiments.deep import network_name

Maps = dict[int, float]  # MAP by seed


def standings(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Return a sentence for each network and code length with results of DSDH and another method.

    The variant of DSDH with the highest mean MAP is compared with the variant of another method
    (ablations of DSDH included) that is best in comparison on common seeds. One is "ahead" if its
    MAP is higher with every common seed; otherwise the two are "level". Whether both use the same
    recipe is visible in their names.

    Parameters
    ----------
    rows : iterable of dict
        Rows of a table of cells, all of one data set and protocol.

    Returns
    -------
    list of str

    Examples
    --------
    >>> cells = [("dsdh", 0, 0.914), ("dsdh", 1, 0.917), ("dtsh", 0, 0.913), ("dpsh", 0, 0.8)]
    >>> rows = [
    ...     {"variant": m, "method": m, "backbone": "net", "bits": 12, "seed": seed, "map": value}
    ...     for m, seed, value in cells
    ... ]
    >>> standings(rows)
    ['12 bits on net: dsdh is ahead of dtsh on the only common seed, MAP 0.914 against 0.913.']
    """
    groups: dict[tuple[str, int], dict[bool, dict[str, Maps]]] = {}
    for row in rows:
        network = network_name(row["backbone"])
        group = groups.setdefault((network, int(row["bits"])), {True: {}, False: {}})
        maps = group[row["method"] == "dsdh"].setdefault(row["variant"], {})
        maps[int(row["seed"])] = float(row["map"])
    return [
        f"{bits} bits on {backbone}: {_comparison(group[True], group[False])}"
        for (backbone, bits), group in sorted(groups.items())
        if group[True] and group[False]
    ]


def _comparison(dsdh: dict[str, Maps], others: dict[str, Maps]) -> str:
    """Compare the best variant of DSDH with the strongest other variant."""
    name, own = max(dsdh.items(), key=lambda item: mean(item[1].values()))
    comparable = {rival: maps for rival, maps in others.items() if own.keys() & maps.keys()}
    if not comparable:
        return f"{name} and the other methods have no seed in common."
    rival, other = max(comparable.items(), key=lambda item: mean(_leads(item[1], own)))
    shared = own.keys() & other.keys()
    own_mean, other_mean = (mean(maps[seed] for seed in shared) for maps in (own, other))
    own_map, other_map = f"{own_mean:.3f}", f"{other_mean:.3f}"
    wins, losses = (
        sum(lead > 0 for lead in _leads(*pair)) for pair in ((own, other), (other, own))
    )
    place = "level with"
    if own_map != other_map and len(shared) in (wins, losses):
        place = "ahead of" if wins else "behind"
    seeds = " on the only common seed"
    if len(shared) > 1:
        seeds = f" over {len(shared)} seeds (higher on {wins})"
    return f"{name} is {place} {rival}{seeds}, MAP {own_map} against {other_map}."


def _leads(maps: Maps, over: Maps) -> list[float]:
    """Return the differences in MAP for each common seed."""
    return [maps[seed] - over[seed] for seed in maps.keys() & over.keys()]
