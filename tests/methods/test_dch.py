"""DCH against plain loops, and the shape of its loss."""

import math

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
from batch_reference import both_kinds

from bitprint.methods.dch import DCH
from bitprint.methods.hashnet import HashNet

BITS = 5


def outputs_for(labels):
    return reference.random_outputs(len(labels), BITS)


def distance(one, other):
    """Return K / 2 (1 - cosine), with 1e-6 added to 1 - cosine."""
    product = sum(a * b for a, b in zip(one, other, strict=True))
    norms = math.sqrt(sum(a * a for a in one)) * math.sqrt(sum(b * b for b in other))
    return len(one) / 2 * (1 - product / norms + 1e-6)


@both_kinds
@pytest.mark.parametrize(("gamma", "batch_size"), [(20.0, 7), (3.0, 9)])
def test_loss_matches_plain_loops(labels, gamma, batch_size):
    outputs = outputs_for(labels)
    hasher = DCH(BITS, gamma=gamma, quantisation=0.4)
    found = reference.parts_of(hasher, outputs, labels, batch_size)
    z, s, pairs, gaps = np.tanh(outputs), dsdh_reference.share_a_label(labels), 0.0, 0.0
    for i in range(7):
        for j in range(7):
            if i != j:
                d = distance(z[i], z[j])
                cauchy = s[i, j] * math.log(d / gamma) + math.log(1 + gamma / d)
                pairs += reference.pair_weight(labels, s, i, j) * cauchy
        gaps += math.log(1 + distance(abs(z[i]), [1] * BITS) / gamma)
    expected = {"pair": pairs / 6 / batch_size, "quantisation": 0.4 * gaps / batch_size}
    assert found == pytest.approx(expected, rel=1e-10)


@both_kinds
def test_gradient_matches_finite_differences(labels):
    reference.check_gradient(DCH(BITS, gamma=3.0), outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(DCH(BITS), outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(DCH(bits), bits)


def cost(hasher, different, *, similar):
    """Return the loss of a pair of codes that differ in some bits, relative to its weight."""
    codes = np.full((2, hasher.bits), 40.0)
    codes[1, :different] = -40
    labels = np.array([0, 0 if similar else 1])
    weight = 1 if similar else 2  # half of the pairs of two images are similar: each with itself
    return reference.parts_of(hasher, codes, labels, batch_size=2)["pair"] / weight


@pytest.mark.parametrize("different", [1, 3, 7, 12])
def test_probability_of_codes_is_cauchy(different):
    """gamma / (gamma + d), where d is the Hamming distance."""
    hasher = DCH(12, gamma=3.0)
    likely = 3 / (3 + different)
    assert cost(hasher, different, similar=True) == pytest.approx(-math.log(likely), rel=1e-5)
    assert cost(hasher, different, similar=False) == pytest.approx(-math.log(1 - likely), rel=1e-5)


def test_cauchy_loss_rises_within_the_radius():
    """From equal codes to codes at distance gamma, and twice as far.

    A sigmoid of the inner product is flat there: at K / 2 its probability is still 1/2.
    """
    cauchy, sigmoid = DCH(32, gamma=2.0), HashNet(32)
    at_zero, at_gamma, beyond = (cost(cauchy, d, similar=True) for d in (0, 2, 4))
    assert at_zero == pytest.approx(0, abs=1e-4)
    assert at_gamma == pytest.approx(math.log(2), rel=1e-4)
    assert at_gamma - at_zero > beyond - at_gamma > 0.4
    assert cost(sigmoid, 4, similar=True) < 0.001
    assert cost(sigmoid, 16, similar=True) == pytest.approx(math.log(2))


def test_quantization_loss_is_zero_at_codes_only():
    codes = np.array([[40.0, -40.0, 40.0], [0.3, -0.3, 0.3], [0.3, -0.3, 2.0]])
    labels = np.array([0, 1, 2])
    alone = [reference.parts_of(DCH(3), codes[[i]], labels[[i]])["quantisation"] for i in range(3)]
    assert alone[:2] == pytest.approx([0, 0], abs=1e-6)
    assert alone[2] > 1e-4


def test_gradient_of_one_bit_is_zero():
    gradient = reference.gradient_of(DCH(1), reference.random_outputs(4, 1), np.array([0, 0, 1, 1]))
    assert np.abs(gradient).max() < 1e-9


@pytest.mark.parametrize(("option", "bound"), [("gamma", ">"), ("quantisation", ">=")])
def test_negative_options_are_refused(option, bound):
    reference.check_refused(DCH(4, **{option: -1.0}), f"{option} must be a number {bound} 0")
