"""The discrete step that SDH and DSDH share: ridge regression and cyclic coordinate descent."""

from __future__ import annotations

import torch
from torch import Tensor


def ridge(codes: Tensor, targets: Tensor, weight: float) -> Tensor:
    """Minimise ``||Y - B W||_F^2 + weight ||W||_F^2``: W = (B'B + weight I)^-1 B'Y.

    Parameters
    ----------
    codes : Tensor, shape (N, K)
        B.
    targets : Tensor, shape (N, c)
        Y.
    weight : float
        nu / mu in DSDH, lambda in SDH.

    Returns
    -------
    Tensor, shape (K, c)
        W.

    Examples
    --------
    >>> ridge(torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0], [0.0]]), weight=2.0).item()
    0.25
    """
    gram = codes.t() @ codes
    gram.diagonal().add_(weight)
    return torch.cholesky_solve(codes.t() @ targets, torch.linalg.cholesky(gram))


def discrete_descent(codes: Tensor, classifier: Tensor, pull: Tensor, sweeps: int = 10) -> Tensor:
    """Minimise ``||B W||_F^2 - 2 <B, Q>`` over B in {-1, +1}, bit by bit.

    Each update is the exact minimiser over bit k of all samples at once:
    ``b_k = sgn(q_k - B_rest W_rest w_k)``. A bit whose argument is zero keeps its value, so that
    the objective never increases and the sweeps cannot cycle.

    Parameters
    ----------
    codes : Tensor, shape (N, K)
        B to start from; left as it is. Zeros are allowed, as the authors of DSDH start from them.
    classifier : Tensor, shape (K, c)
        W.
    pull : Tensor, shape (N, K)
        Q: the targets' pull Y W' plus whatever else the codes should agree with.
    sweeps : int
        At most so many passes over the bits; it ends when a pass changes nothing.

    Returns
    -------
    Tensor, shape (N, K)
        B, of the dtype of `codes`.

    Examples
    --------
    >>> start = torch.ones(1, 2)
    >>> discrete_descent(start, torch.zeros(2, 1), pull=torch.tensor([[-3.0, 0.0]])).tolist()
    [[-1.0, 1.0]]
    """
    gram = classifier @ classifier.t()
    gram.diagonal().zero_()
    # One bit of all samples is one contiguous row.
    bits = codes.t().contiguous()
    pulls = pull.t().contiguous()
    for _ in range(sweeps):
        before = bits.clone()
        for k in range(len(bits)):
            argument = torch.addmv(pulls[k], bits.t(), gram[k], alpha=-1)
            bits[k] = torch.where(argument == 0, bits[k], argument.sign())
        if torch.equal(bits, before):
            break
    return bits.t().contiguous()


def sgn(values: Tensor) -> Tensor:
    """Signs without a third symbol: +1 where a value is >= 0, and -1 elsewhere.

    Examples
    --------
    >>> sgn(torch.tensor([-2.0, 0.0, 3.0])).tolist()
    [-1.0, 1.0, 1.0]
    """
    return torch.where(values >= 0, 1.0, -1.0)
