"""The drawing of `docs/how_dsdh_works.md`: the variables of DSDH and the three steps."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

PATH = Path(__file__).parents[1] / "docs" / "images" / "how_dsdh_works.png"

_VARIABLE, _STEP, _EDGE = "#EAF2F8", "#FCEFE3", "#444444"


class _Box(NamedTuple):
    x: float
    y: float
    width: float
    text: str
    color: str


_HEIGHT = 1.0
_BOXES = {
    "images": _Box(0.0, 4.0, 2.2, "images $x_i$", _VARIABLE),
    "network": _Box(3.2, 4.0, 2.6, "network:\nbackbone, hash layer", _VARIABLE),
    "outputs": _Box(6.8, 4.0, 2.8, "outputs $H$\n(real, $N \\times K$)", _VARIABLE),
    "step1": _Box(3.2, 2.0, 2.6, "1  gradient step\n(every batch)", _STEP),
    "step3": _Box(6.8, 2.0, 2.8, "3  coordinate descent\n(after an epoch)", _STEP),
    "codes": _Box(3.2, 0.0, 2.6, "codes $B$\n($\\pm 1$, $N \\times K$)", _VARIABLE),
    "labels": _Box(0.0, 0.0, 2.2, "labels $Y$\n($N \\times c$)", _VARIABLE),
    "step2": _Box(6.8, 0.0, 2.8, "2  ridge regression\n(after an epoch)", _STEP),
    "classifier": _Box(10.6, 0.0, 2.4, "classifier $W$\n($K \\times c$)", _VARIABLE),
}


def draw(path: Path) -> Path:
    """Draw the picture into a file."""
    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.set(xlim=(-0.2, 13.8), ylim=(-1.1, 5.3), aspect="equal")
    axes.axis("off")
    for box in _BOXES.values():
        _draw_box(axes, box)
    _arrow(axes, _right("images"), _left("network"))
    _arrow(axes, _right("network"), _left("outputs"))
    _arrow(axes, _top("step1"), _bottom("network"), "updates")
    _arrow(axes, _bottom("outputs", -0.9), _top("step1", 0.9), "pairs")
    _arrow(axes, _bottom("outputs", 0.3), _top("step3", 0.3), "$\\eta$")
    _arrow(axes, _top("codes"), _bottom("step1"), "$\\eta$")
    _arrow(axes, _top("labels"), _left("step1"), "similar\npairs $S$")
    _arrow(axes, _bottom("step3", -0.9), _top("codes", 0.9), "new $B$")
    _arrow(axes, _right("codes"), _left("step2"), "$B$")
    _arrow(axes, _right("step2"), _left("classifier"))
    _arrow(axes, _top("classifier"), _right("step3", -0.2), "$W$")
    _draw_labels_arrow(axes)
    figure.savefig(path, dpi=120)
    return path


def _draw_box(axes: Axes, box: _Box) -> None:
    style = "round,pad=0,rounding_size=0.15"
    shape = FancyBboxPatch(
        (box.x, box.y), box.width, _HEIGHT, boxstyle=style, facecolor=box.color, edgecolor=_EDGE
    )
    axes.add_patch(shape)
    middle = box.x + box.width / 2, box.y + _HEIGHT / 2
    axes.text(*middle, box.text, ha="center", va="center", fontsize=9)


def _arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = ""
) -> None:
    style = {"arrowstyle": "-|>", "color": _EDGE, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=style)
    if text:
        _label(axes, (start[0] + end[0]) / 2, (start[1] + end[1]) / 2, text)


def _draw_labels_arrow(axes: Axes) -> None:
    """Draw the arrow from the labels, around the other boxes, to steps 2 and 3."""
    (start, bottom), (second, _) = _bottom("labels"), _bottom("step2")
    end, height = _right("step3", 0.2)
    low, outside = bottom - 0.6, 13.5
    xs, ys = [start, start, outside, outside], [bottom, low, low, height]
    axes.plot(xs, ys, color=_EDGE, linewidth=1)
    _arrow(axes, (second, low), (second, bottom))
    _arrow(axes, (outside, height), (end, height))
    _label(axes, (start + second) / 2, low, "$Y$")


def _label(axes: Axes, x: float, y: float, text: str) -> None:
    background = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    axes.text(x, y, text, ha="center", va="center", fontsize=8, bbox=background)


def _left(name: str) -> tuple[float, float]:
    box = _BOXES[name]
    return box.x, box.y + _HEIGHT / 2


def _right(name: str, shift: float = 0.0) -> tuple[float, float]:
    box = _BOXES[name]
    return box.x + box.width, box.y + _HEIGHT / 2 + shift


def _top(name: str, shift: float = 0.0) -> tuple[float, float]:
    box = _BOXES[name]
    return box.x + box.width / 2 + shift, box.y + _HEIGHT


def _bottom(name: str, shift: float = 0.0) -> tuple[float, float]:
    box = _BOXES[name]
    return box.x + box.width / 2 + shift, box.y
