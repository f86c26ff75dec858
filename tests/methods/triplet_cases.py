"""Helpers for tests of triplet methods: labels, states, and triplets by plain loops."""

import dsdh_reference as reference
import numpy as np
import torch

import bitprint as bp
from bitprint.methods import METHODS
from bitprint.supervision import class_matrix
from bitprint.training.plan import Training
from bitprint.training.state import State

ONE = np.array([0, 1, 1, 2, 0, 2, 1, 0])
SEVERAL = np.array(
    [
        [1, 1, 0, 1],
        [1, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 0, 1, 0],
        [0, 1, 1, 1],
        [1, 0, 0, 1],
        [0, 0, 0, 0],
        [0, 0, 1, 0],
    ]
)
ITEMS = np.random.default_rng(0).standard_normal((40, 64))
CLASSES = np.repeat(np.arange(4), 10)


def make_state(labels, batch_size=8):
    classes = torch.from_numpy(class_matrix(labels))
    shown = torch.from_numpy(labels) if labels.ndim == 1 else classes
    return State(shown, classes, batch_size)


def random_outputs(count, bits, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, bits, generator=generator, dtype=torch.float64)


def triplets_of(labels):
    """Return all (q, p, n) with q != p similar and q, n dissimilar."""
    similar = reference.share_a_label(labels)
    every = range(len(labels))
    return [
        (q, p, n)
        for q in every
        for p in every
        for n in every
        if len({q, p, n}) == 3 and similar[q, p] and not similar[q, n]
    ]


def gradient_and_differences(hasher, state, rows, outputs):
    """Return the gradient of the loss by autograd and by central differences, in float64."""

    def loss(outputs):
        torch.manual_seed(0)
        return sum(hasher.loss(outputs, rows, state).values())

    outputs = outputs.clone().requires_grad_()
    loss(outputs).backward()
    numbers = outputs.detach().numpy()
    differences = reference.finite_differences(lambda h: loss(torch.tensor(h)).item(), numbers)
    return outputs.grad.numpy(), differences


def assert_nothing_to_rank(hasher, labels):
    """Check that a batch without triplets has zero triplet loss and a finite gradient."""
    state = make_state(np.asarray(labels))
    hasher.prepare(state)
    outputs = torch.randn(len(labels), hasher.bits, requires_grad=True)
    parts = hasher.loss(outputs, torch.arange(len(labels)), state)
    name = next(iter(parts))
    assert parts[name].item() == 0
    parts[name].backward(retain_graph=True)
    assert torch.count_nonzero(outputs.grad) == 0
    sum(parts.values()).backward()
    assert torch.isfinite(outputs.grad).all()


def recipe(**changes):
    """Return a training that overfits 40 items in a second."""
    options = {"optimizer": "adamw", "schedule": "cosine", "epochs": 60, "lr": 3e-3}
    return Training(**(options | {"batch_size": 10} | changes))


def training_map(hasher, labels=CLASSES):
    """Return the MAP of 40 noise vectors after training on them."""
    codes = hasher.fit(ITEMS, labels).encode(ITEMS)
    return bp.evaluate(codes, labels, codes, labels).map


def assert_saving_keeps_the_codes(hasher, data, folder, monkeypatch):
    monkeypatch.setitem(METHODS, hasher.name, type(hasher))
    hasher.save(folder)
    loaded = bp.load(folder)
    assert type(loaded) is type(hasher)
    assert loaded.encode(data) == hasher.encode(data)
    np.testing.assert_array_equal(loaded.project(data), hasher.project(data))
