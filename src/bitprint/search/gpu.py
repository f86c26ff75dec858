"""Exact Hamming search on a GPU, with the same results as `bitprint.search.flat`.

On a CUDA device the scan is a Triton kernel. On other devices torch operations compute the same
results.
"""

from __future__ import annotations

from typing import overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bitprint.codes import CodesLike
from bitprint.search.checks import check_codes
from bitprint.search.gpu_projected import nearest_projected
from bitprint.search.index import Index
from bitprint.search.matches import Matches, MatchesWithin, ScoredMatches, split_matches
from bitprint.search.projections import check_projections, rounded, to_scores
from bitprint.utils.devices import pick_device
from bitprint.utils.words import as_words

# A match is one int64 key: its distance above the bits of its position.
_POSITION = 40  # bits of the position
_NONE = 2**63 - 1  # padding, sorts after every match
_ROOM = 1 << 16  # matches that a scan can return per query
_FIRST = 1 << 12  # codes in the first span, at most _ROOM
_GROWTH = 32  # factor from one span to the next
_QUERIES = 256  # queries per scan, whose matches take 128 MiB
_PLAIN = 1 << 22  # distances in memory at a time without the kernel


class GpuIndex:
    """Copy of the codes of an index on a GPU; later changes of the index have no effect.

    Parameters
    ----------
    index : Index
        The index to copy. A code takes 8 bytes on the device per started 64 bits.
    device : str, default="auto"
        "cuda", "cuda:1", "cpu"; "auto" uses a GPU if there is one.

    Examples
    --------
    >>> import tempfile
    >>> import bitprint as bp
    >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
    ...         index.add([7, 8, 9], codes)
    ...         ids, distances = GpuIndex(index, device="cpu").search(codes[:1], k=2)
    >>> ids.tolist(), distances.tolist()
    ([[7, 8]], [[0, 1]])
    """

    def __init__(self, index: Index, device: str = "auto") -> None:
        self.device = pick_device(device)
        self.path = index.path
        self.bits = index.bits
        self._snapshot = stored = index._mirror.snapshot(None)
        self._planes = _to(stored.planes[:, : stored.count].view(np.int64), self.device)
        self._alive = None if stored.alive is None else _to(stored.alive, self.device)

    def __len__(self) -> int:
        return self._snapshot.count if self._alive is None else int(self._alive.sum())

    @overload
    def search(self, codes: CodesLike, k: int = 10) -> Matches: ...

    @overload
    def search(
        self, codes: None = None, k: int = 10, *, projections: ArrayLike
    ) -> ScoredMatches: ...

    def search(
        self,
        codes: CodesLike | None = None,
        k: int = 10,
        *,
        projections: ArrayLike | None = None,
    ) -> Matches | ScoredMatches:
        """Find the best k codes of each query, as `Index.search` does.

        Examples
        --------
        >>> import tempfile
        >>> import bitprint as bp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with bp.Index.create(f"{folder}/photos.bp", bits=3) as index:
        ...         index.add([7, 8], [[1, 1, 1], [1, 1, -1]])
        ...         gpu_index = GpuIndex(index, device="cpu")
        >>> gpu_index.search(projections=[[0.5, 2.0, -1.0]], k=1).ids.tolist()
        [[8]]
        """
        if (codes is None) == (projections is None):
            raise ValueError(f"{self.path}: search needs either codes or projections")
        if projections is not None:
            values = rounded(check_projections(projections, self.bits, self.path))
            places, exact = nearest_projected(
                _to(values, self.device), self._planes, k, self._alive
            )
            ids = self._snapshot.ids_at(places.cpu().numpy())
            return ScoredMatches(ids, to_scores(exact.cpu().numpy()))
        assert codes is not None
        positions, distances = nearest(self._queries(codes), self._planes, k, self._alive)
        ids = self._snapshot.ids_at(positions.cpu().numpy())
        return Matches(ids, distances.cpu().numpy().astype(np.int32))

    def within(self, codes: CodesLike, radius: int = 2) -> MatchesWithin:
        """Find all codes within Hamming distance `radius` of each query, as `Index.within` does.

        Examples
        --------
        >>> import tempfile
        >>> import bitprint as bp
        >>> codes = bp.Codes.from_signs([[1, 1, 1, 1], [1, 1, 1, -1], [-1, -1, -1, -1]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with bp.Index.create(f"{folder}/photos.bp", bits=4) as index:
        ...         index.add([7, 8, 9], codes)
        ...         ids, distances = GpuIndex(index, device="cpu").within(codes[1:], radius=1)
        >>> [found.tolist() for found in ids], [found.tolist() for found in distances]
        ([[8, 7], [9]], [[0, 1], [0]])
        """
        offsets, positions, distances = within(
            self._queries(codes), self._planes, radius, self._alive
        )
        return split_matches(
            offsets.cpu().numpy(),
            self._snapshot.ids_at(positions.cpu().numpy()),
            distances.cpu().numpy().astype(np.int32),
        )

    def _queries(self, codes: CodesLike) -> Tensor:
        packed = check_codes(self.path, self.bits, codes).packed
        return _to(as_words(packed).view(np.int64), self.device)


def nearest(
    queries: Tensor, planes: Tensor, k: int, alive: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Find the k nearest codes of each query.

    The database is scanned in spans, each much longer than all previous spans together. A span
    returns only codes that are closer than the k-th nearest code so far, because later ties lose.
    These are few, so sorting them is cheap. If a span has more matches than there is room for, it
    is scanned again in shorter spans.

    Parameters
    ----------
    queries : Tensor of int64, shape (Q, W)
        The queries, as returned by `bitprint.utils.words.as_words`.
    planes : Tensor of int64, shape (W, N)
        The database, as returned by `bitprint.utils.words.as_planes`, on the same device.
    k : int
        Number of neighbors to find, an integer >= 1.
    alive : Tensor of uint8, shape (N,), optional
        Codes with a 0 are skipped.

    Returns
    -------
    positions, distances : Tensor of int64, shape (Q, k)
        Ordered by distance, then by position; padded with -1 if there are fewer than k codes.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    _check(queries, planes, alive)
    parts = [_nearest(some, planes, k, alive) for some in _groups(queries, _QUERIES)]
    best = torch.cat([queries.new_empty(0, k), *parts])
    missing = best == _NONE
    positions = (best & (2**_POSITION - 1)).masked_fill(missing, -1)
    return positions, (best >> _POSITION).masked_fill(missing, -1)


def within(
    queries: Tensor, planes: Tensor, radius: int, alive: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Find all codes within Hamming distance `radius` of each query.

    Returns
    -------
    offsets : Tensor of int64, shape (Q + 1,)
        Query q has the matches from offsets[q] up to offsets[q + 1].
    positions, distances : Tensor of int64, shape (matches,)
        For each query ordered by distance, then by position.
    """
    if radius < 0:
        raise ValueError(f"radius must be at least 0, got {radius}")
    _check(queries, planes, alive)
    farthest = 64 * len(planes)
    limit = torch.tensor([min(radius, farthest) + 1], dtype=torch.int32, device=queries.device)
    everything = (0, planes.shape[1])
    lists = []
    for some in _groups(queries, 1):
        found, lost = _scan(some, limit, planes, alive, everything, _ROOM)
        if lost:
            found, _ = _scan(some, limit, planes, alive, everything, _ROOM + lost)
        lists.append(found[0].sort().values)
    sizes = torch.tensor([0] + [len(part) for part in lists])
    keys = torch.cat([queries.new_empty(0), *lists])
    return sizes.cumsum(0), keys & (2**_POSITION - 1), keys >> _POSITION


def _groups(queries: Tensor, size: int) -> tuple[Tensor, ...]:
    return queries.split(size) if len(queries) else ()


def _nearest(queries: Tensor, planes: Tensor, k: int, alive: Tensor | None) -> Tensor:
    """Return the keys of the k nearest codes, shape (Q, k), padded with `_NONE`."""
    count, farthest = planes.shape[1], 64 * len(planes)
    best = queries.new_full((len(queries), k), _NONE)
    start, length = 0, _FIRST
    while start < count:
        limits = (best[:, -1] >> _POSITION).clamp(max=farthest + 1).int()
        stop = min(start + length, count)
        found, lost = _scan(queries, limits, planes, alive, (start, stop), _ROOM)
        if lost:
            length //= _GROWTH  # a span of at most _ROOM codes always fits
            continue
        if found.shape[1]:
            best = torch.cat([best, found], 1).topk(k, largest=False, sorted=True).values
        start, length = stop, length * _GROWTH
    return best


def _scan(
    queries: Tensor,
    limits: Tensor,
    planes: Tensor,
    alive: Tensor | None,
    span: tuple[int, int],
    room: int,
) -> tuple[Tensor, int]:
    """Return the keys of the codes of a span that are closer than the limits.

    Returns
    -------
    keys : Tensor of int64, shape (Q, most matches)
        Padded with `_NONE`.
    lost : int
        The largest number of matches of one query that did not fit the room.
    """
    if not planes.is_cuda:
        return _scan_plainly(queries, limits, planes, alive, span)
    from bitprint.search.gpu_scans import scan

    counts = torch.zeros_like(limits)
    found = queries.new_empty(len(queries), room)
    scan(queries, limits, planes, alive, span, counts, found)
    most = int(counts.max())
    found = found[:, : min(most, room)]
    slots = torch.arange(found.shape[1], device=found.device)
    return found.masked_fill(slots >= counts[:, None], _NONE), max(most - room, 0)


def _scan_plainly(
    queries: Tensor,
    limits: Tensor,
    planes: Tensor,
    alive: Tensor | None,
    span: tuple[int, int],
) -> tuple[Tensor, int]:
    """Compute `_scan` with torch operations, without a limit on matches."""
    parts = [queries.new_empty(len(queries), 0)]
    step = max(1, _PLAIN // len(queries))
    for start in range(*span, step):
        stop = min(start + step, span[1])
        words = planes[:, start:stop]
        distances = sum(_ones(words[w] ^ queries[:, w, None]) for w in range(len(planes)))
        assert isinstance(distances, Tensor)
        closer = distances < limits[:, None]
        if alive is not None:
            closer &= alive[start:stop] != 0
        positions = torch.arange(start, stop, device=planes.device)
        keys = ((distances << _POSITION) + positions).masked_fill(~closer, _NONE)
        most = int(closer.sum(1).max())
        parts.append(keys.topk(most, largest=False, sorted=True).values)
    found = torch.cat(parts, 1).sort().values
    return found[:, : int((found != _NONE).sum(1).max())], 0


def _ones(words: Tensor) -> Tensor:
    """Return the number of ones in each 64-bit word by summing bits, pairs, nibbles and bytes."""
    words = words - ((words >> 1) & 0x5555555555555555)
    words = (words & 0x3333333333333333) + ((words >> 2) & 0x3333333333333333)
    words = (words + (words >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (words * 0x0101010101010101) >> 56


def _check(queries: Tensor, planes: Tensor, alive: Tensor | None) -> None:
    if queries.ndim != 2 or planes.ndim != 2 or queries.shape[1] != len(planes):
        raise ValueError(
            f"queries and planes must have shapes (Q, W) and (W, N), got {tuple(queries.shape)} "
            f"and {tuple(planes.shape)}"
        )
    if queries.dtype != torch.int64 or planes.dtype != torch.int64:
        raise ValueError(f"words must be int64, got {queries.dtype} and {planes.dtype}")
    if planes.stride(1) != 1 and planes.shape[1] > 1:
        raise ValueError("each plane must be contiguous")
    if alive is not None and alive.shape != planes.shape[1:]:
        raise ValueError(f"{planes.shape[1]} codes but {tuple(alive.shape)} marks")
    if planes.shape[1] >= 2**_POSITION:
        raise ValueError(f"planes must have fewer than 2^{_POSITION} codes, got {planes.shape[1]}")


def _to(array: np.ndarray, device: torch.device) -> Tensor:
    # Copies even on the CPU, because the index continues to change its own arrays.
    return torch.tensor(array, device=device)
