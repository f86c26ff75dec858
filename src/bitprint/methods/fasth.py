"""FastH: binary codes inferred by graph cuts and learned by boosted trees, bit by bit."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bitprint.methods._base import FeatureHasher
from bitprint.methods._cut import Arcs, minimize_attractive, pair_arcs
from bitprint.methods._registry import register_method
from bitprint.methods._trees import Trees, boost, level_range, stack, to_levels, vote
from bitprint.supervision import sample_pairs, similarity
from bitprint.utils.parallel import on_every_core

Loss = Literal["hinge", "ksh", "bre"]
Ints = NDArray[np.int64]

_ROWS = 4096  # images per block of pairs in each thread


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
        pairs = distinct_pairs(labels, self.pairs, rng)
        graph = Graph(*pairs, compatible_blocks(labels, *pairs, rng))
        learned = []
        for r in range(1, self.bits + 1):
            graph.weigh(r, self.loss)
            targets = graph.infer_bits(self.passes, rng)
            importance = graph.image_weights()
            trees, outputs = boost(
                columns, targets, importance, trees=self.trees, depth=self.depth, rng=rng
            )
            learned.append(trees)
            graph.append(outputs >= 0)
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


def pair_weights(distances: Ints, similar: NDArray[np.bool_], bits: int, loss: Loss) -> Ints:
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

    def twice_root(distance: Ints) -> Ints:
        """Return the square root of the loss, times 2 bits."""
        apart = np.maximum(bits - 2 * distance, 0) if loss == "hinge" else 2 * (bits - distance)
        return np.where(similar, 2 * distance, apart)

    return twice_root(distances) ** 2 - twice_root(distances + 1) ** 2


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
    apart, _ = pair_arcs(i[~similar], j[~similar], count)
    free = np.ones(count, bool)
    blocks = []
    for start in rng.permutation(count):
        if not free[start]:
            continue
        free[start] = False
        candidates = np.flatnonzero(free & similarity(labels[start : start + 1], labels)[0])
        block = np.append(start, candidates)
        block = block[_without_conflicts(block, apart.bounds, apart.heads, count)]
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


class Graph:
    """Pairs of images with their weights and distances, and step 1 of the method.

    Pairs in one block and other pairs are stored separately. The nodes are the images, sorted by
    block.

    Parameters
    ----------
    i, j : ndarray of int64, shape (P,)
        Distinct pairs.
    similar : ndarray of bool, shape (P,)
    blocks : list of ndarray of int64
        A partition of the N images without dissimilar pairs in a block.

    Attributes
    ----------
    signs : ndarray of int8, shape (N,)
        z of the nodes.
    """

    def __init__(
        self, i: Ints, j: Ints, similar: NDArray[np.bool_], blocks: list[NDArray[np.int64]]
    ) -> None:
        self._images = np.concatenate(blocks)
        count = len(self._images)
        sizes = [len(block) for block in blocks]
        ends = np.cumsum(sizes)
        self._blocks = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        node = np.empty(count, np.int64)
        node[self._images] = np.arange(count)
        block = np.repeat(np.arange(len(blocks)), sizes)
        i, j = node[i], node[j]
        inside = block[i] == block[j]
        self._inner = _Links(i[inside], j[inside], similar[inside], count)
        self._outer = _Links(i[~inside], j[~inside], similar[~inside], count)
        self.signs = np.ones(count, np.int8)

    def weigh(self, bits: int, loss: Loss) -> None:
        """Set the weights of the pairs for bit number `bits`."""
        distances = np.arange(bits)
        tables = [
            pair_weights(distances, np.full(bits, similar), bits, loss) for similar in (False, True)
        ]
        self._table = np.stack(tables)

    def image_weights(self) -> NDArray[np.float64]:
        """Return the weight of each image, ``v_i = sum_j |w_ij|``."""
        totals = np.zeros(len(self._images))
        for links in (self._inner, self._outer):
            totals[self._images] += links.totals(self._table)
        return totals

    def infer_bits(self, passes: int, rng: np.random.Generator) -> NDArray[np.int8]:
        """Decrease ``sum w_ij z_i z_j`` over z in {-1, +1} block by block, from all +1."""
        self.signs[:] = 1
        for _ in range(passes):
            for b in rng.permutation(len(self._blocks)):
                self.update_block(b)
        found = np.empty_like(self.signs)
        found[self._images] = self.signs
        return found

    def update_block(self, b: int) -> None:
        """Set the signs of a block, in place, to their optimum for fixed other signs."""
        block = self._blocks[b]
        fields = self._outer.fields(self._table, self.signs, block)
        arcs, weights = self._inner.within(block, self._table)
        self.signs[block] = minimize_attractive(arcs, weights, fields)

    def append(self, bit: NDArray[np.bool_]) -> None:
        """Add a bit of the N images to the distances of the pairs."""
        of_nodes = bit[self._images]
        for links in (self._inner, self._outer):
            links.add_distances(of_nodes)


class _Links:
    """Pairs of nodes as arcs, with similarity and distance of each arc."""

    def __init__(self, i: Ints, j: Ints, similar: NDArray[np.bool_], count: int) -> None:
        self.arcs, order = pair_arcs(i, j, count)
        self.similar = np.tile(similar, 2)[order]
        self.distances = np.zeros(len(order), np.uint16)

    def _by_node(self) -> tuple[Ints, NDArray[np.int32]]:
        return self.arcs.bounds, self.arcs.heads

    def within(self, nodes: slice, table: Ints) -> tuple[Arcs, Ints]:
        """Return the arcs of consecutive nodes without other neighbors, and their weights."""
        bounds = self.arcs.bounds[nodes.start : nodes.stop + 1]
        part = slice(bounds[0], bounds[-1])
        arcs = Arcs(
            bounds - bounds[0],
            self.arcs.heads[part] - np.int32(nodes.start),
            self.arcs.opposite[part] - np.int32(bounds[0]),
        )
        return arcs, table[self.similar[part].astype(np.intp), self.distances[part]]

    def fields(self, table: Ints, signs: NDArray[np.int8], nodes: slice) -> Ints:
        """Return ``u_i = sum_j w_ij z_j`` of some nodes."""
        fields = np.empty(nodes.stop - nodes.start, np.int64)
        _add_fields(
            *self._by_node(), self.similar, self.distances, table, signs, nodes.start, fields
        )
        return fields

    def totals(self, table: Ints) -> Ints:
        """Return ``sum_j |w_ij|`` of all nodes."""
        count = len(self.arcs.bounds) - 1
        ones, sizes = np.ones(count, np.int8), np.abs(table)
        parts = on_every_core(lambda rows: self.fields(sizes, ones, rows), count, _ROWS)
        return np.concatenate(parts)

    def add_distances(self, bit: NDArray[np.bool_]) -> None:
        """Add a bit of all nodes to the distances."""

        def add(rows: slice) -> None:
            _add_distances(*self._by_node(), bit, rows.start, rows.stop, self.distances)

        on_every_core(add, len(bit), _ROWS)


@njit(nogil=True, cache=True)
def _add_fields(
    bounds: Ints,
    heads: NDArray[np.int32],
    similar: NDArray[np.bool_],
    distances: NDArray[np.uint16],
    table: Ints,
    signs: NDArray[np.int8],
    first: int,
    fields: Ints,
) -> None:
    for row in range(len(fields)):
        total = 0
        for arc in range(bounds[first + row], bounds[first + row + 1]):
            weight = table[np.int64(similar[arc]), distances[arc]]
            total += weight * signs[heads[arc]]
        fields[row] = total


@njit(nogil=True, cache=True)
def _add_distances(
    bounds: Ints,
    heads: NDArray[np.int32],
    bit: NDArray[np.bool_],
    first: int,
    last: int,
    distances: NDArray[np.uint16],
) -> None:
    for node in range(first, last):
        for arc in range(bounds[node], bounds[node + 1]):
            distances[arc] += np.uint16(bit[node] != bit[heads[arc]])
