"""Product quantization: k-means codebooks for the parts of a vector."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

_BLOCK = 4096  # vectors compared with a codebook at a time


def random_codebooks(
    vectors: Tensor, books: int, entries: int, generator: torch.Generator
) -> Tensor:
    """Return codebooks of random vectors, without repetition if there are enough vectors.

    Parameters
    ----------
    vectors : Tensor, shape (N, M d)
    books, entries : int
        M and n.
    generator : torch.Generator
        A generator on the CPU.

    Returns
    -------
    Tensor, shape (M, n, d)
    """
    parts = vectors.view(len(vectors), books, -1)
    chosen = torch.stack(
        [torch.randperm(len(vectors), generator=generator) for _ in range(books)]
    ).to(vectors.device)
    chosen = chosen[:, torch.arange(entries, device=vectors.device) % len(vectors)]
    return parts[chosen, torch.arange(books, device=vectors.device)[:, None]]


def lloyd(vectors: Tensor, codebooks: Tensor, iterations: int) -> Tensor:
    """Return codebooks after Lloyd's iterations: each entry is the mean of its nearest parts.

    An entry that is not the nearest one of any part does not change. The error never increases.

    Parameters
    ----------
    vectors : Tensor, shape (N, M d)
    codebooks : Tensor, shape (M, n, d)
    iterations : int
    """
    books, entries, _ = codebooks.shape
    for _ in range(iterations):
        sums = torch.zeros_like(codebooks)
        counts = codebooks.new_zeros(books, entries, 1)
        for parts, nearest in _nearest(vectors, codebooks):
            # Deterministic on a GPU, unlike a sum by index.
            members = functional.one_hot(nearest, entries).to(parts.dtype)
            sums += torch.einsum("imn,imd->mnd", members, parts)
            counts += members.sum(dim=0)[:, :, None]
        codebooks = torch.where(counts > 0, sums / counts.clamp(min=1), codebooks)
    return codebooks


def assign(vectors: Tensor, codebooks: Tensor) -> Tensor:
    """Return the nearest entry in each codebook, int64 of shape (N, M).

    Examples
    --------
    >>> codebooks = torch.tensor([[[0.0], [1.0]], [[0.0], [2.0]]])
    >>> assign(torch.tensor([[0.9, 0.4], [0.1, 1.2]]), codebooks).tolist()
    [[1, 0], [0, 1]]
    """
    return torch.cat([nearest for _, nearest in _nearest(vectors, codebooks)])


def reconstruct(indices: Tensor, codebooks: Tensor) -> Tensor:
    """Return the vectors of indices (N, M), shape (N, M d)."""
    books = torch.arange(len(codebooks), device=indices.device)
    return codebooks[books, indices].flatten(start_dim=1)


def _nearest(vectors: Tensor, codebooks: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield blocks of parts (b, M, d) and the nearest entry of each part, (b, M)."""
    books, _, width = codebooks.shape
    for block in vectors.split(_BLOCK):
        parts = block.view(-1, books, width)
        # The squared length of a part is the same for all entries.
        products = parts.transpose(0, 1) @ codebooks.transpose(1, 2)
        distances = codebooks.square().sum(dim=2)[:, None] - 2 * products
        yield parts, distances.argmin(dim=2).t()
