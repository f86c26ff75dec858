"""DSPRH against plain loops."""

import math

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import CLASSES, ONE, OVERFITTING, SEVERAL, both_kinds

from bitprint.methods.dsprh import DSPRH, TwoStreams
from bitprint.training.plan import Training

BITS = 5


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS + CLASSES, scale=scale)


def ranking_by_loops(activations, labels, margin):
    similar = dsdh_reference.share_a_label(labels)
    hinges = []
    for q, p, n in np.ndindex((len(labels),) * 3):
        if len({q, p, n}) == 3 and similar[q, p] and not similar[q, n]:
            near = ((activations[q] - activations[p]) ** 2).sum()
            far = ((activations[q] - activations[n]) ** 2).sum()
            hinges.append(max(0.0, margin + near - far))
    return sum(hinges) / len(hinges)


def orthogonality_by_loops(activations):
    signs = 2 * activations - 1
    total = 0.0
    for k, m in np.ndindex(BITS, BITS):
        product = sum(signs[i, k] * signs[i, m] for i in range(len(signs))) / len(signs)
        total += (product - (k == m)) ** 2
    return total / 2


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_by_loops(labels, batch_size):
    outputs = outputs_for(labels, scale=2.0)
    hasher = DSPRH(BITS, margin=0.7, orthogonality=0.3, classification=0.5)
    activations = reference.sigmoid(outputs[:, :BITS])
    expected = {
        "ranking": ranking_by_loops(activations, labels, 0.7) * 7 / batch_size,
        "orthogonality": 0.3 * orthogonality_by_loops(activations) * 7 / batch_size,
        "classification": 0.5 * reference.cross_entropy(outputs[:, BITS:], labels) / batch_size,
    }
    found = reference.parts_of(hasher, outputs, labels, batch_size)
    assert found == pytest.approx(expected, rel=1e-12)
    assert min(expected.values()) > 0


@both_kinds
def test_gradient_by_finite_differences(labels):
    hasher = DSPRH(BITS, orthogonality=0.3)
    reference.check_gradient(hasher, outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(DSPRH(BITS), outputs_for(labels), labels)


def test_loss_of_binary_codes_is_hamming_distance():
    """Codes 000, 001, 011, and classes 0, 0, 1: both hinges by hand."""
    codes = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1]])
    outputs = np.concatenate([180.0 * codes - 90, np.zeros((3, 2))], axis=1)
    parts = reference.parts_of(DSPRH(3), outputs, np.array([0, 0, 1]), batch_size=3)
    from_the_first = max(0, 1 + 1 - 2)
    from_the_second = max(0, 1 + 1 - 1)
    assert parts["ranking"] == pytest.approx((from_the_first + from_the_second) / 2)


def test_uncorrelated_binary_codes_are_orthogonal():
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    outputs = np.concatenate([90.0 * signs, np.zeros((4, 2))], axis=1)
    labels = np.array([0, 0, 1, 1])
    assert reference.parts_of(DSPRH(2), outputs, labels, 4)["orthogonality"] == pytest.approx(0)
    outputs[:, 1] = outputs[:, 0]
    parts = reference.parts_of(DSPRH(2, orthogonality=1.0), outputs, labels, 4)
    assert parts["orthogonality"] == pytest.approx(1)


@pytest.mark.parametrize("features", [5, 12, 13, 17])
def test_each_bit_depends_on_its_bag_only(features):
    """Bags are contiguous, cover all features, and differ in size by at most one."""
    torch.manual_seed(0)
    head = TwoStreams(features, BITS, CLASSES)
    head.bias.data = torch.arange(1.0, BITS + 1)
    inputs = torch.randn(1, features, requires_grad=True)
    products = (inputs[0] * head.weight).tolist()
    bags = []
    for bit in range(BITS):
        (gradient,) = torch.autograd.grad(head(inputs)[0, bit], inputs)
        bags.append(gradient[0].nonzero()[:, 0].tolist())
        by_hand = sum(products[feature] for feature in bags[-1]) + bit + 1
        assert head(inputs)[0, bit].item() == pytest.approx(by_hand, rel=1e-4, abs=1e-6)
    assert [feature for bag in bags for feature in bag] == list(range(features))
    sizes = [len(bag) for bag in bags]
    assert max(sizes) - min(sizes) <= 1


def test_classifier_uses_every_feature():
    torch.manual_seed(0)
    head = TwoStreams(12, BITS, CLASSES)
    inputs = torch.randn(3, 12)
    expected = inputs @ head.classifier.weight.t() + head.classifier.bias
    torch.testing.assert_close(head(inputs)[:, BITS:], expected)


def test_more_bits_than_features_are_refused():
    with pytest.raises(ValueError, match="513 bits need a backbone with at least 513 features"):
        DSPRH(513, backbone="mlp").fit(np.eye(4), [0, 0, 1, 1])


@pytest.mark.parametrize(
    "labels", [np.array([2]), np.array([2, 2, 2]), np.array([0, 1, 2]), SEVERAL[[6, 6, 6]]]
)
def test_a_batch_without_a_triplet(labels):
    outputs = outputs_for(labels)
    parts = reference.parts_of(DSPRH(BITS), outputs, labels)
    assert parts["ranking"] == 0
    assert all(map(math.isfinite, parts.values()))
    hasher = DSPRH(BITS, orthogonality=0.0, classification=0.0)
    np.testing.assert_array_equal(reference.gradient_of(hasher, outputs, labels), 0)


def test_saturated_outputs_have_a_finite_gradient():
    gradient = reference.gradient_of(DSPRH(BITS), outputs_for(ONE, scale=300.0), ONE)
    assert np.isfinite(gradient).all()


def test_overfits_noise():
    assert reference.training_map_of_noise(DSPRH(12, training=OVERFITTING)) > 0.95


def test_each_stream_can_learn_by_itself():
    """With weight zero for one stream, the loss of the other stream decreases."""
    data, labels = np.random.default_rng(0).standard_normal((40, 16)), np.arange(40) % 4
    training = Training(epochs=20, batch_size=20, optimizer="adamw", lr=3e-3, schedule="constant")
    ranks = DSPRH(12, classification=0.0, training=training).fit(data, labels).history_
    assert ranks[-1]["ranking"] < 0.5 * ranks[0]["ranking"]
    classifies = DSPRH(12, margin=0.0, orthogonality=0.0, training=training).fit(data, labels)
    history = classifies.history_
    assert history[-1]["classification"] < 0.5 * history[0]["classification"]


def test_a_saved_model_gives_the_same_codes(tmp_path, monkeypatch):
    hasher = DSPRH(12, training=Training(epochs=3, lr=0.1, batch_size=8))
    reference.check_saved(hasher, tmp_path, monkeypatch)


@pytest.mark.parametrize("weight", ["margin", "orthogonality", "classification"])
def test_negative_weights_are_refused(weight):
    with pytest.raises(ValueError, match=f"{weight} must be a number >= 0"):
        DSPRH(4, **{weight: -1.0}).fit(np.eye(4), [0, 0, 1, 1])
