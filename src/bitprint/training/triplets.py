"""Triplets (q, p, n) on the training device: q is more similar to p than to n.

All functions work on masks of a fixed shape, so that no step waits for the GPU to count the
triplets. A batch without triplets has loss 0, see `masked_mean`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bitprint.supervision import similarity
from bitprint.training.losses import squared_distances


def batch_triplets(labels: Tensor) -> Tensor:
    """Return all triplets in a batch: q shares a label with p and none with n; q and p differ.

    Parameters
    ----------
    labels : Tensor
        (n,) class numbers, or (n, c) zeros and ones.

    Returns
    -------
    Tensor of bool, shape (n, n, n)
        True at [q, p, n] if (q, p, n) is a triplet.

    Examples
    --------
    >>> batch_triplets(torch.tensor([0, 0, 1])).nonzero().tolist()
    [[0, 1, 2], [1, 0, 2]]
    """
    similar: Tensor = similarity(labels, labels)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return (similar & ~itself)[:, :, None] & ~similar[:, None, :]


def triplet_hinge(codes: Tensor, triplets: Tensor, margin: float) -> Tensor:
    """Return the mean of ``max(0, margin + ||f_q - f_p||^2 - ||f_q - f_n||^2)`` over triplets.

    For codes of 0 and 1 these are Hamming distances, and the margin is in bits.

    Parameters
    ----------
    codes : Tensor, shape (n, K)
        Real or binary.
    triplets : Tensor of bool, shape (n, n, n)
        The result of `batch_triplets`; without triplets, the loss is 0.
    margin : float
    """
    distances = squared_distances(codes)
    hinge = (margin + distances[:, :, None] - distances[:, None, :]).relu()
    return masked_mean(hinge, triplets)


def draw(allowed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Draw `count` allowed columns for every row, uniformly and with replacement.

    Parameters
    ----------
    allowed : Tensor of bool, shape (n, m)
    count : int

    Returns
    -------
    columns : Tensor of int64, shape (n, count)
        Arbitrary in rows without an allowed column.
    found : Tensor of bool, shape (n,)
        Whether a row has an allowed column.

    Examples
    --------
    >>> columns, found = draw(torch.tensor([[False, True], [False, False]]), 3)
    >>> columns[0].tolist(), found.tolist()
    ([1, 1, 1], [True, False])
    """
    running = allowed.cumsum(dim=1, dtype=torch.int32)
    total = running[:, -1:]
    # The k-th allowed column, from 0, is the first whose running count exceeds k.
    wanted = torch.rand(len(allowed), count, device=allowed.device) * total
    columns = torch.searchsorted(running, wanted.to(torch.int32), right=True)
    return columns.clamp(max=allowed.shape[1] - 1), total[:, 0] > 0


def masked_mean(values: Tensor, mask: Tensor, dim: tuple[int, ...] | None = None) -> Tensor:
    """Return the mean of `values` where `mask` is True; 0 with zero gradient if it never is.

    Parameters
    ----------
    values : Tensor
    mask : Tensor of bool
        Same shape as `values`.
    dim : tuple of int, optional
        Axes of the mean; all by default.

    Examples
    --------
    >>> masked_mean(torch.tensor([1.0, 5.0, 7.0]), torch.tensor([True, False, True]))
    tensor(4.)
    """
    return torch.where(mask, values, 0).sum(dim) / mask.sum(dim).clamp(min=1)
