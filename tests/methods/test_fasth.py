from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bitprint.methods._cut import minimize_attractive
from bitprint.methods._trees import Trees, boost, level_range, stack, to_levels, vote
from bitprint.methods.fasth import (
    FastH,
    compatible_blocks,
    distinct_pairs,
    image_weights,
    infer_bits,
    pair_weights,
    update_block,
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


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_is_the_best_of_all_signs(seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(1, 13))
    couplings, fields = attractive(rng, nodes, largest=6)
    found = energy(couplings, fields, minimize_attractive(sp.csr_array(couplings), fields))
    everything = np.array(list(product([-1, 1], repeat=nodes)))
    pairs = np.einsum("sa,ab,sb->s", everything, couplings, everything) // 2
    assert found == (pairs + everything @ fields).min()


def test_total_cut_can_exceed_32_bits():
    rng = np.random.default_rng(5)
    couplings, fields = attractive(rng, nodes=9, largest=2**27)
    assert 2 * np.abs(couplings).sum() > 2**31
    found = energy(couplings, fields, minimize_attractive(sp.csr_array(couplings), fields))
    assert found == min(energy(couplings, fields, s) for s in product([-1, 1], repeat=9))


def test_cut_refuses_positive_or_large_couplings():
    with pytest.raises(ValueError, match="couplings of a minimum cut must be <= 0"):
        minimize_attractive(sp.csr_array(np.array([[0, 1], [1, 0]])), np.zeros(2, np.int64))
    with pytest.raises(ValueError, match="below"):
        minimize_attractive(sp.csr_array((2, 2), dtype=np.int64), np.array([2**29, 0]))


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


@pytest.mark.parametrize("several", [False, True])
def test_energy_never_increases(several):
    _, labels = scenes() if several else clusters()
    rng = np.random.default_rng(3)
    i, j, similar = distinct_pairs(labels, 10, rng)
    blocks = compatible_blocks(labels, i, j, similar, rng)
    weights = pair_weights(rng.integers(0, 5, len(i)), similar, 6, "hinge")
    dense = np.zeros((len(labels), len(labels)), np.int64)
    dense[i, j] = dense[j, i] = weights
    signs = rng.choice(np.array([-1, 1], np.int8), len(labels))
    energies = []
    for _ in range(2):
        for block in blocks:
            energies.append(sum(weights * signs[i] * signs[j]))
            update_block(sp.csr_array(dense), block, signs)
    energies.append(sum(weights * signs[i] * signs[j]))
    assert np.all(np.diff(energies) <= 0)
    assert energies[-1] < energies[0]


def test_small_block_is_solved_exactly_among_fixed_others():
    _, labels = clusters(count=24)
    rng = np.random.default_rng(4)
    i, j, similar = distinct_pairs(labels, 6, rng)
    weights = pair_weights(rng.integers(0, 3, len(i)), similar, 4, "bre")
    dense = np.zeros((24, 24), np.int64)
    dense[i, j] = dense[j, i] = weights
    signs = rng.choice(np.array([-1, 1], np.int8), 24)
    block = np.flatnonzero(labels == 0)
    assert len(block) <= 12
    best = np.inf
    for choice in product([-1, 1], repeat=len(block)):
        trial = signs.copy()
        trial[block] = choice
        best = min(best, np.sum(weights * trial[i] * trial[j]))
    update_block(sp.csr_array(dense), block, signs)
    assert np.sum(weights * signs[i] * signs[j]) == best


def test_first_bit_gives_each_class_one_sign():
    _, labels = clusters(classes=4)
    rng = np.random.default_rng(0)
    i, j, similar = distinct_pairs(labels, 20, rng)
    blocks = compatible_blocks(labels, i, j, similar, rng)
    weights = pair_weights(np.zeros(len(i), np.int64), similar, 1, "hinge")
    signs = infer_bits(i, j, weights, blocks, 2, rng)
    assert all(len(set(signs[labels == label])) == 1 for label in range(4))
    assert len(set(signs)) == 2


def test_image_weights_sum_both_ends_of_a_pair():
    i, j, weights = np.array([0, 0, 1]), np.array([1, 2, 2]), np.array([-1, 5, 7])
    assert image_weights(i, j, weights, 4).tolist() == [6, 8, 12, 0]


# Step 2


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
