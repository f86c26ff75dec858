"""Hamming histograms: per query, the items and the relevant items at each distance.

Everything else in the evaluation follows from these two (Q, K + 1) tables; nothing is sorted and
no (Q, N) matrix is kept.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from bitprint.codes import Codes
from bitprint.evaluation import kernels
from bitprint.parallel import on_every_core
from bitprint.supervision import check_labels, similarity
from bitprint.words import as_planes, as_words

_CPU_CHUNK = 32  # queries that share one walk over the database
_GPU_PAIRS = 2**25  # query-item pairs on the device at once, about 16 bytes each
_WORTH_A_GPU = 10**9  # pairs below which the processor is done before the data has travelled
_EXACT_IN_HALF = 1024  # float16 holds the whole numbers up to 2048, and 2 * distance is at most 2K


class Histograms(NamedTuple):
    """Counts by distance.

    Attributes
    ----------
    items : ndarray of int64, shape (Q, K + 1)
        How many database items lie at distance 0..K of each query.
    relevant : ndarray of int64, shape (Q, K + 1)
        How many of them share a label with the query.
    """

    items: NDArray[np.int64]
    relevant: NDArray[np.int64]


class Task:
    """Queries and a database with their labels, checked to fit each other.

    Parameters
    ----------
    query_codes, codes : Codes
        Q query codes and N database codes.
    query_labels, labels : array_like
        Class numbers, (Q,) and (N,), or matrices of zeros and ones, (Q, c) and (N, c).
    """

    def __init__(
        self, query_codes: Codes, query_labels: ArrayLike, codes: Codes, labels: ArrayLike
    ) -> None:
        self.query_codes, self.codes = query_codes, codes
        self.query_labels, self.labels = check_task(query_codes, query_labels, codes, labels)
        if query_codes.bits != codes.bits:
            raise ValueError(
                f"queries of {query_codes.bits} bits and a database of {codes.bits} bits do not "
                "compare; encode both with the same hasher"
            )

    @property
    def bits(self) -> int:
        """K."""
        return self.codes.bits

    def count(self, device: str = "auto", chunk: int | None = None) -> Histograms:
        """Count on `device` ("auto", "cpu" or "cuda"), `chunk` queries at a time."""
        if device == "auto":
            large = len(self.query_codes) * len(self.codes) >= _WORTH_A_GPU
            device = "cuda" if large and torch.cuda.is_available() else "cpu"
        if device == "cpu":
            return self._count_on_cpu(chunk)
        if device != "cuda":
            raise ValueError(f"device is 'auto', 'cpu' or 'cuda', got {device!r}")
        if not torch.cuda.is_available():
            raise ValueError("device='cuda' but torch finds no CUDA device; use 'auto' or 'cpu'")
        return self._count_with_torch(torch.device("cuda"), chunk)

    def stable_sums(self, histograms: Histograms, top: int) -> NDArray[np.float64]:
        """Sum of precisions and number of hits up to `top`, ties in database order, (Q, 2)."""
        query_codes, query_labels, codes, labels = self._words()

        def sums(rows: slice) -> NDArray:
            return kernels.stable_sums(
                query_codes[rows],
                query_labels[rows],
                codes,
                labels,
                self.labels.ndim == 1,
                histograms.items[rows],
                histograms.relevant[rows],
                top,
            )

        return np.concatenate(on_every_core(sums, len(query_codes), _CPU_CHUNK))

    def _count_on_cpu(self, chunk: int | None = None) -> Histograms:
        query_codes, query_labels, codes, labels = self._words()

        def counts(rows: slice) -> NDArray:
            return kernels.count_buckets(
                query_codes[rows],
                query_labels[rows],
                codes,
                labels,
                self.labels.ndim == 1,
                self.bits,
            )

        parts = on_every_core(counts, len(query_codes), chunk or _CPU_CHUNK)
        return _split_buckets(np.concatenate(parts))

    def _count_with_torch(self, device: torch.device, chunk: int | None = None) -> Histograms:
        half = device.type == "cuda" and self.bits <= _EXACT_IN_HALF
        dtype = torch.float16 if half else torch.float32
        query_signs, signs = (
            torch.from_numpy(codes.signs()).to(device, dtype)
            for codes in (self.query_codes, self.codes)
        )
        query_labels = torch.from_numpy(self.query_labels).to(device)
        labels = torch.from_numpy(self.labels).to(device)
        width = 2 * (self.bits + 1)
        counts = []
        for rows in _chunks(len(query_signs), chunk or max(1, _GPU_PAIRS // len(signs))):
            # A product of signs is K - 2 * distance.
            buckets = (self.bits - query_signs[rows] @ signs.T).to(torch.int32)
            buckets += similarity(query_labels[rows], labels)
            buckets += width * torch.arange(len(buckets), device=device, dtype=torch.int32)[:, None]
            counted = torch.bincount(buckets.ravel(), minlength=width * len(buckets))
            counts.append(counted.view(-1, width).cpu().numpy())
        return _split_buckets(np.concatenate(counts))

    def _words(self) -> tuple[NDArray, NDArray, NDArray, NDArray]:
        """Codes and labels as 64-bit words: (Q, W) of the queries, (W, N) of the database."""
        return (
            as_words(self.query_codes.packed),
            _label_words(self.query_labels),
            as_planes(self.codes.packed),
            np.ascontiguousarray(_label_words(self.labels).T),
        )


def check_task(
    queries: Sized, query_labels: ArrayLike, database: Sized, labels: ArrayLike
) -> tuple[NDArray, NDArray]:
    """Return the labels of queries and database, checked to fit each other."""
    query_labels, labels = check_labels(query_labels), check_labels(labels)
    _check_lengths(queries, query_labels, "query")
    _check_lengths(database, labels, "database")
    if query_labels.ndim != labels.ndim:
        raise ValueError(
            "query and database labels must both be class numbers or both be 0/1 matrices, "
            f"got shapes {query_labels.shape} and {labels.shape}"
        )
    if query_labels.shape[1:] != labels.shape[1:]:
        raise ValueError(
            f"query labels have {query_labels.shape[1]} classes but database labels have "
            f"{labels.shape[1]}"
        )
    return query_labels, labels


def _check_lengths(codes: Sized, labels: NDArray, role: str) -> None:
    if len(codes) == 0:
        raise ValueError(f"there are no {role} codes to evaluate")
    if len(codes) != len(labels):
        raise ValueError(f"{len(codes)} {role} codes but {len(labels)} {role} labels")


def _split_buckets(counts: NDArray[np.int64]) -> Histograms:
    """Histograms from counts by 2 * distance + relevance."""
    other, relevant = counts[:, 0::2], np.ascontiguousarray(counts[:, 1::2])
    return Histograms(other + relevant, relevant)


def _label_words(labels: NDArray) -> NDArray[np.uint64]:
    """Class numbers as one word each, rows of zeros and ones as packed bits."""
    if labels.ndim == 1:
        return labels.astype(np.uint64)[:, None]
    return as_words(np.packbits(labels, axis=1))


def _chunks(count: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
