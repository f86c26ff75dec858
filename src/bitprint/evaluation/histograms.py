"""Hamming histograms: number of items and of relevant items at each distance of each query.

All metrics for Hamming distance are computed from these two (Q, K + 1) tables, without sorting and
without a (Q, N) matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from bitprint.codes import Codes
from bitprint.evaluation import kernels
from bitprint.evaluation.gains import Gains, check_levels, gains_of
from bitprint.supervision import check_both_labels, shared_labels, similarity
from bitprint.utils.parallel import on_every_core
from bitprint.utils.words import as_planes, as_words

_CPU_CHUNK = 32  # queries per pass over the database
_CPU_LEVELS = 2048  # queries times levels of shared labels, so that histograms fit into the cache
_GPU_PAIRS = 2**25  # query-item pairs on the GPU at once, about 16 bytes each
_WORTH_A_GPU = 10**9  # with fewer pairs the CPU is faster than the transfer to a GPU
_EXACT_IN_HALF = 1024  # float16 represents integers up to 2048 exactly, and 2 * distance <= 2K

Reduce: TypeAlias = Callable[[NDArray[np.int64]], tuple[NDArray[Any], ...]]
"""Maps counts (q, K + 1, L) by distance and level to the arrays of q rows to keep."""


class Histograms(NamedTuple):
    """Counts by distance.

    Attributes
    ----------
    items : ndarray of int64, shape (Q, K + 1)
        Number of database items at distance 0..K of each query.
    relevant : ndarray of int64, shape (Q, K + 1)
        Number of those that share a label with the query.
    """

    items: NDArray[np.int64]
    relevant: NDArray[np.int64]


class Task:
    """Queries and a database with their labels, checked for consistency.

    Parameters
    ----------
    query_codes, codes : Codes
        Q query codes and N database codes.
    query_labels, labels : array_like
        As in `evaluate`.
    """

    def __init__(self, query_codes: Codes, query_labels: Any, codes: Codes, labels: Any) -> None:
        self.query_codes, self.codes = query_codes, codes
        self.query_labels, self.labels = check_task(query_codes, query_labels, codes, labels)
        if query_codes.bits != codes.bits:
            raise ValueError(
                f"queries of {query_codes.bits} bits and a database of {codes.bits} bits cannot be "
                "compared; encode both with the same hasher"
            )

    @property
    def bits(self) -> int:
        """Number of bits K."""
        return self.codes.bits

    def count(self, device: str = "auto", chunk: int | None = None) -> Histograms:
        """Count on `device` ("auto", "cpu" or "cuda"), `chunk` queries at a time."""
        return Histograms(*self._count(device, chunk, 2, histograms_of))

    def count_gains(
        self, device: str = "auto", chunk: int | None = None
    ) -> tuple[Histograms, Gains]:
        """Count as `count` does, and also count shared labels in the same pass."""

        def reduce(counts: NDArray[np.int64]) -> tuple[NDArray, ...]:
            return *histograms_of(counts), *gains_of(counts)

        items, relevant, *gains = self._count(device, chunk, self._levels(), reduce)
        return Histograms(items, relevant), Gains(*gains)

    def count_in_order(
        self, tops: NDArray[np.int64], device: str = "auto"
    ) -> tuple[Histograms, NDArray[np.float64]]:
        """Count as `count` does, on the CPU, and rank ties in the order of the database.

        Returns
        -------
        Histograms
        sums : ndarray of float64, shape (Q, T, 2)
            Sum of precisions and number of hits up to each of `tops`, which must increase.
        """
        self._check_device(device)
        query_codes, query_labels, codes, labels = self._words()

        def counted(rows: slice) -> tuple[NDArray, ...]:
            found: tuple[NDArray, ...] = kernels.count_in_order(
                query_codes[rows],
                query_labels[rows],
                codes,
                labels,
                self.labels.ndim == 1,
                self.bits,
                tops,
            )
            return found

        parts = on_every_core(counted, len(query_codes), _CPU_CHUNK)
        items, relevant, sums = (np.concatenate(part) for part in zip(*parts, strict=True))
        return Histograms(items, relevant), sums

    def _levels(self) -> int:
        """Return the number of possible counts of shared labels, including 0; at least 2."""
        if self.labels.ndim == 1:
            return 2
        most = (int(each.sum(axis=1).max()) for each in (self.query_labels, self.labels))
        return max(2, check_levels(min(most) + 1))

    def _count(
        self, device: str, chunk: int | None, levels: int, reduce: Reduce
    ) -> list[NDArray[Any]]:
        """Count items by distance and level in chunks, and join the results of `reduce`."""
        if self._check_device(device) == "cpu":
            parts = self._count_on_cpu(chunk, levels, reduce)
        else:
            parts = self._count_with_torch(torch.device("cuda"), chunk, levels, reduce)
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _check_device(self, device: str) -> str:
        """Return "cpu" or "cuda", or raise a ValueError."""
        if device == "auto":
            large = len(self.query_codes) * len(self.codes) >= _WORTH_A_GPU
            device = "cuda" if large and torch.cuda.is_available() else "cpu"
        if device not in ("cpu", "cuda"):
            raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {device!r}")
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device='cuda' but torch finds no CUDA device; use 'auto' or 'cpu'")
        return device

    def _count_on_cpu(
        self, chunk: int | None, levels: int, reduce: Reduce
    ) -> list[tuple[NDArray, ...]]:
        query_codes, query_labels, codes, labels = self._words()

        def counts(rows: slice) -> tuple[NDArray, ...]:
            counted = kernels.count_buckets(
                query_codes[rows],
                query_labels[rows],
                codes,
                labels,
                self.labels.ndim == 1,
                levels,
                self.bits,
            )
            return reduce(counted.reshape(len(counted), -1, levels))

        most = max(1, min(_CPU_CHUNK, _CPU_LEVELS // levels))
        return on_every_core(counts, len(query_codes), chunk or most)

    def _count_with_torch(
        self, device: torch.device, chunk: int | None, levels: int, reduce: Reduce
    ) -> list[tuple[NDArray, ...]]:
        half = device.type == "cuda" and self.bits <= _EXACT_IN_HALF
        dtype = torch.float16 if half else torch.float32
        query_signs, signs = (
            torch.from_numpy(codes.signs()).to(device, dtype)
            for codes in (self.query_codes, self.codes)
        )
        query_labels = torch.from_numpy(self.query_labels).to(device)
        labels = torch.from_numpy(self.labels).to(device)
        width = levels * (self.bits + 1)
        most = max(1, _GPU_PAIRS // max(len(signs), width))
        parts = []
        for rows in _chunks(len(query_signs), chunk or most):
            # The product of two sign vectors is K - 2 * distance.
            buckets = (self.bits - query_signs[rows] @ signs.T).to(torch.int32)
            if levels == 2:
                buckets += similarity(query_labels[rows], labels)
            else:
                buckets >>= 1
                buckets *= levels
                buckets += shared_labels(query_labels[rows], labels).to(torch.int32)
            buckets += width * torch.arange(len(buckets), device=device, dtype=torch.int32)[:, None]
            counted = torch.bincount(buckets.ravel(), minlength=width * len(buckets))
            parts.append(reduce(counted.view(len(buckets), -1, levels).cpu().numpy()))
        return parts

    def _words(self) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Return codes and labels as 64-bit words: (Q, W) for queries, (W, N) for the database."""
        return (
            as_words(self.query_codes.packed),
            _label_words(self.query_labels),
            as_planes(self.codes.packed),
            np.ascontiguousarray(_label_words(self.labels).T),
        )


def check_task(
    queries: Sized, query_labels: Any, database: Sized, labels: Any
) -> tuple[NDArray, NDArray]:
    """Check the labels of queries and database and return them as numbers."""
    query_labels, labels = check_both_labels(query_labels, labels)
    _check_lengths(queries, query_labels, "query")
    _check_lengths(database, labels, "database")
    return query_labels, labels


def _check_lengths(codes: Sized, labels: NDArray, role: str) -> None:
    if len(codes) == 0:
        raise ValueError(f"there are no {role} codes to evaluate")
    if len(codes) != len(labels):
        raise ValueError(f"{len(codes)} {role} codes but {len(labels)} {role} labels")


def histograms_of(counts: NDArray[np.int64]) -> Histograms:
    """Compute histograms from counts by distance and number of shared labels, (Q, K + 1, L)."""
    return Histograms(counts.sum(axis=2), counts[:, :, 1:].sum(axis=2))


def _label_words(labels: NDArray) -> NDArray[np.uint64]:
    """Return class numbers as one word each, or rows of zeros and ones as packed bits."""
    if labels.ndim == 1:
        return labels.astype(np.uint64)[:, None]
    return as_words(np.packbits(labels, axis=1))


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
