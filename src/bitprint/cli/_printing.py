"""Print hits, and the result of a change to an index."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bitprint.cli._shared import output, say, tell_left_out

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
    """Print the counts of a change to an index, and the properties of the index."""
    from bitprint.photos.files import printable

    if as_json:
        output.print_json(data=about, ensure_ascii=True)
        return
    parts = [
        f"{value if isinstance(value, int) else len(value)} {words}"
        for name, words in _COUNTS.items()
        # Changed labels are rare: printed only if there are some.
        if (value := about.get(name)) is not None and (value or name != "relabelled")
    ]
    say(", ".join(parts))
    for name in ("bits", "model", "bytes"):
        if about.get(name) is not None:
            say(f"{name}: {about[name]}")
    for name in ("folders", "labels"):
        if about.get(name):
            say(f"{name}: {', '.join(printable(entry) for entry in about[name])}")
    tell_left_out(about.get("left_out", ()))


def print_found(found: Iterable[tuple[str, list[dict[str, Any]]]], as_json: bool) -> None:
    """Print the hits of several queries, each under the name of its query."""
    if as_json:
        rows = [{"query": query, "results": hits} for query, hits in found]
        output.print_json(data=rows, ensure_ascii=True)
        return
    for query, hits in found:
        say(f"{query}:")
        print_hits(hits)


def print_hits(hits: list[dict[str, Any]]) -> None:
    """Print the distance and the path of every hit."""
    from bitprint.photos.files import printable

    for hit in hits:
        say(f"{hit['distance']:4d}  {printable(hit['path'] or str(hit['id']))}")
