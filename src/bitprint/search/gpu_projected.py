"""Exact search with real-valued queries on a GPU, as `bitprint.search.projected` on the CPU."""

from __future__ import annotations

import torch
from torch import Tensor

_QUERIES = 256  # queries per pass over the database
_FIRST = 1 << 12  # codes in the first span
_GROWTH = 4  # factor from one span to the next
_BITS = 1 << 25  # bits of a span, as float64
_SCORES = 1 << 25  # scores of a span, as float64


def nearest_projected(
    values: Tensor, planes: Tensor, k: int, alive: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the k codes with the largest inner product with each query.

    The scores of a span of codes are one matrix product in float64, which is exact for rounded
    values. Only scores above the k-th largest so far are kept, because later ties lose.

    Parameters
    ----------
    values : Tensor of float64, shape (Q, K)
        The queries, as returned by `bitprint.search.projections.rounded`.
    planes : Tensor of int64, shape (W, N)
        The database, as returned by `bitprint.utils.words.as_planes`, on the same device.
    k : int
        Number of codes to find per query, an integer >= 1.
    alive : Tensor of uint8, shape (N,), optional
        Codes with a 0 are skipped.

    Returns
    -------
    positions : Tensor of int64, shape (Q, k)
        Ordered by score, the largest first, then by position; padded with -1.
    scores : Tensor of float64, shape (Q, k)
        Padded with minus infinity.

    Examples
    --------
    >>> planes = torch.tensor([[0b11000000, 0b01100000, 0b10000000]])
    >>> query = torch.tensor([[0.5, -2.0, 0.25]], dtype=torch.float64)
    >>> positions, scores = nearest_projected(query, planes, k=2)
    >>> positions.tolist(), scores.tolist()
    ([[2, 0]], [[2.25, -1.75]])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if values.ndim != 2 or planes.ndim != 2 or -(-values.shape[1] // 64) != len(planes):
        raise ValueError(
            "values and planes must have shapes (Q, K) and (K / 64 rounded up, N), got "
            f"{tuple(values.shape)} and {tuple(planes.shape)}"
        )
    if values.dtype != torch.float64 or planes.dtype != torch.int64:
        raise ValueError(
            f"values must be float64 and words int64, got {values.dtype} and {planes.dtype}"
        )
    if alive is not None and alive.shape != planes.shape[1:]:
        raise ValueError(f"{planes.shape[1]} codes but {tuple(alive.shape)} marks")
    groups = values.split(_QUERIES) if len(values) else ()
    parts = [_nearest(some, planes, k, alive) for some in groups]
    positions = [planes.new_empty(0, k), *(positions for positions, _ in parts)]
    scores = [values.new_empty(0, k), *(scores for _, scores in parts)]
    return torch.cat(positions), torch.cat(scores)


def _nearest(values: Tensor, planes: Tensor, k: int, alive: Tensor | None) -> tuple[Tensor, Tensor]:
    count = planes.shape[1]
    positions = planes.new_full((len(values), k), -1)
    scores = values.new_full((len(values), k), -torch.inf)
    totals = values.sum(1, keepdim=True)
    longest = max(1, min(_BITS // (64 * len(planes)), _SCORES // len(values)))
    start, length = 0, min(_FIRST, longest)
    while start < count:
        stop = min(start + length, count)
        ones = _unpack(planes[:, start:stop], values.shape[1])
        products = 2 * (values @ ones) - totals
        above = products > scores[:, -1:]
        if alive is not None:
            above &= alive[start:stop] != 0
        rows, columns = above.nonzero(as_tuple=True)
        if len(rows):
            counts = above.sum(1)
            slots = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
            found = scores.new_full((len(values), int(counts.max())), -torch.inf)
            places = positions.new_full(found.shape, -1)
            found[rows, slots] = products[rows, columns]
            places[rows, slots] = columns + start
            merged = torch.cat([scores, found], 1).sort(dim=1, descending=True, stable=True)
            chosen = merged.indices[:, :k]
            scores = merged.values[:, :k]
            positions = torch.cat([positions, places], 1).gather(1, chosen)
        start, length = stop, min(length * _GROWTH, longest)
    return positions, scores


def _unpack(planes: Tensor, bits: int) -> Tensor:
    """Return the bits of codes, (W, N) words, as zeros and ones in float64, shape (bits, N)."""
    order = torch.arange(64, device=planes.device)
    shifts = order // 8 * 8 + 7 - order % 8  # the first bit is the highest of the first byte
    ones = (planes[:, None] >> shifts[:, None]) & 1
    return ones.reshape(-1, planes.shape[1])[:bits].double()
