"""Write the generated parts of the pages of the methods: tables of figures and of all methods."""

from __future__ import annotations

import re
from pathlib import Path

from figures import EvaluationTask, Line, measured_lines, published_lines
from method_list import FOLDER, MEASURED, method_pages, table

from bitprint.methods import METHODS

INDEX = FOLDER / "index.md"

NONE_PUBLISHED = "The paper has no figures for it."
NONE_MEASURED = "Not measured yet."
NOT_FETCHED = "NUS-WIDE is not measured, because its images cannot be downloaded automatically."

_LIST = re.compile(r"(<!-- methods -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> dict[str, Path]:
    """Return the page of every method: the one whose comment ``measured`` contains its name."""
    found = {name: page.path for page in method_pages() for name in page.methods}
    if found.keys() != METHODS.keys():
        wrong = ", ".join(sorted(found.keys() ^ METHODS.keys()))
        raise ValueError(f"{wrong}: must be in the registry and on one page of {FOLDER}")
    return found


def refresh(text: str) -> str:
    """Return a page with new tables."""
    text = _LIST.sub(lambda block: f"{block[1]}\n{table(method_pages())}\n\n{block[2]}", text)
    return MEASURED.sub(
        lambda block: f"{block[1]}\n{measured(block[2].split())}\n\n{block[3]}", text
    )


def measured(methods: list[str]) -> str:
    """Return the published and the measured figures of some methods, one table for each task."""
    tables: dict[EvaluationTask, list[Line]] = {}
    for lines_of in (published_lines, measured_lines):
        for method in methods:
            for task, lines in lines_of(method).items():
                tables.setdefault(task, []).extend(lines)
    parts = [_missing(tables), *(_table(task, lines) for task, lines in sorted(tables.items()))]
    return "\n\n".join(part for part in parts if part)


def _missing(tables: dict[EvaluationTask, list[Line]]) -> str:
    """Return sentences about figures that do not exist."""
    lines = [line for each in tables.values() for line in each]
    sentences = {
        NONE_PUBLISHED: all(line.ours for line in lines),
        NONE_MEASURED: not any(line.ours for line in lines),
        NOT_FETCHED: any(
            task.dataset == "nuswide" and not any(line.ours for line in each)
            for task, each in tables.items()
        ),
    }
    return " ".join(sentence for sentence, applies in sentences.items() if applies)


def _table(task: EvaluationTask, lines: list[Line]) -> str:
    lengths = sorted({bits for line in lines for bits in line.maps})
    header = [task.title, "on", *(f"{bits} bits" for bits in lengths), "seeds"]
    rows = [header, ["---"] * len(header)]
    for line in lines:
        maps = [line.maps.get(bits, "not yet" if line.ours else "-") for bits in lengths]
        cells = [line.name, line.on, *maps, line.seeds or "-"]
        rows.append(cells if line.ours else [f"*{cell}*" for cell in cells])
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    taken = sorted(set[str]().union(*(line.taken for line in lines)))
    return f"{drawn}\n\nMeasured on: {'; '.join(taken)}." if taken else drawn
