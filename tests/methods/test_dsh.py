"""DSH against plain loops."""

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
from batch_reference import ONE, both_kinds

from bitprint.methods.dsh import DSH

BITS = 5


def outputs_for(labels):
    return reference.random_outputs(len(labels), BITS)


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
@pytest.mark.parametrize("margin", [None, 4.0])
def test_loss_matches_plain_loops(labels, batch_size, margin):
    outputs = outputs_for(labels)
    found = reference.parts_of(DSH(BITS, margin=margin, alpha=0.3), outputs, labels, batch_size)
    s, pairs, quantisation = dsdh_reference.share_a_label(labels), 0.0, 0.0
    for i in range(7):
        for j in range(7):
            if i == j:
                continue
            distance = sum((outputs[i, k] - outputs[j, k]) ** 2 for k in range(BITS))
            short = max((2 * BITS if margin is None else margin) - distance, 0)
            pairs += (s[i, j] * distance + (1 - s[i, j]) * short) / 2
        quantisation += sum(abs(abs(value) - 1) for value in outputs[i])
    expected = {"pair": pairs / 6 / batch_size, "quantisation": 0.3 * quantisation / batch_size}
    assert found == pytest.approx(expected, rel=1e-12)


@both_kinds
def test_gradient_matches_finite_differences(labels):
    reference.check_gradient(DSH(BITS), outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(DSH(BITS), outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(DSH(bits), bits)


@pytest.mark.parametrize(("different", "loss"), [(1, 6.0), (2, 4.0), (4, 0.0), (5, 0.0), (8, 0.0)])
def test_dissimilar_codes_apart_by_the_margin_cost_nothing(different, loss):
    """With 8 bits the margin 16 is reached by four different bits, each of which adds 4."""
    codes = np.ones((2, 8))
    codes[1, :different] = -1
    labels = np.array([0, 1])
    parts = reference.parts_of(DSH(8), codes, labels, batch_size=2)
    assert parts == {"pair": loss, "quantisation": 0.0}
    moved = reference.gradient_of(DSH(8, alpha=0.0), codes, labels).any()
    assert moved == (different < 4)


def test_similar_codes_cost_two_for_each_different_bit():
    codes = np.ones((2, 8))
    codes[1, :3] = -1
    assert reference.parts_of(DSH(8), codes, np.array([1, 1]), batch_size=2)["pair"] == 6


@pytest.mark.parametrize("option", ["alpha", "margin"])
def test_negative_weights_are_refused(option):
    reference.check_refused(DSH(4, **{option: -1.0}), f"{option} must be a number >= 0")


def test_matching_codes_have_lower_loss():
    codes = np.where(np.eye(3)[ONE] @ np.random.default_rng(0).normal(size=(3, BITS)) > 0, 1.0, -1)
    wrong = codes[[1, 0, 3, 2, 5, 4, 6]]
    right, shuffled = (reference.parts_of(DSH(BITS), each, ONE)["pair"] for each in (codes, wrong))
    assert right < shuffled
