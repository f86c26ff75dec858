"""Plots of the cells of a table, averaged over seeds, in the style of Figure 1 of the paper."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bitprint.evaluation.metrics import CUTOFFS
from bitprint.evaluation.plots import canvas, styles, write
from bitprint.experiments.cells import KEY
from bitprint.experiments.curves import RECALLS, Curves, read_curves

Lines = dict[str, dict[int, list[Curves]]]
"""Curves of all seeds, by name of the line, then by bits."""

Lookups = dict[str, dict[int, list[float]]]
"""Precision within radius 2 of all seeds, by name of the line, then by bits."""

Styles = dict[str, dict[str, Any]]
"""Color, marker and dashes by name of the line; the same in every plot."""


def draw_figures(
    rows: Iterable[dict[str, str]], table: Path, folder: Path, about: str = ""
) -> list[Path]:
    """Draw the rows of a table as PNG files.

    Parameters
    ----------
    rows : iterable of dict
        Rows of the table, all of one data set and protocol.
    table : path
        The CSV file of the cells; the curves are stored next to it.
    folder : path
        Output folder; created if it does not exist.
    about : str
        Data set and protocol for the titles. The network is appended if all rows have the same.

    Returns
    -------
    list of Path
        `precision_radius2.png`: precision within Hamming radius 2 by number of bits, with the
        standard deviation over seeds as error bars. `precision_at.png` and `precision_recall.png`:
        precision of the first N items and precision-recall curves of the longest codes for which
        curves are stored.
    """
    named, stored = _name_lines(rows), read_curves(table)
    looks = dict(zip(dict.fromkeys(name for name, _ in named), styles(), strict=False))
    backbones = {row["backbone"] for _, row in named}
    below = ", ".join([*([about] if about else []), *(backbones if len(backbones) == 1 else [])])
    lookups: Lookups = {}
    lines: Lines = {}
    for name, row in named:
        bits = int(row["bits"])
        found = float(row["precision_radius2"])
        if not np.isnan(found):  # NaN for methods without Hamming distances
            lookups.setdefault(name, {}).setdefault(bits, []).append(found)
        curves = stored.get(tuple(row[key] for key in KEY))
        if curves is not None:
            lines.setdefault(name, {}).setdefault(bits, []).append(curves)
    drawn = []
    if lookups or lines:
        folder.mkdir(parents=True, exist_ok=True)
    if lookups:
        drawn.append(_draw_radius(lookups, looks, below, folder / "precision_radius2.png"))
    if not lines:
        return drawn
    longest = max(bits for by_bits in lines.values() for bits in by_bits)
    title = f"Ranking, {longest} bits\n{below}"
    figure, axes = canvas(title, "first N items", "precision")
    if _draw_means(axes, lines, looks, longest, np.array(CUTOFFS), "precision_at"):
        drawn.append(write(figure, axes, folder / "precision_at.png"))
    figure, axes = canvas(title, "recall", "precision")
    _draw_means(axes, lines, looks, longest, RECALLS, "precision_at_recall", markevery=5)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    drawn.append(write(figure, axes, folder / "precision_recall.png"))
    return drawn


def _name_lines(rows: Iterable[dict[str, str]]) -> list[tuple[str, dict[str, str]]]:
    """Return each row with the name of its line: the variant, and the network if it has several."""
    rows = list(rows)
    backbones: dict[str, set[str]] = {}
    for row in rows:
        backbones.setdefault(row["variant"], set()).add(row["backbone"])
    named = []
    for row in rows:
        several = len(backbones[row["variant"]]) > 1
        named.append((row["variant"] + (f", {row['backbone']}" if several else ""), row))
    return named


def _draw_radius(lookups: Lookups, looks: Styles, below: str, path: Path) -> Path:
    figure, axes = canvas(f"Hash lookup\n{below}", "bits", "precision within Hamming radius 2")
    for name, by_bits in lookups.items():
        lengths = sorted(by_bits)
        figures = [by_bits[bits] for bits in lengths]
        spreads = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in figures]
        means = [np.mean(each) for each in figures]
        axes.errorbar(lengths, means, spreads, label=name, capsize=2, **looks[name])
    axes.set_xticks(sorted({bits for by_bits in lookups.values() for bits in by_bits}))
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


def _draw_means(
    axes: Axes,
    lines: Lines,
    looks: Styles,
    bits: int,
    x: NDArray[np.generic],
    curve: str,
    markevery: int = 1,
) -> bool:
    """Draw the curves of all lines with codes of this length; return whether any has values."""
    drawn = False
    for name, by_bits in lines.items():
        if bits not in by_bits:
            continue
        means = np.mean([getattr(each, curve) for each in by_bits[bits]], axis=0)
        axes.plot(x, means, label=name, markevery=markevery, **looks[name])
        drawn |= not np.isnan(means).all()
    return drawn
