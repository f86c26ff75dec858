"""Triplets (q, p, n) on the training device: q is more similar to p than to n.

Everything here works on masks of a fixed shape, so that no step waits for the device to say how
many triplets there are, and a batch without any costs nothing: `masked_mean` gives it a loss of 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bitprint.supervision import similarity


def batch_triplets(labels: Tensor) -> Tensor:
    """All triplets in a batch: q shares a label with p and none with n; q and p differ.

    Parameters
    ----------
    labels : Tensor
        Of the batch: (n,) class numbers, or (n, c) zeros and ones.

    Returns
    -------
    Tensor of bool, shape (n, n, n)
        True at [q, p, n] where the three are a triplet.

    Examples
    --------
    >>> batch_triplets(torch.tensor([0, 0, 1])).nonzero().tolist()
    [[0, 1, 2], [1, 0, 2]]
    """
    similar: Tensor = similarity(labels, labels)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return (similar & ~itself)[:, :, None] & ~similar[:, None, :]


def triplet_hinge(codes: Tensor, triplets: Tensor, margin: float) -> Tensor:
    """Mean of ``max(0, margin + ||f_q - f_p||^2 - ||f_q - f_n||^2)`` over triplets of a batch.

    Between codes of 0 and 1 these are Hamming distances, and the margin is in bits.

    Parameters
    ----------
    codes : Tensor, shape (n, K)
        Real or binary.
    triplets : Tensor of bool, shape (n, n, n)
        As `batch_triplets` gives them; without any, the loss is 0.
    margin : float
    """
    norms = codes.square().sum(dim=1)
    distances = norms[:, None] + norms[None, :] - 2 * codes @ codes.t()
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
        Of a row that allows nothing, they mean nothing.
    found : Tensor of bool, shape (n,)
        Which rows allow anything.

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
    """Mean of `values` where `mask` is True; 0, with a gradient of 0, where it never is.

    Parameters
    ----------
    values : Tensor
    mask : Tensor of bool
        Of the same shape.
    dim : tuple of int, optional
        Axes to take the mean over; all by default.

    Examples
    --------
    >>> masked_mean(torch.tensor([1.0, 5.0, 7.0]), torch.tensor([True, False, True]))
    tensor(4.)
    """
    return torch.where(mask, values, 0).sum(dim) / mask.sum(dim).clamp(min=1)
