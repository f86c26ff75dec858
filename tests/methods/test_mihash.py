"""MIHash: mutual information by its definition."""

import math

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import ONE, both_kinds

import bitprint as bp
from bitprint.methods.mihash import MIHash, mutual_information
from bitprint.training.soft_histograms import soft_histograms

BITS = 5


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS, scale=scale)


def information(joint):
    """Return sum p(d, c) log2 p(d, c) / (p(d) p(c)) for counts (distances, 2)."""
    joint = joint / max(joint.sum(), 1)
    total = 0.0
    for d in range(joint.shape[0]):
        for c in range(2):
            if joint[d, c] > 0:
                expected = joint[d].sum() * joint[:, c].sum()
                total += joint[d, c] * math.log2(joint[d, c] / expected)
    return total


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_of_codes_is_the_mutual_information(labels, batch_size):
    """Histograms are counted: Hamming distance and similarity of the other images."""
    outputs = outputs_for(labels, scale=1e6)
    s, total = dsdh_reference.share_a_label(labels), 0.0
    for i in range(7):
        joint = np.zeros((BITS + 1, 2))
        for j in range(7):
            if j != i:
                distance = int(((outputs[i] > 0) != (outputs[j] > 0)).sum())
                joint[distance, int(s[i, j])] += 1
        total += information(joint)
    found = reference.parts_of(MIHash(BITS), outputs, labels, batch_size)
    assert total > 1
    assert found == pytest.approx({"information": -total / batch_size}, rel=1e-9)


@both_kinds
@pytest.mark.parametrize("bins", [None, 2])
def test_loss_of_outputs_is_that_of_soft_histograms(labels, bins):
    outputs = outputs_for(labels)
    similar = torch.tensor(dsdh_reference.share_a_label(labels) > 0)
    pair = soft_histograms(torch.tensor(outputs), similar, bins)
    joints = np.stack([each.numpy() for each in pair], axis=2)
    total = sum(information(joint) for joint in joints)
    found = reference.parts_of(MIHash(BITS, bins=bins), outputs, labels)
    assert found == pytest.approx({"information": -total / 7}, rel=1e-9)


@both_kinds
@pytest.mark.parametrize("bins", [None, 3])
def test_gradient_matches_finite_differences(labels, bins):
    reference.check_gradient(MIHash(BITS, bins=bins), outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(MIHash(BITS), outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(MIHash(bits), bits)


def test_batch_of_one_class_has_no_information():
    outputs = reference.random_outputs(4, BITS)
    assert reference.parts_of(MIHash(BITS), outputs, np.ones(4, int))["information"] == 0


def test_information_is_highest_for_separate_distances():
    """The entropy of similarity: 2 of 6 images are similar."""
    similar = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 2.0], [1.0, 1.0, 0.0]])
    dissimilar = torch.tensor([[0.0, 3.0, 1.0], [3.0, 1.0, 0.0], [2.0, 2.0, 0.0]])
    most = -(math.log2(1 / 3) / 3 + 2 * math.log2(2 / 3) / 3)
    found = mutual_information(similar, dissimilar).tolist()
    assert found == pytest.approx([most, most, 0], abs=1e-6)


def test_training_reaches_the_highest_information():
    """On noise in four classes of ten; batches contain all 40 images."""
    data, labels = np.random.default_rng(0).standard_normal((40, 64)), np.repeat(np.arange(4), 10)
    options = {"optimizer": "adamw", "schedule": "cosine", "lr": 2e-3}
    training = bp.Training(epochs=100, batch_size=40, **options)
    hasher = MIHash(12, training=training, backbone="mlp").fit(data, labels)
    share = 9 / 39
    most = -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    assert hasher.history_[0]["information"] > -0.2
    assert hasher.history_[-1]["information"] == pytest.approx(-most, abs=0.02)


@pytest.mark.parametrize(
    ("bins", "message"),
    [(0, "bins must be an integer >= 1"), (5, "bins must be at most the number of bits, 4, got 5")],
)
def test_invalid_bins_are_refused(bins, message):
    reference.check_refused(MIHash(4, bins=bins), message)


def test_matching_codes_have_more_information():
    right = np.where(np.eye(3)[ONE] @ np.random.default_rng(0).normal(size=(3, BITS)) > 0, 9.0, -9)
    wrong = right[[1, 0, 3, 2, 5, 4, 6]]
    losses = [reference.parts_of(MIHash(BITS), each, ONE)["information"] for each in (right, wrong)]
    assert losses[0] < losses[1] - 0.1
