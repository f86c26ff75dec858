"""Plots of the cells of a table, mean over their seeds, in the form of the paper's Figure 1."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from bitprint.evaluation.metrics import CUTOFFS
from bitprint.evaluation.plots import canvas, styles, write
from bitprint.experiments.cells import KEY
from bitprint.experiments.curves import RECALLS, Curves, read_curves

Lines = dict[str, dict[int, list[Curves]]]
"""Curves of all seeds by the name of a line, then by bits."""


def draw_figures(rows: Iterable[dict[str, str]], table: Path, folder: Path) -> list[Path]:
    """Draw the curves that were kept of the rows of a table as PNG files.

    Parameters
    ----------
    rows : iterable of dict
        Rows of the table, all of one data set and setting; those without curves are left out.
    table : path
        The CSV file of the cells, beside which the curves are.
    folder : path
        Where the files go; it is made if need be.

    Returns
    -------
    list of Path
        `precision_radius2.png`, precision within Hamming radius 2 against the number of bits, with
        the standard deviation over the seeds as bars; and for the longest codes
        `precision_at.png`, precision of the first N items, and `precision_recall.png`. None when
        no curves were kept.
    """
    lines = _gather(rows, table)
    if not lines:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    longest = max(bits for by_bits in lines.values() for bits in by_bits)
    drawn = [_draw_radius(lines, folder / "precision_radius2.png")]
    figure, axes = canvas(f"Ranking, {longest} bits", "first N items", "precision")
    if _draw_means(axes, lines, longest, np.array(CUTOFFS), "precision_at"):
        drawn.append(write(figure, axes, folder / "precision_at.png"))
    figure, axes = canvas(f"Ranking, {longest} bits", "recall", "precision")
    _draw_means(axes, lines, longest, RECALLS, "precision_at_recall", markevery=5)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    drawn.append(write(figure, axes, folder / "precision_recall.png"))
    return drawn


def _gather(rows: Iterable[dict[str, str]], table: Path) -> Lines:
    rows, kept = list(rows), read_curves(table)
    backbones: dict[str, set[str]] = {}
    for row in rows:
        backbones.setdefault(row["variant"], set()).add(row["backbone"])
    lines: Lines = {}
    for row in rows:
        curves = kept.get(tuple(row[name] for name in KEY))
        if curves is not None:
            name = row["variant"]
            if len(backbones[name]) > 1:
                name += f", {row['backbone']}"
            lines.setdefault(name, {}).setdefault(int(row["bits"]), []).append(curves)
    return lines


def _draw_radius(lines: Lines, path: Path) -> Path:
    figure, axes = canvas("Hash lookup", "bits", "precision within Hamming radius 2")
    for (name, by_bits), style in zip(lines.items(), styles(), strict=False):
        lengths = sorted(by_bits)
        figures = [[each.precision_radius2 for each in by_bits[bits]] for bits in lengths]
        if np.isnan(np.concatenate(figures)).all():  # Distances of its own: it has no balls.
            continue
        spreads = [float(np.std(each, ddof=1)) if len(each) > 1 else 0.0 for each in figures]
        means = [np.mean(each) for each in figures]
        axes.errorbar(lengths, means, spreads, label=name, capsize=2, **style)
    axes.set_xticks(sorted({bits for by_bits in lines.values() for bits in by_bits}))
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


def _draw_means(
    axes: Axes,
    lines: Lines,
    bits: int,
    x: NDArray[np.generic],
    curve: str,
    markevery: int = 1,
) -> bool:
    """Draw a curve of every line that has codes of this length; say whether there was any point."""
    drawn = False
    for (name, by_bits), style in zip(lines.items(), styles(), strict=False):
        if bits not in by_bits:
            continue
        means = np.mean([getattr(each, curve) for each in by_bits[bits]], axis=0)
        axes.plot(x, means, label=name, markevery=markevery, **style)
        drawn |= not np.isnan(means).all()
    return drawn
