"""Write the page `docs/coverage.md`: the paper's MAP beside ours, one line per method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from figures import ROOT, EvaluationTask, Line, measured_lines, published_lines, readable
from method_pages import pages

from bitprint.experiments.tables import EXPERIMENTS, experiment_cells
from bitprint.methods import METHODS

PAGE = ROOT / "docs" / "coverage.md"
BITS = 48
SETTINGS = {1: "table1", 2: "table2"}
"""The experiment that measures each setting of the paper."""

_HEAD = """# Coverage

Every method that the paper tabulates, plots or names, and a few more: the paper's MAP, ours, and
their ratio. All figures are MAP on CIFAR-10 at 48 bits, in setting 1 (5,000 training images), or in
setting 2 (50,000) where the paper has only that. "Plotted" methods are in the paper's Figure 1
without figures. The page of each method has the other data sets, settings and lengths.

Our MAP is tie-aware and the mean over the splits, with its standard deviation if there are several.
The row is the one with recommended settings if it has been measured, and the one of the paper's
table otherwise. "Trained on" is our network or features. The paper's are CNN-F and hand-crafted
features, and most of its figures come from earlier papers, so the ratio is not a like-for-like
comparison. Not every setting was chosen blind; `results/README.md` lists the exceptions. NUS-WIDE
is not measured, because a program cannot download its images.

```
bitprint reproduce table1 --methods "NAME recommended" --bits 48 --splits 1   # setting 1, deep
bitprint reproduce table1 --methods NAME                                      # setting 1, on GIST
bitprint reproduce table2 --methods NAME --splits 1                           # setting 2
```

`python tools/docs.py` writes this page from the registry of methods and the files in `results/`.

| method | setting | trained on | paper | ours | ratio |
|---|---|---|---|---|---|
"""


class Row(NamedTuple):
    """The figures of one method: its setting, our network or features, and both MAPs."""

    setting: str
    on: str
    paper: str
    ours: str
    ratio: str


def page() -> str:
    """Return the text of the page."""
    homes = pages()
    return _HEAD + "".join(_render(name, homes[name]) for name in METHODS)


def row(method: str) -> Row:
    """Return the figures of a method; "-" where the paper prints none or we measured none."""
    setting = setting_of(method)
    task = EvaluationTask("cifar10", setting)
    paper = _paper_map(published_lines(method).get(task, []))
    line = _choose(method, setting, measured_lines(method).get(task, []))
    ours = line.maps[BITS] if line else "-"
    ratio = f"{float(ours.split()[0]) / float(paper):.2f}" if line and paper else "-"
    if not paper:
        paper = "plotted" if method in EXPERIMENTS["figure1"].deep else "-"
    return Row(str(setting), _network(method, line) if line else "-", paper, ours, ratio)


def setting_of(method: str) -> int:
    """Return 2 where the paper prints, or we measured, only setting 2, and 1 otherwise."""
    for lines in (published_lines(method), measured_lines(method)):
        settings = {setting for setting in SETTINGS if EvaluationTask("cifar10", setting) in lines}
        if settings:
            return min(settings)
    return 1


def _render(method: str, home: Path) -> str:
    return f"| [{method}](methods/{home.name}) | {' | '.join(row(method))} |\n"


def _paper_map(lines: Sequence[Line]) -> str:
    """Return the figure as published; re-runs and other features come after it."""
    return next((line.maps[BITS] for line in lines if BITS in line.maps), "")


def _choose(method: str, setting: int, lines: Sequence[Line]) -> Line | None:
    """Choose the recommended settings if measured, else the network of the paper's table."""
    cells = experiment_cells(SETTINGS[setting], methods=method, bits=[BITS], splits=1)
    default = readable(cells[0].backbone)
    ranked = sorted(
        (line for line in lines if BITS in line.maps and _named(line, method)),
        key=lambda line: (line.name == method, not line.on.startswith(default)),
    )
    return ranked[0] if ranked else None


def _named(line: Line, method: str) -> bool:
    return line.name in (method, f"{method} recommended")


def _network(method: str, line: Line) -> str:
    return line.on if line.name == method else f"{line.on}, recommended settings"
