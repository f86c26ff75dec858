"""The pages of the methods, read from their own text: for the navigation and for tables.

A page begins with front matter that names its group, and a heading, its title. The first paragraph
is its summary, and the comment ``<!-- measured: NAME ... -->`` lists the names of its methods. This
module imports nothing of the package, so that building the site does not import torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "docs" / "methods"

GROUPS = ("Data-independent", "Unsupervised", "Supervised, on features", "Deep")
"""Groups of methods, in the order of the navigation."""

MEASURED = re.compile(r"(<!-- measured: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)

_HEAD = re.compile(r"---\ngroup: (?P<group>.+)\n---\n\n# (?P<title>.+)\n\n(?P<summary>.+)\n")


class MethodPage(NamedTuple):
    """A page of `docs/methods`."""

    path: Path
    group: str
    title: str
    summary: str
    methods: tuple[str, ...]
    """Names in the registry."""


def method_pages(folder: Path = FOLDER) -> list[MethodPage]:
    """Return the pages of all methods, by group and title."""
    pages = [read_page(path) for path in folder.glob("*.md") if path.name != "index.md"]
    return sorted(pages, key=lambda page: (GROUPS.index(page.group), page.title.casefold()))


def read_page(path: Path) -> MethodPage:
    """Read a page; raise a ValueError if its head is incomplete."""
    text = path.read_text("utf-8")
    head = _HEAD.match(text)
    if head is None or head["group"] not in GROUPS:
        raise ValueError(
            f"{path}: must begin with front matter 'group: NAME', a heading and one line of "
            f"summary; the groups are {'; '.join(GROUPS)}"
        )
    names = [name for _, names, _ in MEASURED.findall(text) for name in names.split()]
    if not names:
        raise ValueError(f"{path}: has no <!-- measured: NAME --> ... <!-- end -->")
    return MethodPage(path, head["group"], head["title"], head["summary"], tuple(names))


def navigation(pages: list[MethodPage]) -> list[dict[str, list[str]]]:
    """Return the entries of the navigation: the paths of the pages in each group."""
    return [
        {group: [f"methods/{page.path.name}" for page in pages if page.group == group]}
        for group in GROUPS
    ]


def table(pages: list[MethodPage]) -> str:
    """Return a Markdown table of all methods."""
    rows = ["| method | name | group | idea |", "|---|---|---|---|"]
    for page in pages:
        names = ", ".join(f"`{name}`" for name in page.methods)
        link = f"[{page.title}]({page.path.name})"
        rows.append(f"| {link} | {names} | {page.group} | {page.summary} |")
    return "\n".join(rows)
