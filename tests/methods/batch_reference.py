"""Checks of losses of one batch, with plain loops and finite differences in float64."""

import math
import re

import dsdh_reference
import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.methods import METHODS
from bitprint.supervision import class_matrix
from bitprint.training.plan import Training
from bitprint.training.state import State

ONE = np.array([0, 1, 1, 2, 0, 2, 1])
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
CLASSES = 3
both_kinds = pytest.mark.parametrize("labels", [ONE, SEVERAL], ids=["one label", "several labels"])

OVERFITTING = Training(
    epochs=100, batch_size=10, optimizer="adamw", lr=2e-3, schedule="cosine", weight_decay=5e-4
)


def make_state(labels, batch_size=7):
    classes = class_matrix(labels)
    shown = labels if labels.ndim == 1 else classes
    return State(torch.from_numpy(shown), torch.from_numpy(classes).double(), batch_size)


def random_outputs(count, width, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((count, width))


def parts_of(hasher, outputs, labels, batch_size=7):
    """Return the terms of the loss as numbers for a batch of all images."""
    state = make_state(labels, batch_size)
    hasher.prepare(state)
    parts = hasher.loss(torch.tensor(outputs), torch.arange(len(labels)), state)
    return {name: value.item() for name, value in parts.items()}


def gradient_of(hasher, outputs, labels, batch_size=7):
    state = make_state(labels, batch_size)
    hasher.prepare(state)
    batch = torch.tensor(outputs, requires_grad=True)
    parts = hasher.loss(batch, torch.arange(len(labels)), state)
    torch.stack(list(parts.values())).sum().backward()
    return batch.grad.numpy()


def check_gradient(hasher, outputs, labels):
    """Compare the gradient of the loss with finite differences; it must not be zero."""
    found = gradient_of(hasher, outputs, labels)
    expected = dsdh_reference.finite_differences(
        lambda at: sum(parts_of(hasher, at, labels).values()), outputs
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert np.abs(found).max() > 1e-3


def check_order_does_not_matter(hasher, outputs, labels):
    order = np.random.default_rng(5).permutation(len(labels))
    mine = parts_of(hasher, outputs, labels)
    assert parts_of(hasher, outputs[order], labels[order]) == pytest.approx(mine, rel=1e-12)
    state = make_state(labels)
    hasher.prepare(state)
    shuffled = hasher.loss(torch.tensor(outputs[order]), torch.tensor(order), state)
    assert {name: value.item() for name, value in shuffled.items()} == pytest.approx(mine)


def check_unusual_batches(hasher, width):
    """Losses and gradients are finite for one image, one class, no labels, and equal outputs."""
    no_labels = np.zeros((3, CLASSES), int)
    for labels in (np.array([2]), no_labels[:1], no_labels, ONE[[1, 2, 6]], SEVERAL[[0, 0, 5]]):
        for scale in (0.0, 0.1, 50.0):
            outputs = random_outputs(len(labels), width, scale=scale)
            for each in (outputs, np.tile(outputs[:1], (len(labels), 1))):
                assert np.isfinite(gradient_of(hasher, each, labels)).all(), (labels, scale)
                assert np.isfinite(list(parts_of(hasher, each, labels).values())).all()


def check_refused(hasher, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        hasher.fit(np.eye(4), [0, 0, 1, 1])


def log_odds(labels):
    """Return the log-odds of each class, with 0.5 added to both counts."""
    if labels.ndim == 1:
        return 0.0
    counts = [sum(row[c] for row in labels) for c in range(CLASSES)]
    return np.array([math.log((n + 0.5) / (len(labels) - n + 0.5)) for n in counts])


def overlap(one, other):
    """Return the share of common labels among the labels of both."""
    both = sum(a and b for a, b in zip(one, other, strict=True))
    return both / sum(a or b for a, b in zip(one, other, strict=True))


def pair_weight(labels, s, i, j):
    """Return w_ij by counting the pairs of the training set, here the batch."""
    alike = sum(s[a, b] for a in range(len(s)) for b in range(len(s)))
    if not s[i, j]:
        return len(s) ** 2 / (len(s) ** 2 - alike)
    return len(s) ** 2 / alike * (1 if labels.ndim == 1 else overlap(labels[i], labels[j]))


def cross_entropy(logits, labels):
    """Return the sum over images: softmax for class numbers, sigmoids for a matrix."""
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        if labels.ndim == 1:
            total += np.log(sum(np.exp(row - row.max()))) + row.max() - row[label]
        else:
            for value, present in zip(row, label, strict=True):
                total += dsdh_reference.log1p_exp(value) - present * value
    return total


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def training_map_of_noise(hasher):
    """Return the MAP of 40 noise vectors in four classes after training on them."""
    labels = np.repeat(np.arange(4), 10)
    data = np.random.default_rng(0).standard_normal((40, 64))
    codes = hasher.fit(data, labels).encode(data)
    return bp.evaluate(codes, labels, codes, labels).map


def check_saved(hasher, folder, monkeypatch):
    """A fitted model and its saved copy have the same outputs."""
    monkeypatch.setitem(METHODS, hasher.name, type(hasher))
    data = np.random.default_rng(1).standard_normal((30, 8))
    hasher.fit(data, np.arange(30) % 3).save(folder)
    loaded = bp.load(folder)
    assert type(loaded) is type(hasher)
    np.testing.assert_array_equal(loaded.project(data), hasher.project(data))
    assert loaded.encode(data) == hasher.encode(data)
    assert len(np.unique(hasher.encode(data).packed, axis=0)) > 1
