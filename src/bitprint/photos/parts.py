"""Parts of long work: what is done is written every few seconds, so that little can be lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic
from typing import TypeVar

BATCH = 64
"""So many pictures go through a network together."""
SECONDS = 4.0
"""What has taken this long is written."""
MOST = 8
"""So many batches are written together at most."""

Batch = TypeVar("Batch")


def in_parts(batches: Iterable[Batch]) -> Iterator[list[Batch]]:
    """Gather batches, while they are made, into parts that are worth a write.

    Examples
    --------
    >>> [len(part) for part in in_parts(range(20))]
    [8, 8, 4]
    """
    part: list[Batch] = []
    begun = monotonic()
    for batch in batches:
        part.append(batch)
        if len(part) == MOST or monotonic() - begun >= SECONDS:
            yield part
            part, begun = [], monotonic()
    if part:
        yield part
