"""Loss terms that several deep methods share.

Outputs `h` of a batch are compared with a buffer `U` of the last output of every training image,
(N, K), never with an N x N matrix.
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

    The gradient is twice that of this sum. The buffer is constant here, but in the whole objective
    an output occurs in both ordered pairs (i, j) and (j, i), so that its gradient is
    ``-sum_j (s_ij - sigmoid(t_ij)) h_j`` (eq. 12 of the DSDH paper).

    Parameters
    ----------
    outputs : Tensor, shape (n, K)
        Network outputs of the batch.
    buffer : Tensor, shape (N, K)
        Last outputs of all training images, the batch's own included; no gradient.
    similar : Tensor of bool, shape (n, N)
        Which pairs share a label.
    weights : tuple of Tensor, shapes (n,) and (N,), optional
        v of the batch and w of all training images; ones if not given.
    kinds : Tensor, shape (2,), optional
        p of dissimilar and of similar pairs; ones if not given.

    Examples
    --------
    >>> outputs, buffer = torch.tensor([[2.0, 2.0]]), torch.tensor([[2.0, 2.0], [-2.0, -2.0]])
    >>> round(pair_loss(outputs, buffer, torch.tensor([[True, False]])).item(), 4)
    0.0363
    >>> round(pair_loss(outputs, buffer, torch.tensor([[False, True]])).item(), 4)
    8.0363
    """
    # log(1 + e^t) - t = log(1 + e^-t): fewer passes over n x N numbers.
    signs = torch.where(similar, -0.5, 0.5)
    pairs = functional.softplus(signs * (outputs @ buffer.t()))
    if kinds is not None:
        pairs = pairs * torch.where(similar, kinds[1], kinds[0])
    total = pairs.sum() if weights is None else weights[0] @ (pairs @ weights[1])
    return 2 * total - total.detach()


def quantisation_loss(outputs: Tensor, signs: Tensor, weights: Tensor | None = None) -> Tensor:
    """``sum_i w_i ||b_i - h_i||^2`` for constant codes `signs`, shape (n, K); all w_i 1 if None."""
    gaps = (signs - outputs).square()
    return gaps.sum() if weights is None else (weights[:, None] * gaps).sum()


def classification_loss(logits: Tensor, rows: Tensor, state: State) -> Tensor:
    """Cross-entropy of the labels, summed over the batch.

    Softmax where an image has one label; a sigmoid for each class where it may have several.

    Parameters
    ----------
    logits : Tensor, shape (n, c)
        One output of the network for each class.
    rows : Tensor of int64, shape (n,)
        Which training images these are.
    state : State
        Labels of the training set.
    """
    if state.labels.ndim == 1:
        return functional.cross_entropy(logits, state.labels[rows], reduction="sum")
    return functional.binary_cross_entropy_with_logits(logits, state.classes[rows], reduction="sum")


def log_cosh(values: Tensor) -> Tensor:
    """``log cosh x``, a smooth ``|x|``, for any x: cosh itself overflows at 90 in float32.

    Examples
    --------
    >>> log_cosh(torch.tensor([0.0, -1000.0])).round(decimals=1)
    tensor([  0.0000, 999.3000])
    """
    return torch.logaddexp(values, -values) - math.log(2)
