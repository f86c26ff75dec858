"""The measured tables at the foot of the methods' pages."""

from __future__ import annotations

import re
from pathlib import Path

from figures import ROOT, Line, Task, measured_lines, published_lines

from bitprint.methods import METHODS

PAGES = ROOT / "docs" / "methods"

_BLOCK = re.compile(r"(<!-- measured: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

NONE_PUBLISHED = "The paper prints no figures of it."
NONE_MEASURED = "Not measured yet."
NOT_FETCHED = "NUS-WIDE is not measured: its images cannot be fetched by a program."


def pages() -> dict[str, Path]:
    """Return the page of every method: the one whose measured tables name it."""
    found: dict[str, Path] = {}
    for path in sorted(PAGES.glob("*.md")):
        for _, names, _ in _BLOCK.findall(path.read_text("utf-8")):
            found |= dict.fromkeys(names.split(), path)
    if found.keys() != METHODS.keys():
        wrong = ", ".join(sorted(found.keys() ^ METHODS.keys()))
        raise ValueError(f"{wrong}: in the registry or in a page of {PAGES}, not in both")
    return found


def refresh(text: str) -> str:
    """Write the tables of a page anew."""

    def fill(block: re.Match[str]) -> str:
        return f"{block[1]}\n{measured(block[2].split())}\n\n{block[3]}"

    return _BLOCK.sub(fill, text)


def measured(methods: list[str]) -> str:
    """Lay out what the paper prints and what we measured of some methods, a table for each task."""
    tables: dict[Task, list[Line]] = {}
    for lines_of in (published_lines, measured_lines):
        for method in methods:
            for task, lines in lines_of(method).items():
                tables.setdefault(task, []).extend(lines)
    parts = [_missing(tables), *(_table(task, lines) for task, lines in sorted(tables.items()))]
    return "\n\n".join(part for part in parts if part)


def _missing(tables: dict[Task, list[Line]]) -> str:
    """Say in words which figures there are not."""
    lines = [line for each in tables.values() for line in each]
    sentences = {
        NONE_PUBLISHED: all(line.ours for line in lines),
        NONE_MEASURED: not any(line.ours for line in lines),
        NOT_FETCHED: any(
            task.dataset == "nuswide" and not any(line.ours for line in each)
            for task, each in tables.items()
        ),
    }
    return " ".join(sentence for sentence, holds in sentences.items() if holds)


def _table(task: Task, lines: list[Line]) -> str:
    lengths = sorted({bits for line in lines for bits in line.maps})
    header = [task.title, "on", *(f"{bits} bits" for bits in lengths), "seeds"]
    rows = [header, ["---"] * len(header)]
    for line in lines:
        maps = [line.maps.get(bits, "not yet" if line.ours else "-") for bits in lengths]
        cells = [line.name, line.on, *maps, line.seeds or "-"]
        rows.append(cells if line.ours else [f"*{cell}*" for cell in cells])
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    taken = sorted(set[str]().union(*(line.taken for line in lines)))
    return f"{drawn}\n\nOurs: {'; '.join(taken)}." if taken else drawn
