"""Exact answers from Milvus, which returns a limited number of hits and any of those that tie."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bitprint.search.matches import Matches, MatchesWithin
from bitprint.search.stores.milvus_rows import MOST_HITS, Rows
from bitprint.search.stores.milvus_values import from_names
from bitprint.search.stores.milvus_views import View

_FIRST_WITHIN = 256
_SPARE = 64  # asked for beyond k, so that most ties end within
_GROWTH = 8
_HITS_AT_ONCE = 8 * MOST_HITS

Hits = list[tuple[int, int, str]]
"""The distance, the ordinal and the name of codes: sorted, ties are in insertion order."""


def nearest(rows: Rows, view: View, codes: list[bytes], k: int, label: str | None) -> list[Hits]:
    """Find the k nearest codes of each query."""

    def reach(hits: Hits) -> float:
        return hits[k - 1][0] if len(hits) >= k else math.inf

    found = _find(_asker(rows, view, label), codes, reach, 2 * k + _SPARE, (0, view.header.total))
    return [hits[:k] for hits in found]


def within(
    rows: Rows, view: View, codes: list[bytes], radius: int, label: str | None
) -> list[Hits]:
    """Find every code at most `radius` away from each query."""
    ask = _asker(rows, view, label)
    found = _find(ask, codes, lambda hits: radius, _FIRST_WITHIN, (0, view.header.total))
    return [[hit for hit in hits if hit[0] <= radius] for hits in found]


def approximately(
    rows: Rows, view: View, codes: list[bytes], k: int, label: str | None, lists: int
) -> list[Hits]:
    """Find near codes of each query in the lists whose centres are nearest."""
    ask = _asker(rows, view, label, lists)
    span = (0, view.header.total)
    return [hits[:k] for hits in ask(codes, min(k, MOST_HITS), span)]


def to_matches(found: list[Hits], kind: str | None, k: int) -> Matches:
    """Arrange the hits of each query, at most k, with ids of a kind."""
    ids = np.full((len(found), k), None if kind == "string" else -1)
    distances = np.full((len(found), k), -1, np.int32)
    for row, hits in enumerate(found):
        ids[row, : len(hits)] = from_names([hit[2] for hit in hits], kind)
        distances[row, : len(hits)] = [hit[0] for hit in hits]
    return Matches(ids, distances)


def to_matches_within(found: list[Hits], kind: str | None) -> MatchesWithin:
    """Arrange the hits of each query, any number, with ids of a kind."""
    return MatchesWithin(
        [from_names([hit[2] for hit in hits], kind) for hits in found],
        [np.array([hit[0] for hit in hits], np.int32) for hits in found],
    )


def _find(
    ask: Callable[[list[bytes], int, tuple[int, int]], list[Hits]],
    codes: list[bytes],
    reach: Callable[[Hits], float],
    limit: int,
    span: tuple[int, int],
) -> list[Hits]:
    """Find all codes at ordinals of a span that are as near as `reach` says, and maybe others.

    As many hits as were asked for are complete only below the distance of the last; if that is not
    enough, more are asked for, and beyond what Milvus returns, each half of the ordinals by itself.
    """
    limit = min(limit, MOST_HITS)
    found = ask(codes, limit, span)
    first, end = span
    if end - first <= limit:
        return found
    short = [
        number
        for number, hits in enumerate(found)
        if len(hits) == limit and reach(hits) >= hits[-1][0]
    ]
    if not short:
        return found
    again = [codes[number] for number in short]
    if limit < MOST_HITS:
        longer = _find(ask, again, reach, _GROWTH * limit, span)
    else:
        middle = (first + end) // 2
        halves = [
            _find(ask, again, reach, limit, half) for half in ((first, middle), (middle, end))
        ]
        longer = [sorted(low + high) for low, high in zip(*halves, strict=True)]
    for number, hits in zip(short, longer, strict=True):
        found[number] = hits
    return found


def _asker(
    rows: Rows, view: View, label: str | None, lists: int | None = None
) -> Callable[[list[bytes], int, tuple[int, int]], list[Hits]]:
    """A question to Milvus that a few queries at a time go through."""

    def ask(codes: list[bytes], limit: int, span: tuple[int, int]) -> list[Hits]:
        if not view.header.live:
            return [[] for _ in codes]
        condition = view.codes(*span, label)
        step = max(1, _HITS_AT_ONCE // limit)
        return [
            hits
            for start in range(0, len(codes), step)
            for hits in rows.search(codes[start : start + step], condition, limit, lists)
        ]

    return ask
