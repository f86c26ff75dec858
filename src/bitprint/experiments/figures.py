"""Plots of the cells of a table, mean over their seeds, in the form of the paper's Figure 1."""

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
"""Curves of all seeds by the name of a line, then by bits."""

Lookups = dict[str, dict[int, list[float]]]
"""Precision within radius 2 of all seeds by the name of a line, then by bits."""

Styles = dict[str, dict[str, Any]]
"""Colour, marker and line by the name of a line: the same in every plot."""


def draw_figures(
    rows: Iterable[dict[str, str]], table: Path, folder: Path, about: str = ""
) -> list[Path]:
    """Draw the rows of a table as PNG files.

    Parameters
    ----------
    rows : iterable of dict
        Rows of the table, all of one data set and setting.
    table : path
        The CSV file of the cells, beside which the curves are.
    folder : path
        Where the files go; it is made if need be.
    about : str
        What was measured on, for the titles; the network follows where all rows have one.

    Returns
    -------
    list of Path
        `precision_radius2.png`, precision within Hamming radius 2 against the number of bits, with
        the standard deviation over the seeds as bars; and for the longest codes of which curves
        were kept `precision_at.png`, precision of the first N items, and `precision_recall.png`.
    """
    named, kept = _name_lines(rows), read_curves(table)
    looks = dict(zip(dict.fromkeys(name for name, _ in named), styles(), strict=False))
    backbones = {row["backbone"] for _, row in named}
    below = ", ".join([*([about] if about else []), *(backbones if len(backbones) == 1 else [])])
    lookups: Lookups = {}
    lines: Lines = {}
    for name, row in named:
        bits = int(row["bits"])
        found = float(row["precision_radius2"])
        if not np.isnan(found):  # A method with distances of its own has no balls.
            lookups.setdefault(name, {}).setdefault(bits, []).append(found)
        curves = kept.get(tuple(row[key] for key in KEY))
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
    """Give each row the name of its line: that of its variant, and of its network if it has two."""
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
    """Draw a curve of every line that has codes of this length; say whether there was any point."""
    drawn = False
    for name, by_bits in lines.items():
        if bits not in by_bits:
            continue
        means = np.mean([getattr(each, curve) for each in by_bits[bits]], axis=0)
        axes.plot(x, means, label=name, markevery=markevery, **looks[name])
        drawn |= not np.isnan(means).all()
    return drawn
