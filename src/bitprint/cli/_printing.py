"""Print hits and the properties of an index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitprint.cli._shared import note_left_out, output, say
from bitprint.utils.text import printable

_COUNTS = {
    "new": "new",
    "unchanged": "unchanged",
    "relabelled": "relabeled",
    "skipped": "skipped",
    "moved": "moved",
    "removed": "removed",
    "held": "in the index",
}


def print_about(about: dict[str, Any], as_json: bool) -> None:
    """Print the counts of an update, and the properties of the index."""
    if as_json:
        output.print_json(data=about, ensure_ascii=True)
        return
    parts = [
        f"{value if isinstance(value, int) else len(value)} {words}"
        for name, words in _COUNTS.items()
        # Changed labels are rare, so a count of 0 is not printed.
        if (value := about.get(name)) is not None and (value or name != "relabelled")
    ]
    say(", ".join(parts))
    for name in ("bits", "model", "bytes"):
        if about.get(name) is not None:
            say(f"{name}: {about[name]}")
    for name in ("folders", "labels"):
        if about.get(name):
            say(f"{name}: {', '.join(printable(entry) for entry in about[name])}")
    note_left_out(about.get("left_out", ()))


def print_found(found: Iterable[tuple[str, list[dict[str, Any]]]], as_json: bool) -> None:
    """Print the hits of several queries, each below the name of its query."""
    if as_json:
        rows = [{"query": query, "results": hits} for query, hits in found]
        output.print_json(data=rows, ensure_ascii=True)
        return
    for query, hits in found:
        say(f"{query}:")
        print_hits(hits)


def print_hits(hits: list[dict[str, Any]]) -> None:
    """Print the distance and the path of each hit."""
    for hit in hits:
        say(f"{hit['distance']:4d}  {printable(hit['path'] or str(hit['id']))}")
