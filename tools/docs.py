"""Update every generated part of the pages from the code and from `results/`.

`python tools/docs.py` writes them and draws the pictures. With `--check` it writes nothing, prints
the pages that are out of date, and fails if there are any.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import coverage_page
import dsdh_drawing
import import_graph
import method_pages
import metric_pictures
import quoted_code

ROOT = Path(__file__).parents[1]
COMMAND = "python tools/docs.py"

_DSDH = ROOT / "docs" / "how_dsdh_works.md"
_ARCHITECTURE = ROOT / "docs" / "architecture.md"
_GRAPH = re.compile(r"(<!-- import graph -->\n).*?(<!-- end -->)", re.DOTALL)


def generated() -> dict[Path, str]:
    """Return the up-to-date text of every page with generated parts."""
    texts = {coverage_page.PAGE: coverage_page.page()}
    for path in {method_pages.INDEX, *method_pages.pages().values()}:
        texts[path] = method_pages.refresh(path.read_text("utf-8"))
    texts[_DSDH] = quoted_code.refresh(_DSDH.read_text("utf-8"))
    graph = import_graph.render()
    texts[_ARCHITECTURE] = _GRAPH.sub(
        lambda block: f"{block[1]}\n{graph}\n\n{block[2]}", _ARCHITECTURE.read_text("utf-8")
    )
    return texts


def out_of_date() -> list[Path]:
    """Return the pages whose generated parts are out of date."""
    return sorted(
        path
        for path, text in generated().items()
        if not path.exists() or path.read_text("utf-8") != text
    )


def main() -> None:
    """Write the pages, or check them."""
    if sys.argv[1:] == ["--check"]:
        stale = out_of_date()
        if stale:
            names = ", ".join(path.relative_to(ROOT).as_posix() for path in stale)
            raise SystemExit(f"{names}: out of date; run {COMMAND}")
        return
    if sys.argv[1:]:
        raise SystemExit(f"usage: {COMMAND} [--check], got {' '.join(sys.argv[1:])}")
    for path, text in generated().items():
        path.write_text(text, "utf-8")
    metric_pictures.draw(metric_pictures.FOLDER)
    dsdh_drawing.draw(dsdh_drawing.PATH)


if __name__ == "__main__":
    main()
