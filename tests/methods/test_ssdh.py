"""DLBHC and SSDH, which share a structure, against plain loops."""

import math

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import CLASSES, ONE, OVERFITTING, both_kinds

from bitprint.methods.dlbhc import DLBHC, LatentHead
from bitprint.methods.ssdh import SSDH
from bitprint.training.plan import Training

BITS = 5

both_methods = pytest.mark.parametrize("method", [DLBHC, SSDH])


def outputs_for(labels, scale=1.0):
    return reference.random_outputs(len(labels), BITS + CLASSES, scale=scale)


@both_kinds
@pytest.mark.parametrize("batch_size", [7, 9])
def test_loss_by_loops(labels, batch_size):
    outputs = outputs_for(labels)
    logits = outputs[:, BITS:] + reference.log_odds(labels)
    entropy = reference.cross_entropy(logits, labels) / batch_size
    binary = balance = 0.0
    for row in outputs:
        activations = [reference.sigmoid(value) for value in row[:BITS]]
        binary -= sum((a - 0.5) ** 2 for a in activations) / BITS
        balance += (sum(activations) / BITS - 0.5) ** 2
    alone = reference.parts_of(DLBHC(BITS), outputs, labels, batch_size)
    assert alone == pytest.approx({"classification": entropy}, rel=1e-12)
    parts = reference.parts_of(SSDH(BITS, beta=2.0, gamma=3.0), outputs, labels, batch_size)
    assert parts == pytest.approx(
        {
            "classification": entropy,
            "binary": 2 * binary / batch_size,
            "balance": 3 * balance / batch_size,
        },
        rel=1e-12,
    )


@both_kinds
@both_methods
def test_gradient_by_finite_differences(method, labels):
    reference.check_gradient(method(BITS), outputs_for(labels), labels)


@both_kinds
def test_gradient_reaches_the_hash_layer_through_its_sigmoids(labels):
    """The head and the loss in float64."""
    head = LatentHead(4, BITS, CLASSES).double()
    features = torch.tensor(reference.random_outputs(7, 4, seed=3))
    state = reference.make_state(labels)
    hasher = SSDH(BITS)

    def total():
        return sum(hasher.loss(head(features), torch.arange(7), state).values())

    total().backward()
    found = head.latent.weight.grad.clone()
    for index in [(0, 0), (2, 3), (4, 1)]:
        values = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                head.latent.weight[index] += step
                values.append(total().item())
                head.latent.weight[index] -= step
        assert found[index].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5)


def test_head_is_a_classifier_on_sigmoids():
    torch.manual_seed(0)
    head = LatentHead(4, BITS, CLASSES)
    features = torch.randn(6, 4)
    outputs = head(features)
    hashed = features @ head.latent.weight.t() + head.latent.bias
    torch.testing.assert_close(outputs[:, :BITS], hashed)
    expected = (1 / (1 + (-hashed).exp())) @ head.classifier.weight.t() + head.classifier.bias
    torch.testing.assert_close(outputs[:, BITS:], expected)


@both_kinds
@both_methods
def test_order_of_the_batch_does_not_matter(method, labels):
    reference.check_order_does_not_matter(method(BITS), outputs_for(labels), labels)


def test_values_at_the_corners():
    """Two of four bits on: -1/4 and 0; all on: -1/4 and 1/4; activations 1/2: 0 and 0."""
    for latent, binary, balance in (
        ([90.0, 90.0, -90.0, -90.0], -0.25, 0.0),
        ([90.0, 90.0, 90.0, 90.0], -0.25, 0.25),
        ([0.0, 0.0, 0.0, 0.0], 0.0, 0.0),
    ):
        outputs = np.array([[*latent, 0.0, 0.0, 0.0]])
        parts = reference.parts_of(SSDH(4), outputs, np.array([2]), batch_size=1)
        assert parts["binary"] == pytest.approx(binary)
        assert parts["balance"] == pytest.approx(balance)


def test_without_its_terms_ssdh_is_dlbhc():
    outputs = outputs_for(ONE)
    mine = reference.gradient_of(SSDH(BITS, beta=0.0, gamma=0.0), outputs, ONE)
    np.testing.assert_array_equal(mine, reference.gradient_of(DLBHC(BITS), outputs, ONE))


@both_methods
@pytest.mark.parametrize("labels", [np.array([2]), np.zeros((1, CLASSES), int), ONE[[1, 2, 6]]])
def test_unusual_batches(method, labels):
    if labels.ndim == 1:
        labels = np.append(labels, 2)  # so that there are three classes
    outputs = outputs_for(labels, scale=300.0)
    assert np.isfinite(reference.gradient_of(method(BITS), outputs, labels)).all()
    assert all(map(math.isfinite, reference.parts_of(method(BITS), outputs, labels).values()))


@both_methods
def test_overfits_noise(method):
    assert reference.training_map_of_noise(method(12, training=OVERFITTING)) > 0.95


def test_both_terms_have_their_effect():
    """Activations are farther from 1/2, and half of the bits are on."""
    data = np.random.default_rng(0).standard_normal((40, 16))
    figures = {}
    for weight in (0.0, 20.0):
        training = Training(epochs=60, batch_size=20, optimizer="adamw", lr=3e-3)
        hasher = SSDH(8, beta=weight, gamma=weight, backbone="mlp", training=training)
        activations = reference.sigmoid(hasher.fit(data, np.arange(40) % 2).project(data))
        figures[weight] = (
            np.abs(activations - 0.5).mean(),
            np.abs(activations.mean(axis=1) - 0.5).mean(),
        )
    assert figures[20.0][0] > figures[0.0][0]
    assert figures[20.0][1] < figures[0.0][1]


@both_methods
def test_a_saved_model_gives_the_same_codes(method, tmp_path, monkeypatch):
    hasher = method(12, training=Training(epochs=3, lr=0.1, batch_size=8))
    reference.check_saved(hasher, tmp_path, monkeypatch)


@pytest.mark.parametrize("weight", ["beta", "gamma"])
def test_negative_weights_are_refused(weight):
    with pytest.raises(ValueError, match=f"{weight} must be a number >= 0"):
        SSDH(4, **{weight: -1.0}).fit(np.eye(4), [0, 0, 1, 1])


@both_methods
def test_rare_labels_do_not_drive_all_images_to_one_code(method):
    """10% of forty labels: without log-odds, all logits would decrease first."""
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 40)) < 0.1).astype(int)
    features = labels @ rng.standard_normal((40, 20)) + 0.1 * rng.standard_normal((300, 20))
    training = Training(epochs=20, batch_size=32, optimizer="adamw", lr=1e-2)
    codes = method(16, training=training).fit(features, labels).encode(features)
    assert len(np.unique(np.asarray(codes.packed), axis=0)) > 100
