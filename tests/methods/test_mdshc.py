"""MDSHC: contrastive loss to separated centers, against plain loops."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds

from bitprint.methods.centers import guaranteed_distance
from bitprint.methods.mdshc import MDSHC


def centers_of(hasher, labels):
    state = reference.make_state(labels)
    hasher.prepare(state)
    return state.tensors["centers"].numpy()


@both_kinds
def test_loss_by_loops(labels):
    hasher, outputs = MDSHC(5, quantisation=0.3), reference.random_outputs(7, 5)
    centers, center, quantisation = centers_of(hasher, labels), 0.0, 0.0
    for row, label in zip(np.tanh(outputs), labels, strict=True):
        cosines = [row @ o / np.linalg.norm(row) / np.linalg.norm(o) for o in centers]
        powers = np.exp(np.sqrt(5) * np.array(cosines))
        for c, p in enumerate(powers / powers.sum()):
            own = label == c if np.ndim(label) == 0 else label[c] == 1
            center -= np.log(p if own else 1 - p) / 3
        quantisation += np.mean((np.abs(row) - 1) ** 2)
    parts = reference.parts_of(hasher, outputs, labels, batch_size=10)
    assert parts["center"] == pytest.approx(center / 10, rel=1e-10)
    assert parts["quantisation"] == pytest.approx(0.3 * quantisation / 10, rel=1e-10)


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(MDSHC(5, quantisation=0.3), reference.random_outputs(7, 5), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(MDSHC(5), reference.random_outputs(7, 5), labels)


@pytest.mark.parametrize("bits", [1, 7, 12, 16, 48])
def test_centers_have_the_guaranteed_distance(bits):
    labels = np.arange(10)
    centers = centers_of(MDSHC(bits), labels)
    products = centers @ centers.T - (bits + 1) * np.eye(10)
    assert products.max() <= bits - 2 * guaranteed_distance(10, bits)
    assert np.array_equal(centers, centers_of(MDSHC(bits), labels))


def test_loss_of_a_sure_prediction_is_finite():
    """With 512 bits, the probability of a class rounds to 1 in float32."""
    hasher = MDSHC(512)
    centers = centers_of(hasher, reference.ONE)
    state = reference.make_state(reference.ONE)
    hasher.prepare(state)
    state.tensors["centers"] = state.tensors["centers"].float()
    for classes in (reference.ONE, 1 - reference.ONE % 2):  # right and wrong
        outputs = torch.tensor(9 * centers[classes], dtype=torch.float32, requires_grad=True)
        loss = hasher.loss(outputs, torch.arange(7), state)["center"]
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(outputs.grad).all()


def test_invalid_weight_is_refused():
    with pytest.raises(ValueError, match="quantisation must be a number >= 0, got -1"):
        MDSHC(6, quantisation=-1.0).fit(np.eye(3), [0, 1, 2])
