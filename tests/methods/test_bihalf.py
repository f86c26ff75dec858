"""BiHalf: balanced bits and cosines of pairs, against plain loops."""

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.methods.bihalf import BiHalf, half_signs, pair_cosines
from bitprint.nets.module import Module

FEATURES = reference.random_outputs(8, 6, seed=9)


def balanced(outputs):
    """Return the balanced bits, by sorting each column."""
    codes = np.full(outputs.shape, -1.0)
    for k in range(outputs.shape[1]):
        largest = sorted(range(len(outputs)), key=lambda i: -outputs[i, k])
        codes[largest[: len(outputs) // 2], k] = 1
    return codes


def cosine(some, other):
    return some @ other / np.sqrt(some @ some) / np.sqrt(other @ other)


def parts_of(hasher, outputs, features=FEATURES, batch_size=10):
    joined = torch.cat([torch.as_tensor(outputs), torch.from_numpy(features[: len(outputs)])], 1)
    state = reference.make_state(np.zeros(len(outputs), np.int64), batch_size)
    return hasher.loss(joined, torch.arange(len(outputs)), state)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 64])
def test_each_bit_is_positive_for_half_of_the_batch(count):
    outputs = reference.random_outputs(count, 5) + 10
    codes = half_signs(torch.from_numpy(outputs)).numpy()
    assert set((codes > 0).sum(axis=0)) == {count // 2}
    np.testing.assert_array_equal(codes, balanced(outputs))


def test_equal_outputs_are_balanced_too():
    assert half_signs(torch.zeros(6, 3)).sum(dim=0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("count", [7, 8])
def test_loss_by_loops(count):
    outputs, half = reference.random_outputs(count, 4), count // 2
    codes, error, balance = balanced(outputs), 0.0, 0.0
    for i in range(half):
        goal = cosine(FEATURES[i], FEATURES[half + i])
        error += (cosine(codes[i], codes[half + i]) - goal) ** 2
    for i, k in np.ndindex(count, 4):
        balance += (outputs[i, k] - codes[i, k]) ** 2
    parts = parts_of(BiHalf(4, gamma=3.0), outputs)
    assert parts["cosine"].item() == pytest.approx(error / 5, rel=1e-10)
    assert parts["balance"].item() == pytest.approx(3.0 / 2 * balance / 40, rel=1e-10)


def test_gradient_is_that_of_codes_and_of_the_release():
    """The gradient for the codes, passed on, plus gamma (h - b) / number of outputs."""
    outputs, gamma = reference.random_outputs(8, 4), 6.0
    given = torch.tensor(outputs, requires_grad=True)
    torch.stack(list(parts_of(BiHalf(4), given, batch_size=8).values())).sum().backward()

    def error(codes):
        pairs = [cosine(codes[i], codes[4 + i]) for i in range(4)]
        goals = [cosine(FEATURES[i], FEATURES[4 + i]) for i in range(4)]
        return np.mean(np.subtract(pairs, goals) ** 2)

    codes = balanced(outputs)
    passed = dsdh_reference.finite_differences(error, codes)
    expected = passed + gamma * (outputs - codes) / outputs.size
    np.testing.assert_allclose(given.grad, expected, rtol=1e-6, atol=1e-8)
    assert np.abs(passed).max() > 0.01


def test_features_have_no_gradient():
    features = torch.tensor(FEATURES, requires_grad=True)
    outputs = torch.cat([torch.from_numpy(reference.random_outputs(8, 4)), features], dim=1)
    state = reference.make_state(np.zeros(8, np.int64), 8)
    outputs.retain_grad()
    sum(BiHalf(4).loss(outputs, torch.arange(8), state).values()).backward()
    assert not outputs.grad[:, 4:].any()


def test_pairs_of_an_odd_batch_leave_the_last_row():
    rows = torch.from_numpy(FEATURES)
    assert torch.equal(pair_cosines(rows[:7]), pair_cosines(rows[:6]))
    assert pair_cosines(rows[:1]).shape == (0,)


def test_one_image_has_no_pair():
    parts = parts_of(BiHalf(4), reference.random_outputs(1, 4))
    assert parts["cosine"].item() == 0
    assert torch.isfinite(parts["balance"])


def test_training_balances_the_bits_and_keeps_neighbors():
    rng = np.random.default_rng(0)
    centers = 3 * rng.standard_normal((4, 16))
    data = (centers.repeat(50, axis=0) + rng.standard_normal((200, 16))).astype(np.float32)
    labels = np.repeat(np.arange(4), 50)
    hasher = BiHalf(16, epochs=60, batch_size=50).fit(data)
    assert hasher.settings_["backbone"] == "mlp:0"
    signs = hasher.encode(data).signs()
    assert np.abs(signs.mean(axis=0)).max() < 0.5
    assert hasher.score(data, labels) > 0.8
    assert hasher.history_[-1]["loss"] < hasher.history_[0]["loss"] / 2


def test_backbone_stays_unchanged():
    network = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    data = np.random.default_rng(0).standard_normal((24, 6)).astype(np.float32)
    options = {"backbone": network, "standardize": False, "epochs": 2, "batch_size": 8}
    hasher = bp.create("bihalf", 4, **options).fit(data)
    assert isinstance(hasher.net_.trunk, Module)
    after = hasher.net_.trunk.module.state_dict()
    assert all(torch.equal(value, before[name]) for name, value in after.items())
    moved = bp.create("bihalf", 4, trunk_lr=0.1, **options).fit(data)
    after = moved.net_.trunk.module.state_dict()
    assert not torch.equal(after["0.weight"], before["0.weight"])


def test_invalid_options_are_refused():
    with pytest.raises(ValueError, match="gamma must be a number >= 0, got -1"):
        BiHalf(4, gamma=-1.0).fit(FEATURES)
    with pytest.raises(ValueError, match=r"cutmix mixes labels, and bihalf .*: set cutmix=0"):
        BiHalf(4, cutmix=0.5).fit(FEATURES)
