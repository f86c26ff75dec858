"""DSDH by plain loops in float64, written from the paper's formulas.

Notation and orientation as in the paper: samples are columns, so H and B are (K, N), Y is (c, N)
and W is (K, c). This module uses no code of the library.
"""

import math
from itertools import pairwise

import numpy as np


def log1p_exp(t):
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


def sigmoid(t):
    return 1 / (1 + math.exp(-t))


def share_a_label(labels):
    """s_ij for (N,) class numbers or (N, c) zeros and ones."""
    labels = np.asarray(labels)
    count = len(labels)
    s = np.zeros((count, count))
    for i in range(count):
        for j in range(count):
            if labels.ndim == 1:
                s[i, j] = labels[i] == labels[j]
            else:
                s[i, j] = any(a == 1 and b == 1 for a, b in zip(labels[i], labels[j], strict=True))
    return s


def pair_term(H, s, slope=1.0, weights=None, kinds=(1.0, 1.0)):
    """-sum_ij [ s_ij Psi_ij - log(1 + e^Psi_ij) ] over all ordered pairs, i = j included.

    Psi is multiplied by the slope and the sum is divided by it. The weight of a pair is the product
    of the weights of its images; kinds are weights of dissimilar and of similar pairs.
    """
    weights = np.ones(H.shape[1]) if weights is None else weights
    total = 0.0
    for i in range(H.shape[1]):
        for j in range(H.shape[1]):
            psi = slope * 0.5 * float(H[:, i] @ H[:, j])
            weight = weights[i] * weights[j] * kinds[int(s[i, j])]
            total -= weight * (s[i, j] * psi - log1p_exp(psi))
    return total / slope


def objective(H, W, B, Y, s, mu, nu, eta, slope=1.0, weights=None, kinds=(1.0, 1.0)):
    """Equation 11: pairs, classification, weight decay of the classifier, codes tied to outputs."""
    total = pair_term(H, s, slope, weights, kinds)
    weights = np.ones(H.shape[1]) if weights is None else weights
    for i in range(H.shape[1]):
        total += weights[i] * mu * float(((Y[:, i] - W.T @ B[:, i]) ** 2).sum())
        total += weights[i] * eta * float(((B[:, i] - H[:, i]) ** 2).sum())
    return total + nu * float((W**2).sum())


def gradient(H, B, s, eta, slope=1.0, weights=None, kinds=(1.0, 1.0)):
    """Equation 12: gradient of both halves of the pair sum and of the quantization term."""
    weights = np.ones(H.shape[1]) if weights is None else weights
    result = np.zeros_like(H)
    for i in range(H.shape[1]):
        for j in range(H.shape[1]):
            a = sigmoid(slope * 0.5 * float(H[:, i] @ H[:, j]))
            weight = weights[i] * weights[j] * kinds[int(s[i, j])]
            result[:, i] -= 0.5 * weight * (s[i, j] - a) * H[:, j]
            result[:, i] -= 0.5 * weight * (s[j, i] - a) * H[:, j]
        result[:, i] -= weights[i] * 2 * eta * (B[:, i] - H[:, i])
    return result


def pair_weights(s, weights=None):
    """Weights of dissimilar and of similar pairs: half of all pairs / pairs of this kind."""
    weights = np.ones(len(s)) if weights is None else weights
    sums = [0.0, 0.0]
    for i in range(len(s)):
        for j in range(len(s)):
            sums[int(s[i, j])] += weights[i] * weights[j]
    return tuple(sum(sums) / 2 / part for part in sums)


def finite_differences(function, at, step=1e-5):
    """Central differences of a scalar function of an array."""
    result = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        above, below = at.copy(), at.copy()
        above[index] += step
        below[index] -= step
        result[index] = (function(above) - function(below)) / (2 * step)
    return result


def solve_classifier(B, Y, ratio, weights=None):
    """Corrected equation 15: W = (B D B' + ratio I)^-1 B D Y', D the weights."""
    D = np.eye(B.shape[1]) if weights is None else np.diag(weights)
    return np.linalg.inv(B @ D @ B.T + ratio * np.eye(len(B))) @ B @ D @ Y.T


def descend(B, W, P, sweeps):
    """Equation 18 row by row: x = sgn(p - B_1' W_1 w), until a sweep changes nothing."""
    B = B.copy()
    for _ in range(sweeps):
        before = B.copy()
        for k in range(len(B)):
            others = [row for row in range(len(B)) if row != k]
            W_1, B_1, w, p = W[others], B[others], W[k], P[k]
            argument = p - B_1.T @ (W_1 @ w)
            for i, value in enumerate(argument):
                if value != 0:
                    B[k, i] = 1.0 if value > 0 else -1.0
        if np.array_equal(before, B):
            break
    return B


def discrete_objective(B, W, P):
    """||W'B||_F^2 - 2 tr(B'P)."""
    return float(((W.T @ B) ** 2).sum() - 2 * np.trace(B.T @ P))


def largest_rise(values):
    """Largest rise in a sequence of objective values; zero or less if it never increases."""
    return max(after - before for before, after in pairwise(values))
