"""CSQ: cross-entropy to hash centers, against plain loops."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds

from bitprint.methods.centers import class_centers
from bitprint.methods.csq import CSQ


def prepared(hasher, labels):
    state = reference.make_state(labels)
    hasher.prepare(state)
    return {name: value.numpy() for name, value in state.tensors.items()}


def target(tensors, label):
    """Return the center of an image, bit by bit."""
    if np.ndim(label) == 0:
        return tensors["centers"][label]
    sums = [sum(tensors["centers"][c, k] for c in np.flatnonzero(label)) for k in range(6)]
    return [tie if s == 0 else np.sign(s) for s, tie in zip(sums, tensors["ties"], strict=True)]


@both_kinds
def test_loss_by_loops(labels):
    hasher, outputs = CSQ(6, quantisation=0.3), reference.random_outputs(7, 6)
    tensors, center, quantisation = prepared(hasher, labels), 0.0, 0.0
    for row, label in zip(outputs, labels, strict=True):
        for value, goal in zip(row, target(tensors, label), strict=True):
            p = (np.tanh(value) + 1) / 2
            center -= np.log(p) if goal > 0 else np.log(1 - p)
            quantisation += (abs(np.tanh(value)) - 1) ** 2
    parts = reference.parts_of(hasher, outputs, labels, batch_size=10)
    assert parts["center"] == pytest.approx(center / 60, rel=1e-10)
    assert parts["quantisation"] == pytest.approx(0.3 * quantisation / 60, rel=1e-10)


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(CSQ(6, quantisation=0.3), reference.random_outputs(7, 6), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(CSQ(6), reference.random_outputs(7, 6), labels)


@pytest.mark.parametrize(("bits", "rows"), [(8, True), (2, True), (1, False), (12, False)])
def test_centers_are_hadamard_rows_if_there_are_enough(bits, rows):
    tensors = prepared(CSQ(bits, seed=1), reference.ONE)
    centers = torch.from_numpy(tensors["centers"])
    products = centers @ centers.t()
    assert centers.shape == (3, bits)
    assert (products.fill_diagonal_(-bits).max() <= 0) == (rows or bits == 12)
    assert torch.equal(centers.float(), class_centers(3, bits, torch.Generator().manual_seed(1)))
    other = prepared(CSQ(bits, seed=2), reference.ONE)["centers"]
    assert np.array_equal(other, tensors["centers"]) or not rows


def test_outputs_at_their_centers_have_the_least_loss():
    hasher = CSQ(6)
    centers = prepared(hasher, reference.ONE)["centers"][reference.ONE]
    least = sum(reference.parts_of(hasher, 20 * centers, reference.ONE).values())
    assert least < 1e-10
    for k in range(6):
        flipped = 20 * centers
        flipped[0, k] *= -1
        assert sum(reference.parts_of(hasher, flipped, reference.ONE).values()) > 0.5


def test_invalid_weight_is_refused():
    with pytest.raises(ValueError, match="quantisation must be a number >= 0, got -1"):
        CSQ(6, quantisation=-1.0).fit(np.eye(3), [0, 1, 2])
