"""Bring every generated part of the pages in step with the code and with `results/`.

`python tools/docs.py` writes them, and draws the pictures; with `--check` it only says which are
out of step, and fails if any is.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import coverage_page
import import_graph
import method_pages
import metric_pictures

ROOT = Path(__file__).parents[1]
COMMAND = "python tools/docs.py"

_ARCHITECTURE = ROOT / "docs" / "architecture.md"
_GRAPH = re.compile(r"(<!-- import graph -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Return the pages with generated parts, as they should be."""
    texts = {coverage_page.PAGE: coverage_page.page()}
    for path in set(method_pages.pages().values()):
        texts[path] = method_pages.refresh(path.read_text("utf-8"))
    graph = import_graph.render()
    texts[_ARCHITECTURE] = _GRAPH.sub(
        lambda block: f"{block[1]}\n{graph}\n\n{block[2]}", _ARCHITECTURE.read_text("utf-8")
    )
    return texts


def out_of_step() -> list[Path]:
    """Return the pages that are not as they should be."""
    return sorted(
        path
        for path, text in generated().items()
        if not path.exists() or path.read_text("utf-8") != text
    )


def main() -> None:
    """Write, or check."""
    if sys.argv[1:] == ["--check"]:
        stale = out_of_step()
        if stale:
            names = ", ".join(path.relative_to(ROOT).as_posix() for path in stale)
            raise SystemExit(f"{names}: out of step with the code or with results/; run {COMMAND}")
        return
    if sys.argv[1:]:
        raise SystemExit(f"{COMMAND} takes --check or nothing, got {' '.join(sys.argv[1:])}")
    for path, text in generated().items():
        path.write_text(text, "utf-8")
    metric_pictures.draw(metric_pictures.FOLDER)


if __name__ == "__main__":
    main()
