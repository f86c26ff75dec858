"""The page `docs/coverage.md`: every system, its code, tests, figures and command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from figures import ROOT, Line, Task, measured_lines, published_lines
from method_pages import NONE_MEASURED, pages

from bitprint.experiments.tables import EXPERIMENTS
from bitprint.methods import METHODS

PAGE = ROOT / "docs" / "coverage.md"

_HEAD = """---
hide:
  - toc
---

# Coverage

Every system that the paper tabulates, plots or names, and a few beyond it: where its code and its
tests are, which MAP the paper prints, which we measured, and the command that measures it. Tests
that run every method (`test_shallow_contract.py`, `test_deep_contract.py`, `test_registry.py`) are
named only where they name it.

MAP is in the order of the bits given. Ours is tie-aware, and the mean over the seeds; spread,
hardware and dates are on the page of each method. The paper took most of its figures from earlier
papers, and its networks are not ours: this is no like-for-like comparison. The commands train on
EfficientNet-Lite0, and Table 1's methods without a network on GIST; `--backbone` and `--features`
choose another. Not all settings were chosen blind: `results/README.md` says which were not, those
of DSDH at mu = eta = N / 10 among them. NUS-WIDE is not measured at all: its images cannot be
fetched by a program.

This page is written by `python tools/docs.py`.

Code is in `src/bitprint/methods`, tests are in `tests/methods`.

| system | code, tests | the paper's MAP | our MAP | command |
|---|---|---|---|---|
"""

_PLOTTED = "plotted in Figure 1, without figures"
_UNPRINTED = "the paper prints none"


def page() -> str:
    """Return the text of the page."""
    homes = pages()
    return _HEAD + "".join(f"| {' | '.join(row(name, homes[name]))} |\n" for name in METHODS)


def row(method: str, home: Path) -> list[str]:
    """Return the cells of a method's row, none of them empty."""
    unprinted = _PLOTTED if method in EXPERIMENTS["figure1"].deep else _UNPRINTED
    return [
        f"[{method}](methods/{home.name})",
        "<br>".join(f"`{path.name}`" for path in [code_of(method), *tests_of(method)]),
        _figures(published_lines(method)) or unprinted,
        _figures(measured_lines(method)) or NONE_MEASURED.lower().rstrip("."),
        f"`{command_of(method)}`",
    ]


def code_of(method: str) -> Path:
    """Return the file of a method."""
    return (ROOT / "src" / METHODS[method].__module__.replace(".", "/")).with_suffix(".py")


def tests_of(method: str) -> list[Path]:
    """Return the test files that name a method or its class."""
    name = re.compile(rf"\b{METHODS[method].__name__}\b|create\(\"{re.escape(method)}\"")
    files = sorted((ROOT / "tests" / "methods").glob("test_*.py"))
    tests = [path for path in files if name.search(path.read_text("utf-8"))]
    if not tests:
        raise ValueError(f"no test in tests/methods names {method}; write one")
    return tests


def command_of(method: str) -> str:
    """Return the command that measures a method: of the first experiment that has it as a row."""
    for name, experiment in EXPERIMENTS.items():
        if method in (*experiment.shallow, *experiment.deep):
            return f"bitprint reproduce {name} --methods {method}"
    return f"bitprint reproduce table1 --methods {method}"


def _figures(lines_by_task: Mapping[Task, list[Line]]) -> str:
    lines = []
    for task, lines_of_task in sorted(lines_by_task.items()):
        for line in lines_of_task:
            lengths = "/".join(map(str, line.maps))
            maps = " ".join(figure.split(" ")[0] for figure in line.maps.values())
            name = f"{line.name}, {line.on}" if line.ours else line.on
            lines.append(f"{task.title}, {name}, {lengths} bits: **{maps}**")
    return "<br>".join(lines)
