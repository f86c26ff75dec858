"""Average precision in closed form from histograms of distances, for all common conventions.

Notation for one bucket (all items at one distance): it has n items, r of them relevant; before it
are a items, f of them relevant. H is the harmonic number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bitprint.evaluation import kernels
from bitprint.evaluation.histograms import Histograms

TIES = ("expected", "stable", "optimistic", "pessimistic")
DENOMINATORS = ("retrieved", "total", "min")


def cut_ranks(tops: Sequence[int | None], size: int) -> list[int]:
    """Return the number of items before every cutoff (None: the whole database).

    Examples
    --------
    >>> cut_ranks([None, 10, 1000], size=50)
    [50, 10, 50]
    """
    return [size if top is None else min(top, size) for top in tops]


def average_precision(
    histograms: Histograms,
    *,
    tops: Sequence[int | None] = (None,),
    ties: str = "expected",
    denominator: str = "retrieved",
    stable: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the average precision of every query at every cutoff (None: the whole database).

    The shape is (Q, T), with NaN for queries without a relevant item. See
    `bitprint.evaluation.evaluate` for the options. Histograms do not contain the order of the
    database; with ties="stable", `stable` contains the sum of precisions and the number of hits
    up to each of ``np.unique(cut_ranks(tops, size))``, shape (Q, U, 2).
    """
    size = int(histograms.items[0].sum())
    depths = cut_ranks(tops, size)
    total = histograms.relevant.sum(axis=1)
    precisions = np.full((len(total), len(depths)), np.nan)
    place = np.unique(depths, return_inverse=True)[1]
    for column, top in enumerate(depths):
        if ties == "expected" and denominator == "retrieved" and top < size:
            found = _expected_over_retrieved(histograms, top)
        else:
            if ties == "expected":  # if the divisor depends on the hits, they equal `total`
                sums, hits = _expected_sums(histograms, top).sum(axis=1), total
            elif ties == "stable":
                assert stable is not None
                sums, hits = stable[:, place[column]].T
            else:
                sums, hits = _ordered_sums(histograms, top, relevant_first=ties == "optimistic")
            divisors = {"retrieved": hits, "total": total, "min": np.minimum(total, top)}
            found = sums / np.maximum(divisors[denominator], 1)
        precisions[total > 0, column] = found[total > 0]
    return precisions


def _expected_sums(histograms: Histograms, top: int) -> NDArray[np.float64]:
    """Return the expected sum of precisions at relevant ranks up to `top`, per bucket, (Q, K + 1).

    McSherry and Najork (ECIR 2008). The item at rank j of the bucket is relevant with probability
    r / n. Given that, a fraction rho = (r - 1) / (n - 1) of the j - a - 1 earlier items of the
    bucket is relevant. Its expected precision is r / n * (f + 1 + (j - a - 1) * rho) / j, and the
    sum over j needs only differences of harmonic numbers.
    """
    n, r = histograms
    a, f = _before(n), _before(r)
    seen = np.clip(top - a, 0, n)
    rho = (r - 1) / np.maximum(n - 1, 1)
    harmonic = _harmonic_numbers(top)
    start = np.minimum(a, top)
    tail = (f + 1 - rho * (a + 1)) * (harmonic[start + seen] - harmonic[start])
    sums: NDArray[np.float64] = r / np.maximum(n, 1) * (rho * seen + tail)
    return sums


def _expected_over_retrieved(histograms: Histograms, top: int) -> NDArray[np.float64]:
    """Return the expected AP if the divisor, the hits in the top, depends on the tie order too."""
    n, r = histograms
    a, f = _before(n), _before(r)
    whole = a + n <= top
    sums = np.where(whole, _expected_sums(histograms, top), 0).sum(axis=1)
    hits = np.where(whole, r, 0).sum(axis=1)
    precision: NDArray[np.float64] = sums / np.maximum(hits, 1)
    query, c = np.nonzero((a < top) & ~whole)
    harmonic = _harmonic_numbers(top)
    precision[query] = kernels.expected_cut(
        sums[query],
        f[query, c],
        a[query, c],
        n[query, c],
        r[query, c],
        top - a[query, c],
        harmonic[top] - harmonic[a[query, c]],
    )
    return precision


def _ordered_sums(
    histograms: Histograms, top: int, *, relevant_first: bool
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the sum of precisions and the hits with relevant items first or last in a bucket.

    The relevant items have the ranks s + 1 .. s + r, and (f + t) / (s + t) = 1 + (f - s) / (s + t).
    """
    n, r = histograms
    f = _before(r)
    s = _before(n) if relevant_first else _before(n) + n - r
    seen = np.clip(top - s, 0, r)
    s = np.minimum(s, top)
    harmonic = _harmonic_numbers(top)
    sums = seen + (f - s) * (harmonic[s + seen] - harmonic[s])
    return sums.sum(axis=1), seen.sum(axis=1)


def _before(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the total of the buckets at smaller distances, shape (Q, K + 1)."""
    return np.cumsum(counts, axis=1) - counts


def _harmonic_numbers(largest: int) -> NDArray[np.float64]:
    """Return H_0 .. H_largest."""
    numbers = np.zeros(largest + 1)
    np.cumsum(1 / np.arange(1, largest + 1), out=numbers[1:])
    return numbers
