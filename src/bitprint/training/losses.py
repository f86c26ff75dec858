"""Loss terms that several deep methods share.

The outputs `h` of a batch are compared with a buffer `U`, shape (N, K), of the last output of
every training image. No N x N matrix is built.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from bitprint.training.state import State


def pair_loss(
    outputs: Tensor,
    buffer: Tensor,
    similar: Tensor,
    weights: tuple[Tensor, Tensor] | None = None,
    kinds: Tensor | None = None,
) -> Tensor:
    """Negative log-likelihood of the pairs between a batch and all training images.

    ``sum_ij p_ij v_i w_j [ log(1 + e^t_ij) - s_ij t_ij ]`` with ``t_ij = h_i . u_j / 2``.

    The gradient is twice the gradient of this sum. The buffer is constant here, but in the whole
    objective an output occurs in both ordered pairs (i, j) and (j, i), so its gradient is
    ``-sum_j (s_ij - sigmoid(t_ij)) h_j`` (eq. 12 of the DSDH paper).

    Parameters
    ----------
    outputs : Tensor, shape (n, K)
        Network outputs of the batch.
    buffer : Tensor, shape (N, K)
        Last outputs of all training images, including the batch; no gradient.
    similar : Tensor of bool, shape (n, N)
        Which pairs share a label.
    weights : tuple of Tensor, shapes (n,) and (N,), optional
        v of the batch and w of all training images; ones by default.
    kinds : Tensor, shape (2,), optional
        p of dissimilar and of similar pairs; ones by default.

    Examples
    --------
    >>> outputs, buffer = torch.tensor([[2.0, 2.0]]), torch.tensor([[2.0, 2.0], [-2.0, -2.0]])
    >>> round(pair_loss(outputs, buffer, torch.tensor([[True, False]])).item(), 4)
    0.0363
    >>> round(pair_loss(outputs, buffer, torch.tensor([[False, True]])).item(), 4)
    8.0363
    """
    # log(1 + e^t) - t = log(1 + e^-t) needs fewer passes over n x N numbers.
    signs = torch.where(similar, -0.5, 0.5)
    pairs = functional.softplus(signs * (outputs @ buffer.t()))
    if kinds is not None:
        pairs = pairs * torch.where(similar, kinds[1], kinds[0])
    total = pairs.sum() if weights is None else weights[0] @ (pairs @ weights[1])
    return 2 * total - total.detach()


def quantization_loss(outputs: Tensor, signs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return ``sum_i w_i ||b_i - h_i||^2`` for constant codes b, shape (n, K); w_i = 1 if None."""
    gaps = (signs - outputs).square()
    return gaps.sum() if weights is None else (weights[:, None] * gaps).sum()


def classification_loss(logits: Tensor, rows: Tensor, state: State) -> Tensor:
    """Return the cross-entropy of the labels, summed over the batch.

    Softmax for single-label images; a sigmoid per class for multi-label images.

    Parameters
    ----------
    logits : Tensor, shape (n, c)
        One output of the network for each class.
    rows : Tensor of int64, shape (n,)
        Rows of these images in the training set.
    state : State
        Contains the labels of the training set.
    """
    if state.labels.ndim == 1:
        return functional.cross_entropy(logits, state.labels[rows], reduction="sum")
    return functional.binary_cross_entropy_with_logits(logits, state.classes[rows], reduction="sum")


def squared_distances(outputs: Tensor) -> Tensor:
    """Return the squared distance of every pair of rows, shape (n, n).

    Examples
    --------
    >>> squared_distances(torch.tensor([[1.0, 1.0], [1.0, -1.0]])).tolist()
    [[0.0, 4.0], [4.0, 0.0]]
    """
    norms = outputs.square().sum(dim=1)
    return norms[:, None] + norms[None, :] - 2 * outputs @ outputs.t()


def log_cosh(values: Tensor) -> Tensor:
    """Return ``log cosh x``, a smooth ``|x|``, without the overflow of cosh at 90 in float32.

    Examples
    --------
    >>> log_cosh(torch.tensor([0.0, -1000.0])).round(decimals=1)
    tensor([  0.0000, 999.3000])
    """
    return torch.logaddexp(values, -values) - math.log(2)


def straight_through_sign(values: Tensor) -> Tensor:
    """Return +1 for values >= 0 and -1 for others, with the gradient of the identity.

    The gradient of the sign is zero almost everywhere; this estimator passes the gradient of the
    signs on to the values unchanged.

    Examples
    --------
    >>> values = torch.tensor([-2.0, 0.0, 0.3], requires_grad=True)
    >>> signs = straight_through_sign(values)
    >>> (signs * torch.tensor([1.0, 5.0, 7.0])).sum().backward()
    >>> signs.tolist(), values.grad.tolist()
    ([-1.0, 1.0, 1.0], [1.0, 5.0, 7.0])
    """
    signs = 2 * (values >= 0).to(values.dtype) - 1
    return signs + (values - values.detach())
