"""DSRH: lists, NDCG weights and the hinge, against plain loops."""

import math

import numpy as np
import pytest
import torch
import triplet_cases as cases
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bitprint.methods.dsrh import DSRH, draw_lists, triplet_weights
from bitprint.supervision import shared_labels

both_kinds = pytest.mark.parametrize(
    "labels", [cases.ONE, cases.SEVERAL], ids=["one label", "several labels"]
)
ROWS = torch.arange(8)
# Each image shares two labels with one other image, one with another, none with the third.
ORDERED = np.array([[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 1, 1], [0, 0, 0, 1, 1, 1]])


def lists_of(labels, count, seed=0):
    labels = torch.from_numpy(labels)
    torch.manual_seed(seed)
    items, _, found = draw_lists(shared_labels(labels, labels), count)
    return items.tolist(), found.tolist()


def relevance_by_loops(labels, i, j):
    if labels.ndim == 1:
        return int(labels[i] == labels[j])
    return int(sum(a * b for a, b in zip(labels[i], labels[j], strict=True)))


def ranking_by_loops(outputs, labels, items, found, margin):
    """Mean over all triplets of all lists, from the definition."""
    hashed = 2 / (1 + np.exp(-outputs)) - 1
    bits = outputs.shape[1]
    terms = []
    for q in range(len(labels)):
        for images, there in zip(items[q], found[q], strict=True):
            present = [i for i, is_there in zip(images, there, strict=True) if is_there]
            r = {i: relevance_by_loops(labels, q, i) for i in present}
            ideal = sum((2 ** r[i] - 1) / math.log(rank + 2) for rank, i in enumerate(present))
            for first, i in enumerate(present):
                for j in present[first + 1 :]:
                    near = (bits - hashed[q] @ hashed[i]) / 2
                    far = (bits - hashed[q] @ hashed[j]) / 2
                    weight = (2 ** r[i] - 2 ** r[j]) / ideal if ideal else 0
                    terms.append(weight * max(0.0, near - far + margin))
    return sum(terms) / len(terms)


# ---- lists


@given(
    labels=arrays.arrays(
        np.float32,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.sampled_from([0.0, 1.0]),
    ),
    seed=st.integers(0, 100),
)
def test_lists_have_the_stated_relevance(labels, seed):
    items, found = lists_of(labels, 3, seed)
    count = len(labels)
    for q in range(count):
        others = {i: relevance_by_loops(labels, q, i) for i in range(count) if i != q}
        highest = max(others.values(), default=0)
        kinds = [
            {i for i, r in others.items() if r == highest > 0},
            {i for i, r in others.items() if 0 < r < highest},
            {i for i, r in others.items() if r == 0},
        ]
        for images, there in zip(items[q], found[q], strict=True):
            assert there == [bool(kind) for kind in kinds]
            for image, kind in zip(images, kinds, strict=True):
                assert not kind or image in kind


def test_relevance_of_lists_is_that_of_their_images():
    labels = torch.from_numpy(cases.SEVERAL)
    relevance = shared_labels(labels, labels)
    items, found_relevance, found = draw_lists(relevance, 5)
    for index in np.ndindex(*items.shape):
        expected = relevance[index[0], items[index]] if found[index] else 0
        assert found_relevance[index] == expected


# ---- weights


def test_weights_by_hand():
    weights = triplet_weights(torch.tensor([3.0, 1, 0]).double(), torch.tensor([True] * 3))
    ideal = 7 / math.log(2) + 1 / math.log(3)
    expected = torch.tensor([6 / ideal, 7 / ideal, 1 / ideal]).double()
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("highest", [1.0, 2.0, 5.0])
def test_without_a_second_image_the_weight_is_ln_2(highest):
    found = torch.tensor([True, False, True])
    weights = triplet_weights(torch.tensor([highest, 0, 0]).double(), found)
    assert weights[1].item() == pytest.approx(math.log(2), rel=1e-12)


def test_weights_of_very_many_labels_are_finite():
    weights = triplet_weights(torch.tensor([400.0, 398, 0]), torch.tensor([True] * 3))
    ideal = 1 / math.log(2) + 0.25 / math.log(3)
    expected = torch.tensor([0.75 / ideal, 1 / ideal, 0.25 / ideal])
    torch.testing.assert_close(weights, expected)


# ---- the loss


@both_kinds
def test_loss_by_loops(labels):
    outputs = cases.random_outputs(8, 5)
    hasher = DSRH(5, margin=1.5, balance=0.6, lists=4)
    torch.manual_seed(0)
    parts = hasher.loss(outputs, ROWS, cases.make_state(labels))
    items, found = lists_of(labels, 4)
    expected = ranking_by_loops(outputs.numpy(), labels, items, found, 1.5)
    # Labels and weights are float32.
    assert parts["ranking"].item() == pytest.approx(expected, rel=1e-6)
    means = (2 / (1 + np.exp(-outputs.numpy())) - 1).mean(axis=0)
    assert parts["balance"].item() == pytest.approx(0.3 * sum(means**2), rel=1e-12)


def test_one_label_is_the_plain_hinge_times_ln_2():
    outputs = cases.random_outputs(8, 5)
    torch.manual_seed(0)
    found = DSRH(5, lists=3).loss(outputs, ROWS, cases.make_state(cases.ONE))["ranking"]
    hashed = torch.tanh(outputs / 2).numpy()
    items, there = lists_of(cases.ONE, 3)
    terms = []
    for q, lists in enumerate(items):
        assert all(kinds == [True, False, True] for kinds in there[q])
        terms += [max(0.0, (hashed[q] @ (hashed[n] - hashed[p])) / 2 + 5) for p, _, n in lists]
    expected = math.log(2) * sum(terms) / len(terms)
    assert found.item() == pytest.approx(expected, rel=1e-6)


@both_kinds
def test_gradient_by_finite_differences(labels):
    hasher, state = DSRH(4, margin=0.5, lists=6), cases.make_state(labels)
    outputs = cases.random_outputs(8, 4)
    found, expected = cases.gradient_and_differences(hasher, state, ROWS, outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert np.abs(found).max() > 1e-3


def test_codes_beyond_the_margin_have_zero_loss():
    signs = torch.tensor([[1.0] * 12, [1.0] * 12, [-1.0] * 12, [-1.0] * 12])
    state = cases.make_state(np.array([0, 0, 1, 1]), batch_size=4)
    rows = torch.arange(4)
    assert DSRH(12, margin=11.0).loss(40 * signs, rows, state)["ranking"] == 0
    costs = DSRH(12, margin=13.0).loss(40 * signs, rows, state)["ranking"].item()
    assert costs == pytest.approx(math.log(2), rel=1e-5)
    assert DSRH(12).loss(40 * signs, rows, state)["balance"] == 0
    assert DSRH(12).loss(40 * signs.abs(), rows, state)["balance"] == 12 / 2


def test_the_order_of_the_batch_does_not_matter():
    """Only with one list per query, because the random draws differ otherwise."""
    outputs, order = cases.random_outputs(4, 5), torch.tensor([2, 0, 3, 1])
    state = cases.make_state(ORDERED)
    first = DSRH(5).loss(outputs, torch.arange(4), state)
    torch.testing.assert_close(DSRH(5).loss(outputs[order], order, state), first)


def test_a_part_of_a_batch_counts_as_a_part():
    outputs = cases.random_outputs(8, 5)
    losses = []
    for size in (8, 32):
        torch.manual_seed(0)
        losses.append(sum(DSRH(5).loss(outputs, ROWS, cases.make_state(cases.ONE, size)).values()))
    torch.testing.assert_close(losses[1], losses[0] / 4)


@pytest.mark.parametrize("labels", [[0], [1, 1, 1], [0, 1, 2], [[0, 0], [0, 0]]])
def test_no_triplets_have_no_effect(labels):
    cases.assert_nothing_to_rank(DSRH(4), labels)


# ---- training


@pytest.mark.parametrize("features", [64, 8192])
def test_first_outputs_are_as_large_as_the_features(features):
    torch.manual_seed(0)
    head, inputs = DSRH(64).make_head(features, 10), torch.randn(200, features)
    assert 0.8 < head(inputs).std().item() < 1.2
    assert torch.count_nonzero(head.bias) == 0


def test_overfits_noise_and_saves(tmp_path, monkeypatch):
    hasher = DSRH(12, training=cases.recipe())
    assert cases.training_map(hasher) > 0.95
    cases.assert_saving_keeps_the_codes(hasher, cases.ITEMS, tmp_path, monkeypatch)


def test_more_shared_labels_are_nearer():
    """Classes of two labels; each shares one label with two others, none with the third."""
    labels = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]])[cases.CLASSES]
    hasher = DSRH(12, training=cases.recipe(batch_size=20)).fit(cases.ITEMS, labels)
    signs = hasher.encode(cases.ITEMS).signs().astype(int)
    distances, relevance = (12 - signs @ signs.T) / 2, labels @ labels.T
    means = [distances[relevance == r].mean() for r in (2, 1, 0)]
    assert means[0] + 2 < means[1] < means[2] - 2


def test_draws_of_a_run_are_those_of_its_seed():
    outputs = [
        DSRH(6, seed=seed, training=cases.recipe(epochs=2))
        .fit(cases.ITEMS, cases.CLASSES)
        .project(cases.ITEMS)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0}, "margin must be a number > 0"),
        ({"balance": -1.0}, "balance must be a number >= 0"),
        ({"lists": 0}, "lists must be an integer"),
        ({"lists": 1.5}, "lists must be an integer"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        DSRH(4, **options).fit(cases.ITEMS, cases.CLASSES)
