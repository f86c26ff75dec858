"""FastH: binary codes inferred by graph cuts and learned by boosted trees, bit by bit."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods._cut import minimize_attractive
from bitprint.methods._registry import register_method
from bitprint.methods._trees import Trees, boost, level_range, stack, to_levels, vote
from bitprint.supervision import sample_pairs, similarity

Loss = Literal["hinge", "ksh", "bre"]


@register_method
class FastH(FeatureHasher):
    """FastHash with boosted decision trees (Lin, Shen, Shi, van den Hengel & Suter, CVPR 2014).

    Bit r is learned in two steps. Step 1 infers the bits z of the training images: it minimizes
    ``sum_ij w_ij z_i z_j`` block by block with minimum cuts. The weight w_ij is the loss of the
    pair if this bit is equal minus its loss if this bit differs, given the first r - 1 bits. Step 2
    fits trees to z by AdaBoost. The next bit uses the outputs of the trees, not z.

    Parameters
    ----------
    bits : int
        K.
    pairs : int
        Number of similar and of dissimilar pairs drawn for each image.
    loss : {"hinge", "ksh", "bre"}
        Loss of a pair at Hamming distance D over r bits. The loss of a similar pair is (D/r)^2.
        The loss of a dissimilar pair is max(1/2 - D/r, 0)^2 for "hinge", where half of the bits is
        a sufficient distance, and (1 - D/r)^2 for "bre". "ksh" is four times "bre" and learns the
        same codes.
    passes : int
        Number of updates of each block.
    trees, depth : int
        Number of trees per bit, and number of node levels in a tree. Large training sets need
        deeper trees, 6 to 12.
    seed : int
        Seed of the pairs, the order of the blocks and the candidate features of the nodes. With
        the same seed, a short code is a prefix of a longer one.

    Attributes
    ----------
    features_, thresholds_, votes_ : ndarray, shapes (K, T, M), (K, T, M) and (K, T, M + 1)
        The trees, as complete trees of M = 2^depth - 1 nodes.
    low_, scale_ : ndarray of float32, shape (d,)
        Quantization of the features to 256 levels.

    Examples
    --------
    >>> features = np.array([[0.0], [0.1], [0.9], [1.0]])
    >>> hasher = FastH(4, trees=5, depth=1).fit(features, [0, 0, 1, 1])
    >>> hasher.encode(features).hamming(hasher.encode(features)).tolist()
    [[0, 0, 2, 2], [0, 0, 2, 2], [2, 2, 0, 0], [2, 2, 0, 0]]
    """

    name = "fasth"
    supervision = "labels"
    reference = "Lin et al., CVPR 2014"

    def __init__(
        self,
        bits: int,
        *,
        pairs: int = 100,
        loss: Loss = "hinge",
        passes: int = 2,
        trees: int = 200,
        depth: int = 4,
        seed: int = 0,
    ) -> None:
        self.bits = bits
        self.pairs = pairs
        self.loss = loss
        self.passes = passes
        self.trees = trees
        self.depth = depth
        self.seed = seed

    def _fit(self, features: NDArray[np.float32], labels: NDArray | None) -> None:
        assert labels is not None
        self._check_options()
        rng = np.random.default_rng(self.seed)
        self.low_, self.scale_ = level_range(features)
        levels = to_levels(features, self.low_, self.scale_)
        columns = np.ascontiguousarray(levels.T)
        i, j, similar = distinct_pairs(labels, self.pairs, rng)
        blocks = compatible_blocks(labels, i, j, similar, rng)
        distances = np.zeros(len(i), np.int64)
        learned = []
        for r in range(1, self.bits + 1):
            weights = pair_weights(distances, similar, r, self.loss)
            targets = infer_bits(i, j, weights, blocks, self.passes, rng)
            trees = boost(
                columns,
                targets,
                image_weights(i, j, weights, len(levels)),
                trees=self.trees,
                depth=self.depth,
                rng=rng,
            )
            learned.append(trees)
            bit = vote(levels, stack([trees]))[:, 0] >= 0
            distances += bit[i] != bit[j]
        self.features_, self.thresholds_, self.votes_ = stack(learned)

    def _project(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        trees = Trees(self.features_, self.thresholds_, self.votes_)
        trees.check(features.shape[1])
        return vote(to_levels(features, self.low_, self.scale_), trees)

    def _check_options(self) -> None:
        for option in ("pairs", "passes", "trees", "depth"):
            if getattr(self, option) < 1:
                raise ValueError(f"{option} must be at least 1, got {getattr(self, option)}")
        if self.depth > 16:
            raise ValueError(f"depth must be at most 16, got {self.depth}")
        if self.loss not in ("hinge", "ksh", "bre"):
            raise ValueError(f"loss must be hinge, ksh or bre, got {self.loss!r}")


def distinct_pairs(
    labels: NDArray, per_image: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Draw pairs (i, j, similar) with i < j, without duplicates."""
    i, j, similar = sample_pairs(labels, per_image, rng)
    count = len(labels)
    _, first = np.unique(np.minimum(i, j) * count + np.maximum(i, j), return_index=True)
    return np.minimum(i, j)[first], np.maximum(i, j)[first], similar[first]


def pair_weights(
    distances: NDArray[np.int64], similar: NDArray[np.bool_], bits: int, loss: Loss
) -> NDArray[np.int64]:
    """Return the loss if this bit is equal minus the loss if it differs, times 4 bits^2.

    Parameters
    ----------
    distances : ndarray of int64, shape (P,)
        Hamming distances over the previous bits.
    similar : ndarray of bool, shape (P,)
    bits : int
        r, the number of bits including this one.
    loss : {"hinge", "ksh", "bre"}

    Returns
    -------
    ndarray of int64, shape (P,)
        w: < 0 for similar pairs, >= 0 for others. The factor makes w an integer; a common factor
        does not change the minimum.
    """

    def twice_root(distance: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the square root of the loss, times 2 bits."""
        apart = np.maximum(bits - 2 * distance, 0) if loss == "hinge" else 2 * (bits - distance)
        return np.where(similar, 2 * distance, apart)

    return twice_root(distances) ** 2 - twice_root(distances + 1) ** 2


def image_weights(
    i: NDArray[np.int64], j: NDArray[np.int64], weights: NDArray[np.int64], count: int
) -> NDArray[np.float64]:
    """Return the weight of each image, ``v_i = sum_j |w_ij|``."""
    ends = np.concatenate([i, j])
    return np.bincount(ends, np.tile(np.abs(weights), 2), count).astype(np.float64)


def compatible_blocks(
    labels: NDArray,
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    similar: NDArray[np.bool_],
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """Partition the images into blocks without dissimilar pairs.

    A block starts with a random image. It includes each remaining image that shares a label with
    the first one and is in no dissimilar pair with a member. With one label per image, the blocks
    are the classes.
    """
    count = len(labels)
    apart = _symmetric(i[~similar], j[~similar], np.ones_like(i)[~similar], count)
    free = np.ones(count, bool)
    blocks = []
    for start in rng.permutation(count):
        if not free[start]:
            continue
        free[start] = False
        candidates = np.flatnonzero(free & similarity(labels[start : start + 1], labels)[0])
        block = np.append(start, candidates)
        block = block[_without_conflicts(block, apart.indptr, apart.indices, count)]
        free[block] = False
        blocks.append(np.sort(block))
    return blocks


@njit(nogil=True, cache=True)
def _without_conflicts(
    samples: NDArray[np.int64], bounds: NDArray, partners: NDArray, count: int
) -> NDArray[np.bool_]:
    """Select samples in order, except those with a selected sample among their partners."""
    member = np.zeros(count, np.bool_)
    taken = np.zeros(len(samples), np.bool_)
    for k in range(len(samples)):
        sample = samples[k]
        taken[k] = not np.any(member[partners[bounds[sample] : bounds[sample + 1]]])
        member[sample] = taken[k]
    return taken


def infer_bits(
    i: NDArray[np.int64],
    j: NDArray[np.int64],
    weights: NDArray[np.int64],
    blocks: list[NDArray[np.int64]],
    passes: int,
    rng: np.random.Generator,
) -> NDArray[np.int8]:
    """Step 1: decrease ``sum w_ij z_i z_j`` over z in {-1, +1} block by block, from all +1."""
    signs = np.ones(sum(map(len, blocks)), np.int8)
    couplings = _symmetric(i, j, weights, len(signs))
    for _ in range(passes):
        for b in rng.permutation(len(blocks)):
            update_block(couplings, blocks[b], signs)
    return signs


def update_block(couplings: Any, block: NDArray[np.int64], signs: NDArray[np.int8]) -> None:
    """Set the signs of a block, in place, to their optimum for fixed other signs."""
    rows = couplings[block]
    inner = rows[:, block]
    fields = rows @ signs.astype(np.int64) - inner @ signs[block].astype(np.int64)
    signs[block] = minimize_attractive(inner, fields)


def _symmetric(
    i: NDArray[np.int64], j: NDArray[np.int64], values: NDArray[np.int64], count: int
) -> Any:
    rows, columns = np.concatenate([i, j]), np.concatenate([j, i])
    return sp.csr_array((np.concatenate([values, values]), (rows, columns)), shape=(count, count))
