from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

from bitprint.methods import _trees
from bitprint.methods._cut import minimize_attractive, pair_arcs
from bitprint.methods._trees import Trees, level_range, stack, to_levels, vote
from bitprint.methods.fasth import (
    FastH,
    Graph,
    compatible_blocks,
    distinct_pairs,
    pair_weights,
)
from bitprint.supervision import similarity


def clusters(seed=0, count=120, classes=3, width=6, spread=0.5):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    centres = rng.standard_normal((classes, width))
    return (centres[labels] + spread * rng.standard_normal((count, width))).astype("f4"), labels


def scenes(seed=0, count=80, classes=5):
    """Images with one to three labels."""
    rng = np.random.default_rng(seed)
    labels = np.zeros((count, classes), np.uint8)
    for row in labels:
        row[rng.permutation(classes)[: rng.integers(1, 4)]] = 1
    return (labels @ rng.standard_normal((classes, 8)) + 0.2 * rng.random((count, 8))), labels


# The cut


def energy(couplings, fields, signs):
    total = 0
    for a in range(len(signs)):
        total += int(fields[a]) * int(signs[a])
        for b in range(a + 1, len(signs)):
            total += int(couplings[a, b]) * int(signs[a]) * int(signs[b])
    return total


def attractive(rng, nodes, largest):
    upper = np.triu(
        -rng.integers(0, largest, (nodes, nodes)) * (rng.random((nodes, nodes)) < 0.5), 1
    )
    return upper + upper.T, rng.integers(-2 * largest, 2 * largest + 1, nodes)


def minimize(couplings, fields):
    """Minimize for a symmetric matrix of couplings."""
    i, j = np.nonzero(np.triu(couplings))
    arcs, order = pair_arcs(i, j, len(fields))
    return minimize_attractive(arcs, np.tile(couplings[i, j], 2)[order], fields)


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_is_the_best_of_all_signs(seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 13))
    couplings, fields = attractive(rng, nodes, largest=6)
    signs = minimize(couplings, fields)
    everything = np.array(list(product([-1, 1], repeat=nodes)))
    energies = np.einsum("sa,ab,sb->s", everything, couplings, everything) // 2
    energies += everything @ fields
    assert energy(couplings, fields, signs) == energies.min()
    best = everything[energies == energies.min()]
    assert np.sum(signs == -1) == np.sum(best == -1, axis=1).max()


def test_total_cut_can_exceed_32_bits():
    rng = np.random.default_rng(5)
    couplings, fields = attractive(rng, nodes=9, largest=2**40)
    found = energy(couplings, fields, minimize(couplings, fields))
    assert found == min(energy(couplings, fields, s) for s in product([-1, 1], repeat=9))


def flow_signs(couplings, fields):
    """The same minimum by the maximum flow of SciPy."""
    couplings, count = sp.coo_array(couplings), len(fields)
    up, down = np.flatnonzero(fields < 0), np.flatnonzero(fields > 0)
    tails = np.concatenate([couplings.row, np.full(len(up), count), down])
    heads = np.concatenate([couplings.col, up, np.full(len(down), count + 1)])
    capacities = np.abs(np.concatenate([couplings.data, fields[up], fields[down]]))
    shape = (count + 2, count + 2)
    graph = sp.csr_array((capacities.astype(np.int32), (tails, heads)), shape=shape)
    residual = sp.csr_array(graph - maximum_flow(graph, count, count + 1).flow)
    residual.eliminate_zeros()
    signs = np.full(count + 2, -1, np.int8)
    signs[breadth_first_order(residual, count, return_predecessors=False)] = 1
    return signs[:count]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("dense", [0.01, 0.2])
def test_a_large_cut_equals_a_maximum_flow(seed, dense):
    rng = np.random.default_rng(seed)
    couplings = -np.triu(rng.integers(1, 9, (300, 300)) * (rng.random((300, 300)) < dense), 1)
    couplings += couplings.T
    size = 2 * int(np.abs(couplings).sum(axis=1).mean())
    fields = rng.integers(-size, size + 1, 300)
    signs = minimize(couplings, fields)
    np.testing.assert_array_equal(signs, flow_signs(couplings, fields))
    assert len(set(signs)) == 2


def test_cut_refuses_positive_or_large_couplings():
    with pytest.raises(ValueError, match="couplings of a minimum cut must be <= 0"):
        minimize(np.array([[0, 1], [1, 0]]), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="less than"):
        minimize(np.zeros((2, 2), np.int64), np.array([2**61, 0]))


# Step 1


def pair_loss(distance, bits, similar, loss):
    """The losses in the notation of the paper."""
    if loss == "ksh":
        return ((1 if similar else -1) - (bits - 2 * distance) / bits) ** 2
    if loss == "bre":
        return ((0 if similar else 1) - distance / bits) ** 2
    return (distance / bits) ** 2 if similar else max(0.5 - distance / bits, 0) ** 2


@pytest.mark.parametrize(("loss", "factor"), [("hinge", 4), ("bre", 4), ("ksh", 1)])
@pytest.mark.parametrize("bits", [1, 2, 7, 128])
def test_weights_are_differences_of_losses(loss, factor, bits):
    for similar in (True, False):
        earlier = np.arange(bits)  # over the previous bits
        weights = pair_weights(earlier, np.full(bits, similar), bits, loss)
        expected = [
            pair_loss(d, bits, similar, loss) - pair_loss(d + 1, bits, similar, loss)
            for d in earlier
        ]
        np.testing.assert_allclose(weights / (factor * bits**2), expected, rtol=1e-9, atol=1e-15)
        assert np.all(weights < 0) if similar else np.all(weights >= 0)


def test_pairs_are_distinct_and_correct():
    _, labels = scenes()
    i, j, similar = distinct_pairs(labels, 10, np.random.default_rng(0))
    assert np.all(i < j)
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
    np.testing.assert_array_equal(similar, similarity(labels, labels)[i, j])
    assert 80 * 10 < len(i) <= 80 * 20


def test_blocks_of_single_labels_are_the_classes():
    _, labels = clusters(classes=4)
    rng = np.random.default_rng(0)
    blocks = compatible_blocks(labels, *distinct_pairs(labels, 5, rng), rng)
    assert sorted(map(tuple, blocks)) == sorted(
        tuple(np.flatnonzero(labels == label)) for label in range(4)
    )


def test_blocks_of_several_labels_partition_without_conflict():
    _, labels = scenes()
    rng = np.random.default_rng(0)
    i, j, similar = distinct_pairs(labels, 10, rng)
    blocks = compatible_blocks(labels, i, j, similar, rng)
    assert sorted(np.concatenate(blocks)) == list(range(len(labels)))
    block_of = np.empty(len(labels), int)
    for number, block in enumerate(blocks):
        block_of[block] = number
    assert np.all(similar[block_of[i] == block_of[j]])
    assert len(blocks) < len(labels) / 2


def graph_of(labels, per_image, bits, loss, rng):
    """Return a graph with random earlier bits, its blocks, and its pairs with their weights."""
    i, j, similar = distinct_pairs(labels, per_image, rng)
    blocks = compatible_blocks(labels, i, j, similar, rng)
    graph = Graph(i, j, similar, blocks)
    distances = np.zeros(len(i), np.int64)
    for bit in rng.random((bits - 1, len(labels))) < 0.5:
        graph.append(bit)
        distances += bit[i] != bit[j]
    graph.weigh(bits, loss)
    return graph, blocks, i, j, pair_weights(distances, similar, bits, loss)


@pytest.mark.parametrize("several", [False, True])
def test_energy_never_increases(several):
    _, labels = scenes() if several else clusters()
    rng = np.random.default_rng(3)
    graph, blocks, i, j, weights = graph_of(labels, 10, 6, "hinge", rng)
    graph.signs[:] = rng.choice(np.array([-1, 1], np.int8), len(labels))
    signs = np.empty_like(graph.signs)
    energies = []
    for b in [*range(len(blocks)), *range(len(blocks)), 0]:
        signs[np.concatenate(blocks)] = graph.signs
        energies.append(sum(weights * signs[i] * signs[j]))
        graph.update_block(b)
    assert np.all(np.diff(energies) <= 0)
    assert energies[-1] < energies[0]


def test_small_block_is_solved_exactly_among_fixed_others():
    _, labels = clusters(count=24)
    rng = np.random.default_rng(4)
    graph, blocks, i, j, weights = graph_of(labels, 6, 4, "bre", rng)
    graph.signs[:] = rng.choice(np.array([-1, 1], np.int8), 24)
    signs = np.empty_like(graph.signs)
    for b, block in enumerate(blocks):
        assert len(block) <= 12
        signs[np.concatenate(blocks)] = graph.signs
        best = np.inf
        for choice in product([-1, 1], repeat=len(block)):
            signs[block] = choice
            best = min(best, np.sum(weights * signs[i] * signs[j]))
        graph.update_block(b)
        signs[np.concatenate(blocks)] = graph.signs
        assert np.sum(weights * signs[i] * signs[j]) == best


@pytest.mark.parametrize("loss", ["hinge", "ksh"])
@pytest.mark.parametrize("several", [False, True])
def test_bits_and_image_weights_equal_those_of_dense_matrices(several, loss):
    _, labels = scenes(count=200) if several else clusters(count=200)
    graph, blocks, i, j, weights = graph_of(labels, 12, 7, loss, np.random.default_rng(6))
    dense = np.zeros((200, 200), np.int64)
    dense[i, j] = dense[j, i] = weights
    signs, rng = np.ones(200, np.int64), np.random.default_rng(1)
    for _ in range(2):
        for b in rng.permutation(len(blocks)):
            block = blocks[b]
            outside = np.setdiff1d(np.arange(200), block)
            fields = dense[np.ix_(block, outside)] @ signs[outside]
            signs[block] = flow_signs(dense[np.ix_(block, block)], fields)
    np.testing.assert_array_equal(graph.infer_bits(2, np.random.default_rng(1)), signs)
    np.testing.assert_array_equal(graph.image_weights(), np.abs(dense).sum(axis=1))
    assert several or len(set(signs)) == 2


def test_first_bit_gives_each_class_one_sign():
    _, labels = clusters(classes=4)
    rng = np.random.default_rng(0)
    graph = graph_of(labels, 20, 1, "hinge", rng)[0]
    signs = graph.infer_bits(2, rng)
    assert all(len(set(signs[labels == label])) == 1 for label in range(4))
    assert len(set(signs)) == 2


# Step 2


def boost(*given, **options):
    return _trees.boost(*given, **options)[0]


def plain_tree(levels, signed, candidates):
    """Grow one tree by histograms of all candidate features of each node."""
    nodes = len(candidates)
    features, thresholds = np.zeros(nodes, int), np.full(nodes, 255)
    samples = {0: np.arange(len(levels))}
    for node in range(nodes):
        here = signed[samples[node]]
        best, features[node] = abs(here.sum()) + 1e-12, candidates[node, 0]
        for feature in candidates[node]:
            histogram = np.bincount(levels[samples[node], feature], here, 256)
            gains = np.abs(2 * np.cumsum(histogram)[:255] - here.sum())
            if best < np.abs(here).sum() and gains.max() > best:
                best, features[node], thresholds[node] = gains.max(), feature, gains.argmax()
        left = levels[samples[node], features[node]] <= thresholds[node]
        samples[2 * node + 1], samples[2 * node + 2] = samples[node][left], samples[node][~left]
    return features, thresholds


@pytest.mark.parametrize("threads", [1, 3])
def test_a_tree_equals_that_of_plain_histograms(threads, monkeypatch):
    """The weights are multiples of a power of 2, so that sums in any order are equal."""
    monkeypatch.setattr(_trees, "thread_count", lambda: threads)
    monkeypatch.setattr(_trees, "_WORTH_THREADS", 100)
    rng = np.random.default_rng(4)
    levels = rng.integers(0, 256, (400, 30), np.uint8)
    targets = np.where((levels[:, 3] > 90) ^ (rng.random(400) < 0.3), 1, -1).astype(np.int8)
    importance = rng.integers(1, 8, 400).astype(float)
    importance[0] += 2048 - importance.sum()
    drawn = _trees._draw_features(30, 7, np.random.default_rng(2))
    grown = boost(
        levels.T.copy(), targets, importance, trees=1, depth=3, rng=np.random.default_rng(2)
    )
    weights = importance / 2048
    heavy = np.argsort(weights, kind="stable")
    heavy = np.sort(heavy[np.searchsorted(np.cumsum(weights[heavy]), 0.01) :])
    assert len(heavy) < 400
    features, thresholds = plain_tree(levels[heavy], (weights * targets)[heavy], drawn)
    np.testing.assert_array_equal(grown.features[0], features)
    np.testing.assert_array_equal(grown.thresholds[0], thresholds)


@pytest.mark.parametrize("spread", [0.0, 1.0, 40.0])
def test_trimming_drops_the_lightest_samples(spread):
    weights = np.exp(spread * np.random.default_rng(1).standard_normal(3000))
    weights /= weights.sum()
    order = np.argsort(weights, kind="stable")
    light = np.searchsorted(np.cumsum(weights[order]), 0.01)
    np.testing.assert_array_equal(_trees._heaviest(weights), np.sort(order[light:]))


def quantised(features):
    return to_levels(features, *level_range(features))


def test_levels_are_256_equal_bins():
    features = np.array([[0.0, 5.0], [0.5, 5.0], [1.0, 5.0]], np.float32)
    low, scale = level_range(features)
    assert to_levels(features, low, scale).tolist() == [[0, 0], [128, 0], [255, 0]]
    outside = np.array([[-3.0, 4.0], [7.0, 1e30]], np.float32)
    assert to_levels(outside, low, scale).tolist() == [[0, 0], [255, 0]]


def tree_output(levels, features, thresholds, votes):
    node = 0
    while node < len(features):
        node = 2 * node + (2 if levels[features[node]] > thresholds[node] else 1)
    return votes[node - len(features)]


def hard_targets(seed=0, count=150):
    """Targets that a single shallow tree cannot fit."""
    features = np.random.default_rng(seed).standard_normal((count, 5)).astype(np.float32)
    return features, np.where(np.sin(3 * features[:, 0]) * features[:, 1] > 0, 1, -1).astype("i1")


def test_exponential_loss_decreases_each_round():
    features, targets = hard_targets()
    levels = quantised(features)
    importance = np.random.default_rng(1).random(len(levels)) + 0.1
    trees = boost(
        levels.T.copy(), targets, importance, trees=30, depth=2, rng=np.random.default_rng(2)
    )
    margins = np.zeros(len(levels))
    losses = [importance.sum()]
    for t in range(30):
        parts = [part[t] for part in trees]
        margins += [tree_output(row, *parts) for row in levels]
        losses.append((importance * np.exp(-targets * margins)).sum())
    assert np.all(np.diff(losses) < 0)
    assert losses[-1] < 0.5 * losses[0]


def test_vote_of_a_tree_is_half_the_log_odds_of_being_right():
    features, targets = hard_targets()
    levels = quantised(features)
    importance = np.random.default_rng(1).random(len(levels))
    trees = boost(
        levels.T.copy(), targets, importance, trees=1, depth=1, rng=np.random.default_rng(2)
    )
    votes = np.array([tree_output(row, *(part[0] for part in trees)) for row in levels])
    right = importance[np.sign(votes) == targets].sum()
    assert abs(votes[0]) == pytest.approx(0.5 * np.log(right / (importance.sum() - right)))


def test_a_stump_is_the_best_of_all_stumps():
    features, targets = hard_targets(count=60)
    levels = quantised(features)
    # With equal weights and few samples, trimming drops no sample; compare all stumps.
    trees = boost(
        levels.T.copy(), targets, np.ones(60), trees=1, depth=1, rng=np.random.default_rng(2)
    )
    outputs = vote(levels, stack([trees]))[:, 0]
    errors = [
        min(np.sum(side * targets < 0), np.sum(side * targets > 0))
        for feature in range(5)
        for threshold in range(256)
        for side in [np.where(levels[:, feature] > threshold, 1, -1)]
    ]
    assert np.sum(outputs * targets < 0) == min(errors)


def test_boosting_returns_the_outputs_of_its_trees():
    features, targets = hard_targets()
    levels = quantised(features)
    trees, outputs = _trees.boost(
        levels.T.copy(), targets, np.ones(150), trees=9, depth=3, rng=np.random.default_rng(2)
    )
    np.testing.assert_array_equal(outputs, vote(levels, stack([trees]))[:, 0])


def test_votes_add_up_tree_by_tree():
    features, targets = hard_targets(count=40)
    levels = quantised(features)
    rng = np.random.default_rng(2)
    both = [
        boost(levels.T.copy(), sign * targets, np.ones(40), trees=4, depth=3, rng=rng)
        for sign in (1, -1)
    ]
    outputs = vote(levels, stack(both))
    for k, trees in enumerate(both):
        for row in range(40):
            expected = sum(tree_output(levels[row], *(part[t] for part in trees)) for t in range(4))
            assert outputs[row, k] == pytest.approx(expected, abs=1e-5)


def test_separable_targets_are_reproduced():
    features, labels = clusters(classes=2, spread=0.05)
    targets = np.where(labels == 0, -1, 1).astype(np.int8)
    levels = quantised(features)
    trees = boost(
        levels.T.copy(), targets, np.ones(120), trees=10, depth=2, rng=np.random.default_rng(0)
    )
    np.testing.assert_array_equal(np.sign(vote(levels, stack([trees]))[:, 0]), targets)


def test_constant_targets_give_constant_outputs():
    features, _ = clusters()
    columns = quantised(features).T.copy()
    anything = np.random.default_rng(1).integers(0, 256, (500, 6)).astype(np.uint8)
    for sign in (-1, 1):
        targets = np.full(120, sign, np.int8)
        trees = boost(
            columns, targets, np.zeros(120), trees=3, depth=2, rng=np.random.default_rng(0)
        )
        assert set(np.sign(vote(anything, stack([trees]))).ravel()) == {sign}


def test_trees_beyond_the_features_are_refused():
    trees = Trees(
        np.array([[[7]]], np.int32), np.zeros((1, 1, 1), np.uint8), np.zeros((1, 1, 2), np.float32)
    )
    trees.check(8)
    with pytest.raises(ValueError, match="invalid decision trees for 7 features"):
        trees.check(7)
    with pytest.raises(ValueError, match="invalid decision trees"):
        trees._replace(votes=np.zeros((1, 1, 1), np.float32)).check(8)
    with pytest.raises(ValueError, match="invalid decision trees"):
        trees._replace(thresholds=np.zeros((1, 1, 1), np.float32)).check(8)


# The method


def small(bits, **options):
    return FastH(bits, **{"trees": 10, "depth": 2, "pairs": 10} | options)


def gap(codes, labels):
    """Return mean distance of dissimilar images minus that of similar ones, in bits."""
    distances, same = codes.hamming(codes), similarity(labels, labels)
    return distances[~same].mean() - distances[same].mean()


@pytest.mark.parametrize("loss", ["hinge", "ksh", "bre"])
def test_similar_images_are_near(loss):
    features, labels = clusters(spread=0.3)
    codes = small(16, loss=loss).fit(features[:80], labels[:80]).encode(features[80:])
    assert gap(codes, labels[80:]) > 4


def test_images_with_several_labels():
    features, labels = scenes()
    codes = small(16).fit(features, labels).encode(features)
    assert gap(codes, labels) > 2


def test_ksh_and_bre_losses_learn_the_same_codes():
    features, labels = clusters()
    ksh, bre = (small(6, loss=loss).fit(features, labels) for loss in ("ksh", "bre"))
    assert ksh.encode(features) == bre.encode(features)


def test_longer_codes_begin_with_shorter_ones():
    features, labels = clusters()
    short, long = (small(bits).fit(features, labels).encode(features) for bits in (5, 9))
    np.testing.assert_array_equal(short.signs(), long.signs()[:, :5])


def test_seed_decides_and_threads_do_not():
    features, labels = clusters(count=600)
    first = small(6, seed=1).fit(features, labels).encode(features)
    torch.set_num_threads(2)
    assert small(6, seed=1).fit(features, labels).encode(features) == first
    assert small(6, seed=2).fit(features, labels).encode(features) != first


@pytest.mark.parametrize("bits", [1, 128])
def test_few_or_constant_or_repeated_rows(bits):
    labels = np.array([0, 0, 1, 1])
    constant = np.ones((4, 3))
    alike = small(bits, trees=3).fit(constant, labels).encode(constant)
    assert alike.hamming(alike).max() == 0
    repeated = np.repeat([[0.0], [1.0]], 2, axis=0)
    signs = small(bits, trees=3).fit(repeated, labels).encode(repeated).signs()
    assert np.array_equal(signs[0], signs[1])
    assert not np.array_equal(signs[0], signs[2])


def test_no_rows_give_no_codes():
    features, labels = clusters()
    assert len(small(3).fit(features, labels).encode(features[:0])) == 0


@pytest.mark.parametrize(
    "options", [{"pairs": 0}, {"passes": 0}, {"trees": 0}, {"depth": 17}, {"loss": "l2"}]
)
def test_bad_options_are_named(options):
    features, labels = clusters()
    with pytest.raises(ValueError, match=next(iter(options))):
        small(3, **options).fit(features, labels)


def test_saved_arrays_give_the_same_codes():
    features, labels = clusters()
    hasher = small(9).fit(features, labels)
    again = small(9)
    again._restore(*hasher._export())
    assert again.encode(features) == hasher.encode(features)
