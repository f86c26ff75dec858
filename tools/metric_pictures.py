"""Draw the figures of `docs/metrics.md` from small measured examples."""

from __future__ import annotations

from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

import bitprint as bp
from bitprint.data import open_images, split_for
from bitprint.evaluation.plots import canvas, styles, write

FOLDER = Path(__file__).parents[1] / "docs" / "images"

BUCKETS = ((1, 1), (2, 4), (2, 5), (0, 3))
"""Relevant items and all items at distances 0 to 3 of the example with ties."""

_RELEVANT, _OTHER = "#0072B2", "#D9D9D9"


def draw(folder: Path) -> list[Path]:
    """Draw all figures into a folder."""
    return [
        draw_ties(folder / "metrics_ties.png"),
        draw_radius(folder / "metrics_radius.png"),
        draw_curves(folder / "metrics_curves.png"),
        draw_denominators(folder / "metrics_denominators.png"),
    ]


def example() -> tuple[bp.Codes, list[int], bp.Codes, list[int]]:
    """Return a query, its label, and a database at the distances of `BUCKETS` with its labels."""
    signs, labels = [], []
    for distance, (relevant, items) in enumerate(BUCKETS):
        for item in range(items):
            signs.append([-1] * distance + [1] * (len(BUCKETS) - distance))
            labels.append(0 if item < relevant else 1)
    query = bp.Codes.from_signs([[1] * len(BUCKETS)])
    return query, [0], bp.Codes.from_signs(signs), labels


def precisions_of_all_orders() -> list[float]:
    """Return the average precision of every order of the example that the ties allow."""
    places = [list(combinations(range(items), relevant)) for relevant, items in BUCKETS]
    starts = [sum(items for _, items in BUCKETS[:at]) for at in range(len(BUCKETS))]
    found = []
    for chosen in product(*places):
        ranks = [
            int(at) + place for at, each in zip(starts, chosen, strict=False) for place in each
        ]
        found.append(float(np.mean([(hit + 1) / (rank + 1) for hit, rank in enumerate(ranks)])))
    return found


def draw_ties(path: Path) -> Path:
    """Draw the items of one query by distance, and the average precision of every order."""
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    FigureCanvasAgg(figure)
    items, orders = figure.subplots(1, 2)
    for distance, (relevant, count) in enumerate(BUCKETS):
        for item in range(count):
            color = _RELEVANT if item < relevant else _OTHER
            items.scatter(distance, item, s=280, marker="s", color=color, edgecolor="white")
    items.set(title="items by distance, relevant ones blue", xlabel="Hamming distance")
    items.set(xlim=(-0.6, len(BUCKETS) - 0.4), ylim=(-0.6, 5), yticks=[])
    items.set_xticks(range(len(BUCKETS)))
    orders.hist(precisions_of_all_orders(), bins=16, color=_OTHER, edgecolor="white")
    for (ties, line), style in zip(
        {"pessimistic": "--", "expected": "-", "optimistic": ":"}.items(), styles(), strict=False
    ):
        report = bp.evaluate(*example(), ties=ties)
        orders.axvline(report.map, color=style["color"], linestyle=line, label=ties)
    orders.set(title="AP of every order", xlabel="average precision", ylabel="orders")
    for axes in (items, orders):
        axes.spines[["top", "right"]].set_visible(False)
    return write(figure, orders, path)


def draw_radius(path: Path) -> Path:
    """Draw precision within radius 2, and the share of queries without items, against bits."""
    lengths = (8, 12, 16, 24, 32, 48, 64)
    reports = [bp.evaluate(*_encoded("lsh", bits)) for bits in lengths]
    figure, axes = canvas("LSH on digits", "bits", "share")
    lines = {
        "MAP": [report.map for report in reports],
        "precision, radius 2": [report.precision_radius2 for report in reports],
        "queries\nwithout items": [each.empty_balls / each.queries for each in reports],
    }
    for (name, shares), style in zip(lines.items(), styles(), strict=False):
        axes.plot(lengths, shares, label=name, **style)
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


def draw_curves(path: Path) -> Path:
    """Draw both kinds of precision-recall curve of the same codes."""
    report = bp.evaluate(*_encoded("itq", 24))
    figure, axes = canvas("ITQ on digits, 24 bits", "recall", "precision")
    curves = {
        "ranking": report.pr_curve,
        "lookup,\neach query": report.pr_lookup,
        "lookup,\none pool": report.pr_lookup_pooled,
    }
    for (name, curve), style in zip(curves.items(), styles(), strict=False):
        axes.plot(curve.recall, curve.precision, label=name, markevery=0.06, **style)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


def draw_denominators(path: Path) -> Path:
    """Draw MAP@k of the same codes with each of the three denominators."""
    cuts = (10, 20, 50, 100, 200, 500, 1000)
    figure, axes = canvas("ITQ on digits, 24 bits", "k", "MAP@k")
    for name, style in zip(("retrieved", "min", "total"), styles(), strict=False):
        maps = [bp.evaluate(*_encoded("itq", 24), top=top, denominator=name).map for top in cuts]
        axes.semilogx(cuts, maps, label=name, **style)
    axes.set_ylim(0, 1.02)
    return write(figure, axes, path)


@cache
def _encoded(method: str, bits: int) -> tuple[bp.Codes, ArrayLike, bp.Codes, ArrayLike]:
    """Return codes and labels of the digits, from a method that learns without labels."""
    images = open_images("digits")
    split = split_for(images, protocol=1)
    hasher = bp.create(method, bits=bits).fit(images.subset(split.training))
    queries, database = images.subset(split.queries), images.subset(split.database)
    assert queries.labels is not None
    assert database.labels is not None
    return hasher.encode(queries), queries.labels, hasher.encode(database), database.labels
