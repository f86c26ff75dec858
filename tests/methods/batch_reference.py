"""Checks of a loss that looks at one batch, by plain loops and finite differences in float64."""

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

BY_HEART = Training(
    epochs=100, batch_size=10, optimizer="adamw", lr=2e-3, schedule="cosine", weight_decay=5e-4
)


def make_state(labels, batch_size=7):
    classes = class_matrix(labels)
    shown = labels if labels.ndim == 1 else classes
    return State(torch.from_numpy(shown), torch.from_numpy(classes).double(), batch_size)


def random_outputs(count, width, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((count, width))


def parts_of(hasher, outputs, labels, batch_size=7):
    """The parts of the loss as numbers, with these rows of outputs for all images."""
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
    """The gradient of the whole loss is that of finite differences, and is not all zero."""
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


def cross_entropy(logits, labels):
    """Sum over images: softmax for class numbers, a sigmoid per class for a matrix."""
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


def learnt_by_heart(hasher):
    """MAP over 40 vectors of noise in four classes, after training on them."""
    labels = np.repeat(np.arange(4), 10)
    data = np.random.default_rng(0).standard_normal((40, 64))
    codes = hasher.fit(data, labels).encode(data)
    return bp.evaluate(codes, labels, codes, labels).map


def check_saved(hasher, folder, monkeypatch):
    """A fitted model and what is loaded from its folder give the same outputs."""
    monkeypatch.setitem(METHODS, hasher.name, type(hasher))
    data = np.random.default_rng(1).standard_normal((30, 8))
    hasher.fit(data, np.arange(30) % 3).save(folder)
    loaded = bp.load(folder)
    assert type(loaded) is type(hasher)
    np.testing.assert_array_equal(loaded.project(data), hasher.project(data))
    assert loaded.encode(data) == hasher.encode(data)
    assert len(np.unique(hasher.encode(data).packed, axis=0)) > 1
