"""NINH: divide-and-encode, the threshold and the hinge, against plain loops."""

import dsdh_reference as reference
import numpy as np
import pytest
import torch
import triplet_cases as cases
from hypothesis import given
from hypothesis import strategies as st

from bitprint.methods.ninh import NINH, DivideAndEncode, threshold
from bitprint.training.plan import Training

both_kinds = pytest.mark.parametrize(
    "labels", [cases.ONE, cases.SEVERAL], ids=["one label", "several labels"]
)
ROWS = torch.arange(8)


def threshold_by_hand(share, epsilon):
    if share < 0.5 - epsilon:
        return 0.0
    return 1.0 if share > 0.5 + epsilon else share


def hinge_by_loops(codes, labels, margin):
    terms = []
    for q, p, n in cases.triplets_of(labels):
        near = sum((codes[q] - codes[p]) ** 2)
        far = sum((codes[q] - codes[n]) ** 2)
        terms.append(max(0.0, margin + near - far))
    return sum(terms) / len(terms)


def loss_of(hasher, outputs, labels, **options):
    return hasher.loss(outputs, ROWS, cases.make_state(labels, **options))["triplet"]


# ---- the loss


@both_kinds
@pytest.mark.parametrize("epsilon", [0.05, 0.2, 0.5])
def test_loss_by_loops(labels, epsilon):
    outputs = cases.random_outputs(8, 5)
    shares = 1 / (1 + np.exp(-outputs.numpy()))
    codes = np.vectorize(threshold_by_hand)(shares, epsilon)
    expected = hinge_by_loops(codes, labels, 0.7)
    found = loss_of(NINH(5, epsilon=epsilon, margin=0.7), outputs, labels)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@both_kinds
def test_between_binary_codes_the_margin_is_in_bits(labels):
    signs = np.random.default_rng(3).choice([-1.0, 1.0], (8, 6))
    distances = (signs[:, None] != signs[None]).sum(axis=2)
    terms = [max(0, 1 + distances[q, p] - distances[q, n]) for q, p, n in cases.triplets_of(labels)]
    found = loss_of(NINH(6), torch.tensor(30 * signs), labels)
    assert found.item() == pytest.approx(sum(terms) / len(terms), rel=1e-9)


@both_kinds
def test_gradient_without_a_threshold_by_finite_differences(labels):
    hasher, state = NINH(4, epsilon=0.5), cases.make_state(labels)
    found, expected = cases.gradient_and_differences(
        hasher, state, ROWS, cases.random_outputs(8, 4)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert np.abs(found).max() > 1e-3


@both_kinds
def test_the_gradient_passes_the_threshold(labels):
    """The gradient passes the threshold unchanged to the sigmoid."""
    outputs = cases.random_outputs(8, 4, seed=1).requires_grad_()
    loss_of(NINH(4, epsilon=0.1), outputs, labels).backward()
    shares = 1 / (1 + np.exp(-outputs.detach().numpy()))
    codes = np.vectorize(threshold_by_hand)(shares, 0.1)
    assert set(codes.flat) >= {0.0, 1.0}
    # A fractional margin avoids the kink of the hinge for integer distances.
    slope = reference.finite_differences(lambda c: hinge_by_loops(c, labels, 1.0 - 1e-3), codes)
    np.testing.assert_allclose(
        outputs.grad.numpy(), slope * shares * (1 - shares), rtol=1e-6, atol=1e-9
    )


@both_kinds
def test_the_order_of_the_batch_does_not_matter(labels):
    outputs, order = cases.random_outputs(8, 5), torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    state = cases.make_state(labels)
    first = NINH(5).loss(outputs, ROWS, state)["triplet"]
    second = NINH(5).loss(outputs[order], ROWS[order], state)["triplet"]
    torch.testing.assert_close(first, second)


def test_a_part_of_a_batch_counts_as_a_part():
    outputs = cases.random_outputs(8, 5)
    whole = loss_of(NINH(5), outputs, cases.ONE)
    torch.testing.assert_close(loss_of(NINH(5), outputs, cases.ONE, batch_size=32), whole / 4)


@pytest.mark.parametrize("labels", [[0], [1, 1, 1], [0, 1, 2], [[0, 0], [0, 0]]])
def test_no_triplets_have_no_effect(labels):
    cases.assert_nothing_to_rank(NINH(4), labels)


# ---- threshold and head


@given(share=st.floats(0, 1), epsilon=st.floats(0.01, 0.5))
def test_threshold_by_hand_and_twice(share, epsilon):
    values = torch.tensor([share], dtype=torch.float64)
    once = threshold(values, epsilon)
    # 1/2 - epsilon is rounded, so values at the bound can differ.
    if abs(abs(share - 0.5) - epsilon) > 1e-15:
        assert once.item() == pytest.approx(threshold_by_hand(share, epsilon), abs=1e-15)
    assert threshold(once, epsilon).item() == once.item()


def test_each_output_depends_on_its_piece_only():
    torch.manual_seed(0)
    head = DivideAndEncode(4, 3)
    for k in range(4):
        features = torch.randn(2, 12, requires_grad=True)
        head.zero_grad()
        head(features)[:, k].sum().backward()
        own = torch.zeros(12, dtype=torch.bool)
        own[3 * k : 3 * k + 3] = True
        assert torch.equal(features.grad[0] != 0, own)
        assert (head.weight.grad != 0).any(dim=1).tolist() == [j == k for j in range(4)]


def test_head_by_loops():
    torch.manual_seed(0)
    head = DivideAndEncode(3, 2)
    torch.nn.init.normal_(head.bias)
    features = torch.randn(5, 6)
    for row, outputs in zip(features.tolist(), head(features).tolist(), strict=True):
        for k in range(3):
            weights = head.weight[k].tolist()
            expected = weights[0] * row[2 * k] + weights[1] * row[2 * k + 1] + head.bias[k].item()
            assert outputs[k] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_features_of_another_number_are_made_fifty_for_each_bit():
    assert isinstance(NINH(12).make_head(600, 10), DivideAndEncode)
    head = NINH(12).make_head(512, 10)
    assert [tuple(p.shape) for p in head.parameters()] == [(600, 512), (600,), (12, 50), (12,)]
    assert head(torch.randn(2, 512)).shape == (2, 12)


# ---- training


def test_overfits_noise_and_saves(tmp_path, monkeypatch):
    hasher = NINH(12, training=cases.recipe())
    assert cases.training_map(hasher) > 0.95
    cases.assert_saving_keeps_the_codes(hasher, cases.ITEMS, tmp_path, monkeypatch)


def test_learns_several_labels():
    labels = np.eye(4, dtype=int)[cases.CLASSES] | np.eye(4, dtype=int)[cases.CLASSES[::-1]]
    assert cases.training_map(NINH(12, training=cases.recipe()), labels) > 0.95


def test_images_through_the_papers_network(tmp_path, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
    hasher = NINH(2, backbone="nin-small:100", training=Training(epochs=1, batch_size=6))
    hasher.fit(images, [0, 0, 0, 1, 1, 1])
    assert isinstance(hasher.net_.head, DivideAndEncode)
    cases.assert_saving_keeps_the_codes(hasher, images, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 0}, "margin must be a number > 0"),
        ({"epsilon": 0.0}, "epsilon must be a number > 0"),
        ({"epsilon": 0.6}, "epsilon must be at most 0.5"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        NINH(4, **options).fit(cases.ITEMS, cases.CLASSES)
