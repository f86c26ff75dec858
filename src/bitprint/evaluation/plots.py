"""Plots of retrieval metrics, drawn without a display and without global state."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bitprint.evaluation.report import Report
from bitprint.utils.files import no_part_left

# The color-blind safe palette of Okabe and Ito without yellow, which is hard to see on white.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = "osD^vPX<>*"
_LINES = ("-", "--", ":")

Reports = Mapping[str, Report] | Mapping[str, Mapping[int, Report]]


def plot_reports(reports: Reports, folder: str | os.PathLike[str]) -> list[Path]:
    """Draw the usual plots of a hashing paper as PNG files.

    Parameters
    ----------
    reports : mapping
        Method name to `Report`, or method name to {bits: `Report`}.
    folder : path
        Output folder; created if missing.

    Returns
    -------
    list of Path
        `precision_radius2.png`: precision within Hamming radius 2 against the number of bits. For
        every number of bits K, `precision_at_K.png`: precision of the first N items, and
        `precision_recall_K.png`: precision against recall along the ranked list.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> report = bp.evaluate(codes, [0, 0, 1], codes, [0, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in plot_reports({"mine": report}, folder)]
    ['precision_radius2.png', 'precision_recall_4.png']
    """
    by_name = {
        name: {report.bits: report} if isinstance(report, Report) else dict(sorted(report.items()))
        for name, report in reports.items()
    }
    all_bits = sorted({bits for by_bits in by_name.values() for bits in by_bits})
    if not all_bits:
        raise ValueError("there are no reports to plot")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = [_plot_radius(by_name, all_bits, folder / "precision_radius2.png")]
    for bits in all_bits:
        these = {name: by_bits.get(bits) for name, by_bits in by_name.items()}
        if any(report is not None and report.precision_at for report in these.values()):
            drawn.append(_plot_precision_at(these, folder / f"precision_at_{bits}.png"))
        drawn.append(_plot_precision_recall(these, folder / f"precision_recall_{bits}.png"))
    return drawn


def _plot_radius(by_name: dict[str, dict[int, Report]], ticks: list[int], path: Path) -> Path:
    figure, axes = canvas("Hash lookup", "bits", "precision within Hamming radius 2")
    for (name, by_bits), style in zip(by_name.items(), styles(), strict=False):
        precisions = [report.precision_radius2 for report in by_bits.values()]
        axes.plot(list(by_bits), precisions, label=name, **style)
    axes.set_xticks(ticks)
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


def _plot_precision_at(these: dict[str, Report | None], path: Path) -> Path:
    figure, axes = canvas(f"Ranking, {_bits(these)} bits", "first N items", "precision")
    for (name, report), style in zip(these.items(), styles(), strict=False):
        if report is not None:
            cutoffs, precisions = list(report.precision_at), list(report.precision_at.values())
            axes.plot(cutoffs, precisions, label=name, **style)
    return write(figure, axes, path)


def _plot_precision_recall(these: dict[str, Report | None], path: Path) -> Path:
    figure, axes = canvas(f"Ranking, {_bits(these)} bits", "recall", "precision")
    for (name, report), style in zip(these.items(), styles(), strict=False):
        if report is not None:
            curve = report.pr_curve
            axes.plot(curve.recall, curve.precision, label=name, markevery=0.08, **style)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


def _bits(these: dict[str, Report | None]) -> int:
    return next(report.bits for report in these.values() if report is not None)


def styles() -> Iterator[dict[str, Any]]:
    """Yield color, marker and line style of each method; the line changes when colors repeat."""
    for index in count():
        yield {
            "color": _COLORS[index % len(_COLORS)],
            "marker": _MARKERS[index % len(_MARKERS)],
            "linestyle": _LINES[index // len(_COLORS) % len(_LINES)],
            "markersize": 6,
            "linewidth": 1.6,
        }


def canvas(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    """Return an empty figure and its axes, with the labels of x and y."""
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def write(figure: Figure, axes: Axes, path: Path) -> Path:
    """Save the figure with its legend beside the axes."""
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    with no_part_left(path):
        figure.savefig(path, dpi=150)
    return path
