"""Exact minimization of binary energies with attractive pairs by a minimum cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

_TOO_LARGE = 2**30  # for 32-bit flows, where the residual of an edge can reach twice its capacity


def minimize_attractive(couplings: Any, fields: NDArray[np.int64]) -> NDArray[np.int8]:
    """Minimise ``sum_{i<j} w_ij z_i z_j + sum_i u_i z_i`` over z in {-1, +1}, all w_ij <= 0.

    Separating a pair costs ``-2 w_ij``. A sample with ``u_i < 0`` has an edge to the source (+1),
    a sample with ``u_i > 0`` has an edge to the sink (-1). Integers make the cut exact.

    Parameters
    ----------
    couplings : sparse matrix of integers, shape (n, n)
        w, symmetric with a zero diagonal.
    fields : ndarray of int64, shape (n,)
        u.

    Returns
    -------
    ndarray of int8, shape (n,)
        z. If there are several minimizers, the one with the most -1.

    Examples
    --------
    >>> couplings = sp.csr_array(np.array([[0, -3], [-3, 0]]))
    >>> minimize_attractive(couplings, np.array([1, -2])).tolist()
    [1, 1]
    """
    couplings = sp.coo_array(couplings)
    if np.any(couplings.data > 0):
        raise ValueError("couplings of a minimum cut must be <= 0")
    count = len(fields)
    source, sink = count, count + 1
    pulled_up, pulled_down = np.flatnonzero(fields < 0), np.flatnonzero(fields > 0)
    tails = np.concatenate([couplings.row, np.full(len(pulled_up), source), pulled_down])
    heads = np.concatenate([couplings.col, pulled_up, np.full(len(pulled_down), sink)])
    capacities = 2 * np.abs(
        np.concatenate([couplings.data, fields[pulled_up], fields[pulled_down]]).astype(np.int64)
    )
    if np.any(capacities >= _TOO_LARGE):
        raise ValueError(f"couplings and fields of a minimum cut must be below {_TOO_LARGE // 2}")
    graph = sp.csr_array(
        (capacities.astype(np.int32), (tails, heads)), shape=(count + 2, count + 2)
    )
    residual = sp.csr_array(graph - maximum_flow(graph, source, sink).flow)
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, source, return_predecessors=False)
    signs = np.full(count + 2, -1, np.int8)
    signs[reached] = 1
    return signs[:count]
