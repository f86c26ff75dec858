"""The discrete step of SDH and DSDH: ridge regression and discrete cyclic coordinate descent."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from bitprint.utils.parallel import on_every_core

_ROWS = 4096  # samples per block in each thread


def ridge(codes: Tensor, targets: Tensor, weight: float) -> Tensor:
    """Minimize ``||Y - B W||_F^2 + weight ||W||_F^2``: W = (B'B + weight I)^-1 B'Y.

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
    # Positive definite by construction; a check would synchronize with the GPU.
    factor, _ = torch.linalg.cholesky_ex(gram)
    return torch.cholesky_solve(codes.t() @ targets, factor)


def dcc(codes: Tensor, classifier: Tensor, pull: Tensor, sweeps: int = 10) -> Tensor:
    """Minimize ``||B W||_F^2 - 2 <B, Q>`` over B in {-1, +1} by discrete cyclic coordinate descent.

    Each update is the exact minimizer over bit k of all samples:
    ``b_k = sgn(q_k - B_rest W_rest w_k)``. A bit whose argument is zero keeps its value, so that
    the objective never increases and the sweeps cannot cycle.

    Parameters
    ----------
    codes : Tensor, shape (N, K)
        Initial B; not modified. Zeros are allowed, because the authors of DSDH start from zeros.
    classifier : Tensor, shape (K, c)
        W.
    pull : Tensor, shape (N, K)
        Q: Y W' for the targets Y, plus further linear terms.
    sweeps : int
        Maximum number of passes over the bits; the descent stops when a pass changes no bit.

    Returns
    -------
    Tensor, shape (N, K)
        B, with the dtype and device of `codes`.

    Examples
    --------
    >>> start = torch.ones(1, 2)
    >>> dcc(start, torch.zeros(2, 1), pull=torch.tensor([[-3.0, 0.0]])).tolist()
    [[-1.0, 1.0]]
    """
    if codes.is_cuda and find_spec("triton"):
        from bitprint.methods import discrete_gpu  # only torch for GPUs includes Triton

        weights = classifier.detach().double()
        gram = (weights @ weights.t()).fill_diagonal_(0)
        start, pull = codes.detach().double(), pull.detach().double()
        return discrete_gpu.descend(start, gram, pull, sweeps).to(codes)
    return _descent_on_cpu(codes, classifier, pull, sweeps)


def _descent_on_cpu(codes: Tensor, classifier: Tensor, pull: Tensor, sweeps: int) -> Tensor:
    bits = codes.detach().cpu().numpy().astype(np.float64)
    weights = classifier.detach().cpu().numpy().astype(np.float64)
    pulls = pull.detach().cpu().numpy().astype(np.float64)
    gram = weights @ weights.T
    np.fill_diagonal(gram, 0)
    # Samples are independent of each other.
    on_every_core(
        lambda rows: _descend(bits[rows], bits[rows] @ gram, gram, pulls[rows], sweeps),
        len(bits),
        _ROWS,
    )
    return torch.from_numpy(bits).to(codes)


@njit(nogil=True, cache=True)
def _descend(
    bits: NDArray[np.float64],
    others: NDArray[np.float64],
    gram: NDArray[np.float64],
    pulls: NDArray[np.float64],
    sweeps: int,
) -> None:
    """Update the bits in place; `others` is B G and is updated with each changed bit."""
    for row in range(len(bits)):
        for _ in range(sweeps):
            changed = False
            for k in range(bits.shape[1]):
                argument = pulls[row, k] - others[row, k]
                sign = bits[row, k] if argument == 0 else np.sign(argument)
                if sign != bits[row, k]:
                    others[row] += (sign - bits[row, k]) * gram[k]
                    bits[row, k] = sign
                    changed = True
            if not changed:
                break


def sgn(values: Tensor) -> Tensor:
    """Return +1 for values >= 0 and -1 for others.

    Examples
    --------
    >>> sgn(torch.tensor([-2.0, 0.0, 3.0])).tolist()
    [-1.0, 1.0, 1.0]
    """
    return torch.where(values >= 0, 1.0, -1.0)
