"""Exact minimization of binary energies with attractive pairs by a minimum cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Arcs(NamedTuple):
    """Pairs of n nodes, each as two opposite arcs, sorted by their first nodes.

    Attributes
    ----------
    bounds : ndarray of int64, shape (n + 1,)
        Node i has the arcs from bounds[i] up to bounds[i + 1].
    heads : ndarray of int32, shape (A,)
        The other node of each arc.
    opposite : ndarray of int32, shape (A,)
        The number of the opposite arc.
    """

    bounds: Ints
    heads: NDArray[np.int32]
    opposite: NDArray[np.int32]


def pair_arcs(i: Ints, j: Ints, count: int) -> tuple[Arcs, Ints]:
    """Return the arcs of P pairs (i, j) of `count` nodes.

    The second array, of shape (2 P,), contains the number of each arc in the concatenation of the
    pairs (i, j) and (j, i).

    Examples
    --------
    >>> arcs, order = pair_arcs(np.array([0, 1]), np.array([2, 2]), 3)
    >>> arcs.bounds.tolist(), arcs.heads.tolist(), arcs.opposite.tolist()
    ([0, 1, 2, 4], [2, 2, 0, 1], [2, 3, 0, 1])
    """
    tails = np.concatenate([i, j])
    order = np.argsort(tails, kind="stable")
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(tails, minlength=count), out=bounds[1:])
    heads = np.concatenate([j, i])[order].astype(np.int32)
    # Arc p of the pairs (i, j) is opposite to arc p of the pairs (j, i).
    return Arcs(bounds, heads, np.roll(place, len(i))[order]), order


def minimize_attractive(arcs: Arcs, weights: Ints, fields: Ints) -> NDArray[np.int8]:
    """Minimize ``sum_{i<j} w_ij z_i z_j + sum_i u_i z_i`` over z in {-1, +1}, all w_ij <= 0.

    The minimum is a minimum cut: separating a pair costs ``-2 w_ij``, z_i = +1 costs 2 u_i if
    u_i > 0, and z_i = -1 costs -2 u_i if u_i < 0. Integers make the cut exact.

    Parameters
    ----------
    arcs : Arcs
        The pairs.
    weights : ndarray of int64, shape (A,)
        w of each arc; equal for opposite arcs.
    fields : ndarray of int64, shape (n,)
        u.

    Returns
    -------
    ndarray of int8, shape (n,)
        z. If there are several minimizers, the one with the most -1.

    Examples
    --------
    >>> arcs, _ = pair_arcs(np.array([0]), np.array([1]), 2)
    >>> minimize_attractive(arcs, np.array([-3, -3]), np.array([1, -2])).tolist()
    [1, 1]
    """
    if np.any(weights > 0):
        raise ValueError("couplings of a minimum cut must be <= 0")
    if len(fields) and 2 * np.abs(fields).sum(dtype=float) - weights.sum(dtype=float) >= 2**62:
        raise ValueError("couplings and fields of a minimum cut must sum to less than 2^62")
    signs: NDArray[np.int8] = _cut(*arcs, -weights, fields)
    return signs


@njit(nogil=True, cache=True)
def _cut(
    bounds: Ints,
    heads: NDArray[np.int32],
    opposite: NDArray[np.int32],
    room: Ints,
    fields: Ints,
) -> NDArray[np.int8]:
    """Return the minimum cut by push-relabel (Goldberg and Tarjan, 1988).

    Nodes with u > 0 receive a flow of u, and nodes with u < 0 drain -u. `room` contains the free
    capacities and is overwritten. A height is a lower bound of the number of arcs to a node that
    drains; active nodes push their excess downwards. When no excess can reach a drain, the nodes
    that can reach one are +1.
    """
    count = len(fields)
    excess = np.maximum(fields, 0)
    drain = np.maximum(-fields, 0)
    heights = np.empty(count, np.int64)
    following = bounds[:-1].copy()  # the next arc to try
    waiting = np.empty(count, np.int64)  # nodes with excess, in a ring
    is_waiting = np.zeros(count, np.bool_)
    nodes = np.empty(count, np.int64)
    _measure(bounds, heads, opposite, room, drain, heights, nodes)
    first, length = 0, 0
    for node in range(count):
        if excess[node] > 0 and heights[node] < count:
            waiting[length] = node
            is_waiting[node] = True
            length += 1
    work = 0
    while length > 0:
        node = waiting[first]
        first = (first + 1) % count
        length -= 1
        is_waiting[node] = False
        while excess[node] > 0 and heights[node] < count:
            if drain[node] > 0:
                amount = min(excess[node], drain[node])
                excess[node] -= amount
                drain[node] -= amount
                continue
            arc = following[node]
            stop = bounds[node + 1]
            while arc < stop and not (room[arc] > 0 and heights[heads[arc]] < heights[node]):
                arc += 1
            work += arc - following[node] + 1
            following[node] = arc
            if arc < stop:
                other = heads[arc]
                amount = min(excess[node], room[arc])
                room[arc] -= amount
                room[opposite[arc]] += amount
                excess[node] -= amount
                excess[other] += amount
                if not is_waiting[other] and heights[other] < count:
                    waiting[(first + length) % count] = other
                    is_waiting[other] = True
                    length += 1
            else:
                lowest = count
                for arc in range(bounds[node], stop):
                    if room[arc] > 0:
                        lowest = min(lowest, heights[heads[arc]] + 1)
                heights[node] = lowest
                following[node] = bounds[node]
                work += stop - bounds[node]
        if work > 2 * len(heads) + 8 * count:
            _measure(bounds, heads, opposite, room, drain, heights, nodes)
            following[:] = bounds[:-1]
            work = 0
    _measure(bounds, heads, opposite, room, drain, heights, nodes)
    return np.where(heights < count, 1, -1).astype(np.int8)


@njit(nogil=True, cache=True)
def _measure(
    bounds: Ints,
    heads: NDArray[np.int32],
    opposite: NDArray[np.int32],
    room: Ints,
    drain: Ints,
    heights: Ints,
    nodes: Ints,
) -> None:
    """Set the heights to the numbers of arcs with room to a drain; `count` if there is no path."""
    count = len(drain)
    heights[:] = count
    found = 0
    for node in range(count):
        if drain[node] > 0:
            heights[node] = 0
            nodes[found] = node
            found += 1
    done = 0
    while done < found:
        node = nodes[done]
        done += 1
        for arc in range(bounds[node], bounds[node + 1]):
            other = heads[arc]
            if heights[other] == count and room[opposite[arc]] > 0:
                heights[other] = heights[node] + 1
                nodes[found] = other
                found += 1
