"""JMLH against plain loops, and its random bits."""

import math

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import CLASSES, both_kinds

from bitprint.methods.jmlh import JMLH, RandomBits

BITS = 5


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS + CLASSES, scale=scale)


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_matches_plain_loops(labels, batch_size):
    outputs = outputs_for(labels, scale=2.0)
    entropy = reference.cross_entropy(outputs[:, BITS:] + reference.log_odds(labels), labels)
    divergence = 0.0
    for value in outputs[:, :BITS].flat:
        p = reference.sigmoid(value)
        divergence += p * math.log(p / 0.5) + (1 - p) * math.log((1 - p) / 0.5)
    found = reference.parts_of(JMLH(BITS, divergence=0.3), outputs, labels, batch_size)
    expected = {
        "classification": entropy / batch_size,
        "divergence": 0.3 * divergence / batch_size,
    }
    assert found == pytest.approx(expected, rel=1e-12)


@both_kinds
def test_gradient_matches_finite_differences(labels):
    reference.check_gradient(JMLH(BITS), outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(JMLH(BITS), outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(JMLH(bits), bits + CLASSES)


@pytest.mark.parametrize(("output", "divergence"), [(0.0, 0.0), (400.0, 1.0), (-400.0, 1.0)])
def test_divergence_of_a_bit_is_one_minus_its_entropy(output, divergence):
    outputs = np.array([[output] * BITS + [0.0] * CLASSES])
    parts = reference.parts_of(JMLH(BITS, divergence=1.0), outputs, np.array([2]), batch_size=1)
    assert parts["divergence"] == pytest.approx(BITS * divergence * math.log(2))


def test_random_bits_have_their_probabilities():
    torch.manual_seed(0)
    outputs = torch.tensor([-2.0, -0.5, 0.0, 1.0, 3.0])
    bits = RandomBits()(outputs.expand(20_000, 5))
    assert set(bits.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(bits.mean(dim=0), outputs.sigmoid(), atol=0.015, rtol=0)


def test_random_bits_in_evaluation_are_the_code():
    outputs = torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    layer = RandomBits().eval()
    assert torch.equal(layer(outputs), (outputs >= 0).float())


def test_gradient_of_a_bit_is_that_of_its_probability():
    """For every draw: the gradient is that of sigmoid(h) in place of the bits."""
    torch.manual_seed(0)
    head = JMLH(BITS).make_head(4, CLASSES)
    features, pull = torch.randn(6, 4), torch.randn(6, CLASSES)
    hashed = (features @ head.latent.weight.t() + head.latent.bias).detach().requires_grad_()
    (torch.sigmoid(hashed) @ head.classifier.weight.t() * pull).sum().backward()
    for _ in range(3):
        head.zero_grad()
        (head(features)[:, BITS:] * pull).sum().backward()
        torch.testing.assert_close(head.latent.weight.grad, hashed.grad.t() @ features)


def test_class_outputs_change_with_every_draw():
    torch.manual_seed(0)
    head, features = JMLH(BITS).make_head(4, CLASSES), torch.randn(6, 4)
    some, others = head(features), head(features)
    assert torch.equal(some[:, :BITS], others[:, :BITS])
    assert not torch.equal(some[:, BITS:], others[:, BITS:])
    head.eval()
    assert torch.equal(head(features), head(features))


def test_negative_weight_is_refused():
    reference.check_refused(JMLH(4, divergence=-1.0), "divergence must be a number >= 0")
