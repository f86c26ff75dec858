"""GreedyHash against plain loops, and the gradient of its signs."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import CLASSES, ONE, both_kinds

from bitprint.methods.greedyhash import GreedyHash

BITS = 5


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS + CLASSES, scale=scale)


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_matches_plain_loops(labels, batch_size):
    outputs = outputs_for(labels, scale=2.0)
    entropy = reference.cross_entropy(outputs[:, BITS:] + reference.log_odds(labels), labels)
    gaps = sum(abs(abs(value) - 1) ** 3 for value in outputs[:, :BITS].flat) / BITS
    found = reference.parts_of(GreedyHash(BITS, alpha=0.3), outputs, labels, batch_size)
    expected = {"classification": entropy / batch_size, "quantisation": 0.3 * gaps / batch_size}
    assert found == pytest.approx(expected, rel=1e-12)


@both_kinds
def test_gradient_matches_finite_differences(labels):
    reference.check_gradient(GreedyHash(BITS), outputs_for(labels), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(GreedyHash(BITS), outputs_for(labels), labels)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(GreedyHash(bits), bits + CLASSES)


def test_head_classifies_the_code():
    torch.manual_seed(0)
    head = GreedyHash(BITS).make_head(4, CLASSES)
    features = torch.randn(6, 4)
    outputs = head(features)
    hashed = features @ head.latent.weight.t() + head.latent.bias
    codes = torch.where(hashed >= 0, 1.0, -1.0)
    torch.testing.assert_close(outputs[:, :BITS], hashed)
    expected = codes @ head.classifier.weight.t() + head.classifier.bias
    torch.testing.assert_close(outputs[:, BITS:], expected)


def test_gradient_passes_the_signs_unchanged():
    """The hash layer has the gradient of a classifier on h, taken at the classifier's outputs."""
    torch.manual_seed(0)
    head = GreedyHash(BITS).make_head(4, CLASSES).double()
    features = torch.randn(7, 4, dtype=torch.float64)
    state, rows, hasher = reference.make_state(ONE), torch.arange(7), GreedyHash(BITS, alpha=0.0)
    hasher.prepare(state)
    outputs = head(features)
    outputs.retain_grad()
    hasher.loss(outputs, rows, state)["classification"].backward()
    of_hash_outputs = outputs.grad[:, BITS:] @ head.classifier.weight
    torch.testing.assert_close(head.latent.weight.grad, of_hash_outputs.t() @ features)
    torch.testing.assert_close(head.latent.bias.grad, of_hash_outputs.sum(dim=0))
    assert head.latent.weight.grad.abs().max() > 0.01


def test_quantization_loss_is_flat_at_codes():
    outputs = np.array([[1.0, -1.0, 1.0, 0.0, 0.0, 0.0], [2.0, -1.0, 0.0, 0.0, 0.0, 0.0]])
    hasher, labels = GreedyHash(3, alpha=1.0), np.array([1, 2])
    parts = reference.parts_of(hasher, outputs, labels, batch_size=1)
    assert parts["quantisation"] == pytest.approx(2 / 3)
    gradient = reference.gradient_of(hasher, outputs, labels, batch_size=1)[:, :3]
    # 3 (|h| - 1)^2 / 3 away from zero; the gradient of |h| at 0 is 0.
    np.testing.assert_allclose(gradient, [[0, 0, 0], [1, 0, 0]], atol=1e-12)


def test_negative_alpha_is_refused():
    reference.check_refused(GreedyHash(4, alpha=-1.0), "alpha must be a number >= 0")
