"""DHN against plain loops."""

import math

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import ONE, SEVERAL, both_kinds

from bitprint.methods.dhn import DHN
from bitprint.training.plan import Training

BITS = 5


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS, scale=scale)


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_by_loops(labels, batch_size):
    outputs = outputs_for(labels)
    parts = reference.parts_of(DHN(BITS, quantisation=0.4), outputs, labels, batch_size)
    z, s = np.tanh(outputs), dsdh_reference.share_a_label(labels)
    pairs = quantisation = 0.0
    for i in range(7):
        for j in range(7):
            product = sum(z[i, k] * z[j, k] for k in range(BITS))
            pairs += math.log(1 + math.exp(product)) - s[i, j] * product
        for k in range(BITS):
            quantisation += math.log(math.cosh(abs(z[i, k]) - 1))
    assert parts == pytest.approx(
        {"pair": pairs / 7 / batch_size, "quantisation": 0.4 * quantisation / batch_size},
        rel=1e-12,
    )


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(DHN(BITS), outputs_for(labels), labels)


@both_kinds
def test_gradient_by_hand(labels):
    """(2 / P) sum_j (sigmoid(t_ij) - s_ij) z_j + lambda tanh(|z_i| - 1) sgn(z_i) / b, by tanh'."""
    outputs = outputs_for(labels)
    z, s = np.tanh(outputs), dsdh_reference.share_a_label(labels)
    pull = 2 / 49 * (reference.sigmoid(z @ z.T) - s) @ z
    pull += 0.3 / 7 * np.tanh(np.abs(z) - 1) * np.sign(z)
    found = reference.gradient_of(DHN(BITS), outputs, labels)
    np.testing.assert_allclose(found, pull * (1 - z**2), rtol=1e-10, atol=1e-14)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(DHN(BITS), outputs_for(labels), labels)


def test_outputs_of_zero_give_log_2_for_every_pair():
    parts = reference.parts_of(DHN(BITS), np.zeros((7, BITS)), ONE)
    assert parts["pair"] == pytest.approx(math.log(2))
    assert parts["quantisation"] == pytest.approx(0.3 * BITS * math.log(math.cosh(1)))


def test_the_inner_product_is_not_halved():
    """Two images of one class with equal codes of 5 bits: t = 5 for all four pairs."""
    outputs = np.full((2, BITS), 40.0)
    parts = reference.parts_of(DHN(BITS), outputs, np.array([1, 1]), batch_size=2)
    assert parts["pair"] == pytest.approx(math.log(1 + math.exp(-5)))
    assert parts["quantisation"] == pytest.approx(0)


def test_matching_codes_have_lower_loss():
    right = np.where(np.eye(3)[ONE] @ np.random.default_rng(0).normal(size=(3, BITS)) > 0, 3.0, -3)
    wrong = right[[1, 0, 3, 2, 5, 4, 6]]
    costs = [reference.parts_of(DHN(BITS), outputs, ONE)["pair"] for outputs in (right, wrong)]
    assert costs[0] < costs[1]


@pytest.mark.parametrize("labels", [np.array([2]), np.zeros((1, 3), int), SEVERAL[[6, 6]]])
def test_a_batch_without_a_pair(labels):
    outputs = outputs_for(labels, scale=50.0)
    gradient = reference.gradient_of(DHN(BITS), outputs, labels)
    assert np.isfinite(gradient).all()
    assert all(map(math.isfinite, reference.parts_of(DHN(BITS), outputs, labels).values()))


def test_long_codes_do_not_overflow():
    outputs = torch.full((7, 512), 50.0)
    state = reference.make_state(ONE)
    parts = DHN(512).loss(outputs.requires_grad_(), torch.arange(7), state)
    sum(parts.values()).backward()
    assert torch.isfinite(outputs.grad).all()
    assert math.isfinite(parts["pair"].item())


def test_overfits_noise():
    assert reference.training_map_of_noise(DHN(12, training=reference.OVERFITTING)) > 0.95


def test_a_saved_model_gives_the_same_codes(tmp_path, monkeypatch):
    hasher = DHN(12, training=Training(epochs=3, lr=0.1, batch_size=8))
    reference.check_saved(hasher, tmp_path, monkeypatch)


def test_a_negative_weight_is_refused():
    with pytest.raises(ValueError, match="quantisation must be a number >= 0"):
        DHN(4, quantisation=-1.0).fit(np.eye(4), [0, 0, 1, 1])
