"""Who is ahead: DSDH against the best of the other methods, on the same network and seeds."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean
from typing import Any

from bitprint.experiments.deep import network_name

Maps = dict[int, float]  # by seed


def standings(rows: Iterable[dict[str, Any]]) -> list[str]:
    """One sentence for each network and length where DSDH and another method were measured.

    It is about the variant of DSDH with the highest mean, and the variant of another method, its
    ablations A, B and C among them, that has the most to set against it with seeds that both have.
    Where there are several, one is ahead that is so with each of them, and the two are level
    otherwise. Whether they were trained alike, their names tell.

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
    ['12 bits on net: dsdh is ahead of dtsh on one seed alone, 0.914 to 0.913.']
    """
    groups: dict[tuple[str, int], dict[bool, dict[str, Maps]]] = {}
    for row in rows:
        network = network_name(row["backbone"])  # in full where a method learns from its features
        group = groups.setdefault((network, int(row["bits"])), {True: {}, False: {}})
        maps = group[row["method"] == "dsdh"].setdefault(row["variant"], {})
        maps[int(row["seed"])] = float(row["map"])
    return [
        f"{bits} bits on {backbone}: {_verdict(group[True], group[False])}"
        for (backbone, bits), group in sorted(groups.items())
        if group[True] and group[False]
    ]


def _verdict(ours: dict[str, Maps], theirs: dict[str, Maps]) -> str:
    """Compare the best of ours with the strongest of theirs."""
    name, own = max(ours.items(), key=lambda item: mean(item[1].values()))
    comparable = {rival: maps for rival, maps in theirs.items() if own.keys() & maps.keys()}
    if not comparable:
        return f"{name} and the others were measured with different seeds."
    rival, other = max(comparable.items(), key=lambda item: mean(_leads(item[1], own)))
    shared = own.keys() & other.keys()
    own_mean, other_mean = (mean(maps[seed] for seed in shared) for maps in (own, other))
    figures = f"{own_mean:.3f}", f"{other_mean:.3f}"
    wins, losses = (
        sum(lead > 0 for lead in _leads(*pair)) for pair in ((own, other), (other, own))
    )
    place = "level with"
    if figures[0] != figures[1] and len(shared) in (wins, losses):
        place = "ahead of" if wins else "behind"
    alone, seeds = " on one seed alone", ""
    if len(shared) > 1:
        alone, seeds = "", f" over {len(shared)} seeds, ahead in {wins}"
    return f"{name} is {place} {rival}{alone}, {figures[0]} to {figures[1]}{seeds}."


def _leads(maps: Maps, over: Maps) -> list[float]:
    """By how much one is ahead of another, with each seed that both have."""
    return [maps[seed] - over[seed] for seed in maps.keys() & over.keys()]
