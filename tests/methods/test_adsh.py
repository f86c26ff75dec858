"""ADSH: the asymmetric loss by loops, and its free codes against brute force."""

import itertools

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds

import bitprint as bp
from bitprint.methods.adsh import ADSH


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def prepared(hasher, labels, seed=1):
    """Return a state with random codes V."""
    state = reference.make_state(labels)
    hasher.prepare(state)
    coins = np.random.default_rng(seed).choice([-1.0, 1.0], (len(labels), hasher.bits))
    state.tensors["V"] = torch.from_numpy(coins)
    return state


def goals(labels):
    """Return s, and -r for dissimilar images."""
    shared = dsdh_reference.share_a_label(labels)
    return np.where(shared == 1, 1.0, -shared.sum() / (1 - shared).sum())


def objective(Z, V, s, gamma, members):
    """Return the objective of the paper for a sample, by loops."""
    total = 0.0
    for i in members:
        for j in range(len(V)):
            total += (Z[i] @ V[j] - V.shape[1] * s[i, j]) ** 2
        total += gamma * ((V[i] - Z[i]) ** 2).sum()
    return total


@both_kinds
def test_loss_by_loops(labels):
    hasher, outputs = ADSH(5, gamma=3.0), reference.random_outputs(4, 5)
    state, rows = prepared(hasher, labels), [5, 0, 2, 3]
    V, Z = state.tensors["V"].numpy().copy(), np.zeros((7, 5))
    Z[rows] = np.tanh(outputs)
    parts = hasher.loss(torch.tensor(outputs), torch.tensor(rows), state)
    expected = objective(Z, V, goals(labels), 3.0, rows) / (7 * 7)
    assert sum(parts.values()).item() == pytest.approx(expected, rel=1e-10)
    quantisation = 3.0 * ((V[rows] - Z[rows]) ** 2).sum() / (7 * 7)
    assert parts["quantisation"].item() == pytest.approx(quantisation, rel=1e-10)
    np.testing.assert_allclose(state.tensors["U"], Z)


@both_kinds
def test_gradient_by_finite_differences(labels):
    hasher, rows = ADSH(4, gamma=2.0), torch.tensor([5, 0, 2, 3])

    def loss(outputs):
        return sum(hasher.loss(outputs, rows, prepared(hasher, labels)).values())

    outputs = torch.tensor(reference.random_outputs(4, 4), requires_grad=True)
    loss(outputs).backward()
    expected = dsdh_reference.finite_differences(
        lambda at: loss(torch.tensor(at)).item(), outputs.detach().numpy()
    )
    np.testing.assert_allclose(outputs.grad, expected, rtol=1e-6, atol=1e-8)
    assert outputs.grad.abs().max() > 0.01


# ---- the codes V


@both_kinds
@pytest.mark.parametrize("members", [[0, 1, 2, 3, 4, 5, 6], [1, 4, 6]])
def test_solving_never_increases_the_objective(labels, members):
    fell = 0
    for seed in range(10):
        hasher = ADSH(4, gamma=2.0, samples=len(members))
        state = prepared(hasher, labels, seed)
        before = state.tensors["V"].numpy().copy()
        outputs = torch.tensor(reference.random_outputs(len(members), 4, seed=seed + 50))
        hasher.loss(outputs, torch.tensor(members), state)
        after, Z = state.tensors["V"].numpy(), state.tensors["U"].numpy()
        first, last = (objective(Z, V, goals(labels), 2.0, members) for V in (before, after))
        assert last <= first + 1e-9
        fell += last < first - 1e-9
        for j, k in np.ndindex(after.shape):  # the last bit is optimal given the others
            if k == 3:
                flipped = after.copy()
                flipped[j, k] *= -1
                assert objective(Z, flipped, goals(labels), 2.0, members) >= last - 1e-9
    assert fell == 10


@both_kinds
def test_one_bit_is_solved_like_by_brute_force(labels):
    hasher = ADSH(1, gamma=0.5, samples=7)
    state = prepared(hasher, labels)
    hasher.loss(torch.tensor(reference.random_outputs(7, 1)), torch.arange(7), state)
    Z, s = state.tensors["U"].numpy(), goals(labels)
    values = [
        objective(Z, np.array(V)[:, None], s, 0.5, range(7))
        for V in itertools.product([-1.0, 1.0], repeat=7)
    ]
    found = objective(Z, state.tensors["V"].numpy(), s, 0.5, range(7))
    assert found == pytest.approx(min(values), rel=1e-12)


def test_codes_are_solved_when_the_sample_is_complete():
    hasher = ADSH(4, samples=5)
    state = prepared(hasher, reference.ONE)
    before = state.tensors["V"].clone()
    outputs = torch.tensor(reference.random_outputs(7, 4))
    hasher.loss(outputs[:3], torch.tensor([0, 1, 2]), state)
    assert torch.equal(state.tensors["V"], before)
    hasher.loss(outputs[3:6], torch.tensor([3, 4, 5]), state)
    assert not torch.equal(state.tensors["V"], before)
    assert not state.tensors["sampled"].any()
    assert state.tensors["count"] == 0


def test_codes_of_the_training_images_are_kept():
    torch.set_default_dtype(torch.float32)
    labels = np.repeat(np.arange(4), 10)
    data = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    hasher = ADSH(12, training=reference.OVERFITTING).fit(data, labels)
    codes = bp.Codes.from_signs(hasher.codes_ > 0)
    assert np.array_equal(codes.signs(), hasher.codes_)
    assert bp.evaluate(hasher.encode(data), labels, codes, labels).map > 0.95
    assert 0 <= hasher.history_[-1]["changed_bits"] < 0.1
    hasher.set_params(epochs=1).fit(data[:20], labels[:20])
    assert hasher.codes_.shape == (20, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"gamma": -1.0}, "gamma must be a number >= 0"), ({"samples": 0}, "samples must be an int")],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ADSH(6, **options).fit(np.eye(3), [0, 1, 2])
