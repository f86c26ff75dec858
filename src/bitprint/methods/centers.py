"""Codes of classes that the network should reach: hash centers, used by CSQ, OrthoHash and MDSHC.

Some papers call them hash targets or a codebook.
"""

from __future__ import annotations

import math

import torch
from scipy.linalg import hadamard
from torch import Tensor
from torch.nn import functional

from bitprint.methods.discrete import sgn

_POOL = 4096  # random codes from which centers are chosen
_MIN_LENGTH = 1e-3  # smallest length in the cosine, as its gradient diverges for short outputs


def hadamard_centers(count: int, bits: int) -> Tensor | None:
    """Return the first rows of a Hadamard matrix and its negative, or None if there are too few.

    The distance of two centers is K / 2, or K for a row and its negative.

    Parameters
    ----------
    count : int
        Number of centers, at most 2K.
    bits : int
        K, a power of two.

    Returns
    -------
    Tensor, shape (count, K), or None

    Examples
    --------
    >>> hadamard_centers(3, 2)
    tensor([[ 1.,  1.],
            [ 1., -1.],
            [-1., -1.]])
    >>> hadamard_centers(3, 12) is None
    True
    """
    if bits & (bits - 1) or count > 2 * bits:
        return None
    rows = torch.from_numpy(hadamard(bits)).to(torch.get_default_dtype())
    return torch.cat([rows, -rows])[:count]


def balanced_centers(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Return random codes with as many +1 as -1 (or one more), far apart from each other.

    They are chosen one by one from some thousand random codes, see `choose_apart`.

    Examples
    --------
    >>> centers = balanced_centers(3, 6, torch.Generator().manual_seed(0))
    >>> centers.sum(dim=1).tolist(), int((centers[0] != centers[1]).sum())
    ([0.0, 0.0, 0.0], 6)
    """
    ranks = torch.rand(_POOL, bits, generator=generator, dtype=torch.float64).argsort(dim=1)
    positive = bits // 2 + torch.randint(0, bits % 2 + 1, (_POOL, 1), generator=generator)
    pool = torch.where(ranks.argsort(dim=1) < positive, 1.0, -1.0).double()
    return choose_apart(pool, count)


def class_centers(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Return `hadamard_centers` if there are enough, else `balanced_centers`.

    Examples
    --------
    >>> class_centers(2, 2, torch.Generator()).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    rows = hadamard_centers(count, bits)
    return balanced_centers(count, bits, generator) if rows is None else rows


def random_centers(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Return codes of independent random bits, shape (count, K).

    Examples
    --------
    >>> random_centers(2, 3, torch.Generator().manual_seed(0)).tolist()
    [[-1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]]
    """
    coins = torch.randint(0, 2, (count, bits), generator=generator)
    return 2 * coins.to(torch.get_default_dtype()) - 1


def choose_apart(pool: Tensor, count: int) -> Tensor:
    """Choose codes far apart from each other, one by one.

    Each is the code of the pool with the smallest sum of e^-distance to those before it. If there
    are more centers than different codes, they repeat about equally often.

    Parameters
    ----------
    pool : Tensor of float64, shape (m, K)
        Codes to choose from.
    count : int

    Returns
    -------
    Tensor, shape (count, K)
    """
    bits = pool.shape[1]
    near = torch.zeros(len(pool), dtype=torch.float64)
    chosen = []
    for _ in range(count):
        code = pool[near.argmin()]
        near += ((pool @ code - bits) / 2).exp()
        chosen.append(code)
    return torch.stack(chosen).to(torch.get_default_dtype())


def guaranteed_distance(count: int, bits: int) -> int:
    """Return the largest least distance of codes that the Gilbert-Varshamov bound guarantees.

    As long as the codes at a distance below d of the chosen ones are not all 2^K codes, one can be
    added. So C codes with distances of at least d exist if
    ``(C - 1) * sum_{j < d} binomial(K, j) < 2^K``.

    Parameters
    ----------
    count : int
        C.
    bits : int
        K.

    Examples
    --------
    >>> [guaranteed_distance(10, bits) for bits in (3, 12, 24, 48)]
    [0, 4, 9, 20]
    """
    distance, ball = 0, 0
    while distance < bits and (count - 1) * (ball + math.comb(bits, distance)) < 2**bits:
        ball += math.comb(bits, distance)
        distance += 1
    return distance


def separated_centers(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Return codes with at least the distance of `guaranteed_distance`, and a large mean distance.

    They start from `class_centers` if these are far enough from each other, and else from random
    codes that are. Then one bit of one center at a time is flipped where this increases the mean
    distance and does not decrease the least distance.

    Parameters
    ----------
    count : int
    bits : int
    generator : torch.Generator

    Returns
    -------
    Tensor, shape (count, K)

    Examples
    --------
    >>> centers = separated_centers(10, 24, torch.Generator().manual_seed(0))
    >>> distances = (24 - centers @ centers.t()) / 2
    >>> int(distances.fill_diagonal_(24).min()) >= guaranteed_distance(10, 24)
    True
    """
    centers = class_centers(count, bits, generator)
    if bits - 2 * guaranteed_distance(count, bits) < _largest_product(centers):
        centers = _random_at_distance(count, bits, generator)
    return _spread(centers.double()).to(torch.get_default_dtype())


def _largest_product(centers: Tensor) -> float:
    """Return the inner product of the two nearest centers."""
    return float((centers @ centers.t()).fill_diagonal_(-centers.shape[1]).max())


def _random_at_distance(count: int, bits: int, generator: torch.Generator) -> Tensor:
    """Return random codes of which each has the guaranteed distance from those before it.

    The bound guarantees that one exists; about a third of all random codes are far enough, even
    from the last ones.
    """
    least = guaranteed_distance(count, bits)
    chosen = torch.empty(0, bits)
    while len(chosen) < count:
        for code in random_centers(_POOL, bits, generator):
            if len(chosen) < count and ((chosen * code).sum(dim=1) <= bits - 2 * least).all():
                chosen = torch.cat([chosen, code[None]])
    return chosen


def _spread(centers: Tensor) -> Tensor:
    """Flip bits while this increases the mean distance, without decreasing the least distance."""
    centers = centers.clone()
    bits = centers.shape[1]
    products = (centers @ centers.t()).fill_diagonal_(-bits)
    most = products.max()
    changed = True
    while changed:
        changed = False
        for i in range(len(centers)):
            for k in range(bits):
                column = centers[:, k]
                if column[i] * (column.sum() - column[i]) <= 0:
                    continue  # most of the others have the other sign already
                flipped = products[i] - 2 * column[i] * column
                flipped[i] = -bits
                if flipped.max() <= most:
                    products[i] = products[:, i] = flipped
                    centers[i, k] = -centers[i, k]
                    changed = True
    return centers


def majority(classes: Tensor, centers: Tensor, ties: Tensor) -> Tensor:
    """Return the target of each image: the sign of the sum of the centers of its labels.

    Parameters
    ----------
    classes : Tensor, shape (n, c)
        Labels, zeros and ones.
    centers : Tensor, shape (c, K)
    ties : Tensor, shape (K,)
        Bits to use where the sum is zero, also for an image without a label.

    Examples
    --------
    >>> centers = torch.tensor([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0]])
    >>> majority(torch.tensor([[1.0, 1.0], [1.0, 0.0]]), centers, ties=-torch.ones(3)).tolist()
    [[1.0, -1.0, -1.0], [1.0, 1.0, -1.0]]
    """
    sums = classes @ centers
    return torch.where(sums == 0, ties, sgn(sums))


def cosines(outputs: Tensor, centers: Tensor) -> Tensor:
    """Return the cosine of each output with each center, shape (n, c).

    Examples
    --------
    >>> centers = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> cosines(torch.tensor([[3.0, 4.0]]), centers).round(decimals=2)
    tensor([[ 0.9900, -0.1400]])
    """
    directions = functional.normalize(outputs, dim=1, eps=_MIN_LENGTH)
    return directions @ functional.normalize(centers, dim=1).t()
