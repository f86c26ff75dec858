"""HashNet against plain loops, and its continuation."""

import math

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import ONE, SEVERAL, both_kinds

from bitprint.methods.hashnet import HashNet, weighted_pairs, weights_of_kinds

BITS = 5


def outputs_for(labels):
    return reference.random_outputs(len(labels), BITS)


def loss_by_loops(relaxed, labels, scale):
    s, total = dsdh_reference.share_a_label(labels), 0.0
    for i in range(len(s)):
        for j in range(len(s)):
            if i != j:
                t = scale * sum(relaxed[i, k] * relaxed[j, k] for k in range(relaxed.shape[1]))
                pair = dsdh_reference.log1p_exp(t) - s[i, j] * t
                total += reference.pair_weight(labels, s, i, j) * pair
    return total / (len(s) - 1)


@both_kinds
@pytest.mark.parametrize(("scale", "batch_size"), [(None, 7), (0.7, 9)])
def test_loss_matches_plain_loops(labels, scale, batch_size):
    outputs = outputs_for(labels)
    found = reference.parts_of(HashNet(BITS, scale=scale), outputs, labels, batch_size)
    expected = loss_by_loops(np.tanh(outputs), labels, 10 / BITS if scale is None else scale)
    assert found == pytest.approx({"pair": expected / batch_size}, rel=1e-12)


def state_after(hasher, labels, steps):
    state = reference.make_state(labels)
    hasher.prepare(state)
    state.tensors["steps"] += steps
    return state


@both_kinds
@pytest.mark.parametrize("steps", [0, 1000])
def test_gradient_passes_gradcheck(labels, steps):
    hasher, rows = HashNet(BITS), torch.arange(7)
    outputs = torch.tensor(outputs_for(labels), requires_grad=True)

    def loss(outputs):
        return hasher.loss(outputs, rows, state_after(hasher, labels, steps))["pair"]

    assert torch.autograd.gradcheck(loss, outputs)
    assert torch.autograd.grad(loss(outputs), outputs)[0].abs().max() > 1e-3


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    """The second loss of one state would have another beta."""
    hasher = HashNet(BITS, growth=0.0)
    reference.check_order_does_not_matter(hasher, outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(HashNet(bits), bits)


def test_beta_grows_with_every_step():
    hasher, outputs = HashNet(BITS, growth=0.4), outputs_for(ONE)
    state = state_after(hasher, ONE, 0)
    for step in range(4):
        beta = math.sqrt(1 + 0.4 * step)
        assert hasher.after_epoch(state)["beta"] == pytest.approx(beta)
        found = hasher.loss(torch.tensor(outputs), torch.arange(7), state)["pair"].item()
        expected = loss_by_loops(np.tanh(beta * outputs), ONE, 10 / BITS) / 7
        assert found == pytest.approx(expected, rel=1e-6)


@both_kinds
def test_quantization_error_vanishes_as_beta_grows(labels):
    """The loss approaches that of the codes."""
    hasher, outputs = HashNet(BITS), outputs_for(labels)
    of_codes = loss_by_loops(np.sign(outputs), labels, 10 / BITS) / 7
    errors = []
    for steps in (0, 10**3, 10**5, 10**7, 10**9):
        state = state_after(hasher, labels, steps)
        loss = hasher.loss(torch.tensor(outputs), torch.arange(7), state)["pair"].item()
        errors.append(abs(loss - of_codes))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1
    assert errors[-1] < 1e-6


@both_kinds
def test_similar_and_dissimilar_pairs_weigh_alike_in_sum(labels):
    state = reference.make_state(labels)
    dissimilar, similar = weights_of_kinds(state).tolist()
    s = dsdh_reference.share_a_label(labels)
    assert similar * s.sum() == pytest.approx(s.size)
    assert dissimilar * (1 - s).sum() == pytest.approx(s.size)


def test_weight_of_several_labels_is_their_overlap():
    state = state_after(HashNet(BITS), SEVERAL, 0)
    similar, weights = weighted_pairs(torch.arange(7), state)
    kinds = state.tensors["kinds"]
    assert similar[0].tolist() == [True, True, False, False, False, True, False]
    shares = (6 * weights[0] / torch.where(similar[0], kinds[1], kinds[0])).tolist()
    # Image 0 itself; one of two labels; four dissimilar images; the same label.
    assert shares == pytest.approx([0, 1 / 2, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(("option", "bound"), [("growth", ">="), ("scale", ">")])
def test_negative_options_are_refused(option, bound):
    reference.check_refused(HashNet(4, **{option: -1.0}), f"{option} must be a number {bound} 0")
