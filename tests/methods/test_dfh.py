"""DFH against plain loops, and the descent of its centers."""

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import CLASSES, both_kinds

from bitprint.methods.dfh import DFH, center_objective, descend_centers

BITS = 5
ROWS = torch.tensor([5, 0, 3, 6])


@pytest.fixture(autouse=True)
def float64():
    """Use float64 buffers, for an exact comparison with NumPy."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def state_with_buffers(hasher, labels):
    state = reference.make_state(labels, batch_size=9)
    hasher.prepare(state)
    state.tensors["U"] = torch.tensor(reference.random_outputs(7, BITS, seed=5))
    state.tensors["V"] = torch.tensor(reference.random_outputs(CLASSES, BITS, seed=6))
    return state


def codes_by_loops(outputs, labels, centers, mu):
    """Return sgn(mu sum_c y_c sgn(v_c) + h) of the batch."""
    codes = np.empty_like(outputs)
    for place, row in enumerate(ROWS.tolist()):
        for k in range(BITS):
            members = range(CLASSES) if labels.ndim == 2 else [labels[row]]
            own = [c for c in members if labels.ndim == 1 or labels[row, c]]
            value = mu * sum(np.sign(centers[c, k]) for c in own) + outputs[place, k]
            codes[place, k] = 1 if value >= 0 else -1
    return codes


def loss_by_loops(outputs, labels, buffer, codes, margin, eta):
    """Return both terms for a constant buffer."""
    s, pairs = dsdh_reference.share_a_label(labels), 0.0
    for place, row in enumerate(ROWS.tolist()):
        for j in range(7):
            t = sum(outputs[place, k] * buffer[j, k] for k in range(BITS)) / 2
            pairs += dsdh_reference.log1p_exp(margin - t if s[row, j] else margin + t)
    gaps = ((codes - outputs) ** 2).sum()
    return {"pair": pairs / (9 * 7), "quantisation": eta * gaps / (9 * BITS)}


@both_kinds
@pytest.mark.parametrize("mu", [0.0, 0.4, 3.0])
def test_loss_and_gradient_match_plain_loops(labels, mu):
    """By finite differences of the loss for a constant buffer."""
    hasher = DFH(BITS, margin=0.7, mu=mu, eta=0.3)
    state = state_with_buffers(hasher, labels)
    outputs = reference.random_outputs(4, BITS, seed=7)
    buffer, centers = state.tensors["U"].numpy().copy(), state.tensors["V"].numpy().copy()
    buffer[ROWS] = outputs
    codes = codes_by_loops(outputs, labels, centers, mu)
    batch = torch.tensor(outputs, requires_grad=True)
    parts = hasher.loss(batch, ROWS, state)
    expected = loss_by_loops(outputs, labels, buffer, codes, 0.7, 0.3)
    assert {name: value.item() for name, value in parts.items()} == pytest.approx(expected)

    sum(parts.values()).backward()
    differences = dsdh_reference.finite_differences(
        lambda at: sum(loss_by_loops(at, labels, buffer, codes, 0.7, 0.3).values()), outputs
    )
    np.testing.assert_allclose(batch.grad, differences, rtol=1e-6, atol=1e-8)
    assert np.abs(differences).max() > 0.01
    np.testing.assert_array_equal(state.tensors["U"], buffer)
    after = descend_centers(torch.tensor(centers), state.classes[ROWS], torch.tensor(codes), 200)
    torch.testing.assert_close(state.tensors["V"], after)


@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits):
    reference.check_unusual_batches(DFH(bits), bits)


@both_kinds
def test_center_step_follows_the_gradient_of_its_objective(labels):
    classes = reference.make_state(labels).classes
    centers = torch.tensor(reference.random_outputs(CLASSES, BITS, seed=1), requires_grad=True)
    codes = torch.tensor(reference.random_outputs(7, BITS, seed=2)).sign()
    center_objective(centers, classes, codes).backward()
    step = centers.detach() - descend_centers(centers.detach(), classes, codes, 1)
    rates = step / centers.grad
    torch.testing.assert_close(rates, rates[0, 0].expand_as(rates))
    assert 0.003 < rates[0, 0] <= 0.03


def objective_by_loops(centers, classes, codes):
    (n, count), bits = classes.shape, centers.shape[1]
    within = between = signs = 0.0
    for i in range(n):
        for k in range(bits):
            own = sum(classes[i, c] * centers[c, k] for c in range(count))
            within += (own - codes[i, k]) ** 2 / (n * bits)
    for c in range(count):
        for d in range(count):
            wanted = bits if c == d else -bits
            product = sum(centers[c, k] * centers[d, k] for k in range(bits))
            between += (product - wanted) ** 2 / count**2
        for k in range(bits):
            signs += (centers[c, k] - (1 if centers[c, k] >= 0 else -1)) ** 2 / (count * bits)
    return within + between + signs


@both_kinds
def test_center_objective_matches_plain_loops(labels):
    classes = reference.make_state(labels).classes
    centers = torch.tensor(reference.random_outputs(CLASSES, BITS, seed=1))
    codes = torch.tensor(reference.random_outputs(7, BITS, seed=2)).sign()
    found = center_objective(centers, classes, codes).item()
    expected = objective_by_loops(centers.numpy(), classes.numpy(), codes.numpy())
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("count", [2, 3, 10, 40])
@pytest.mark.parametrize("bits", [1, 7, 48, 128])
def test_center_steps_never_raise_their_objective(count, bits):
    """From zero, where the release would diverge for few classes and long codes."""
    generator = torch.Generator().manual_seed(count)
    labels = torch.randint(0, count, (32,), generator=generator)
    classes = torch.eye(count)[labels]
    codes = torch.randn(count, bits, generator=generator).sign()[labels]
    centers, values = torch.zeros(count, bits), []
    for _ in range(300):
        values.append(center_objective(centers, classes, codes).item())
        centers = descend_centers(centers, classes, codes, 1)
    assert dsdh_reference.largest_rise(values) <= 1e-9
    assert values[-1] < values[0]


def test_centers_of_two_classes_end_as_opposite_codes():
    classes, codes = torch.eye(2), torch.ones(2, 6)
    codes[1, 3:] = -1
    centers = descend_centers(torch.zeros(2, 6), classes, codes, 2000)
    assert (centers[0] @ centers[1]).item() < -3
    assert torch.equal(centers.sign()[:, 3:], codes[:, 3:])


def test_no_center_steps_leave_the_centers():
    hasher = DFH(BITS, center_steps=0)
    state = state_with_buffers(hasher, reference.ONE)
    before = state.tensors["V"].clone()
    hasher.loss(torch.tensor(reference.random_outputs(4, BITS)), ROWS, state)
    assert torch.equal(state.tensors["V"], before)


@pytest.mark.parametrize("option", ["margin", "mu", "eta"])
def test_negative_weights_are_refused(option):
    reference.check_refused(DFH(4, **{option: -1.0}), f"{option} must be a number >= 0")


def test_negative_center_steps_are_refused():
    reference.check_refused(DFH(4, center_steps=-1), "center_steps must be an integer >= 0")
