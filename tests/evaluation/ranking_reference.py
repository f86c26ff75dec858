"""Retrieval metrics as plain loops over ranked lists, for comparison."""

from itertools import chain, combinations, product

import numpy as np

from bitprint import Codes


def ranked_average_precision(flags, total, top, denominator):
    """AP of one ranked list; `flags` are the relevance at each rank."""
    hits, precisions = 0, 0.0
    for rank, relevant in enumerate(flags[:top], start=1):
        if relevant:
            hits += 1
            precisions += hits / rank
    divisor = {"retrieved": hits, "total": total, "min": min(total, top)}[denominator]
    return precisions / divisor if divisor else 0.0


def tie_orders(distances, relevance):
    """All orders of relevance flags that are consistent with the distances, equally likely."""
    arrangements = []
    for distance in sorted(set(distances)):
        tied = [flag for d, flag in zip(distances, relevance, strict=True) if d == distance]
        arrangements.append(
            [
                [rank in chosen for rank in range(len(tied))]
                for chosen in combinations(range(len(tied)), sum(tied))
            ]
        )
    return [list(chain(*choice)) for choice in product(*arrangements)]


def stable_order(distances, relevance):
    return [relevance[i] for i in sorted(range(len(distances)), key=lambda i: distances[i])]


def hamming(query, item):
    return sum(a != b for a, b in zip(query, item, strict=True))


def share_a_label(some, other):
    if np.ndim(some) == 0:
        return bool(some == other)
    return any(a and b for a, b in zip(some, other, strict=True))


def codes_at(distances, bits):
    """A query and database codes at the given distances from it."""
    signs = [[1] * d + [-1] * (bits - d) for d in distances]
    return Codes.from_signs([[-1] * bits]), Codes.from_signs(signs)


def random_task(rng, queries, size, bits, classes=None, columns=None):
    """Random codes with class numbers, or with label matrices of the given width."""
    query_codes = Codes.from_signs(rng.random((queries, bits)) < 0.5)
    codes = Codes.from_signs(rng.random((size, bits)) < 0.5)
    if columns is None:
        return query_codes, rng.integers(0, classes, queries), codes, rng.integers(0, classes, size)
    density = min(0.5, 1.5 / columns)
    query_labels = (rng.random((queries, columns)) < density).astype(int)
    return query_codes, query_labels, codes, (rng.random((size, columns)) < density).astype(int)
