"""DPN: polarization loss against plain loops, and the adaptive targets of DPN-A."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds

from bitprint.methods.dpn import DPN


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def prepared(hasher, labels=reference.ONE):
    state = reference.make_state(labels)
    hasher.prepare(state)
    return state


@both_kinds
def test_loss_by_loops(labels):
    hasher, outputs, total = DPN(5, margin=0.7), reference.random_outputs(7, 5), 0.0
    targets = prepared(hasher, labels).tensors["targets"].numpy()
    for row, label in zip(outputs, labels, strict=True):
        for c in [label] if np.ndim(label) == 0 else np.flatnonzero(label):
            total += sum(max(0.7 - row[k] * targets[c, k], 0) for k in range(5))
    parts = reference.parts_of(hasher, outputs, labels, batch_size=10)
    assert parts == {"polarization": pytest.approx(total / 10, rel=1e-10)}


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(DPN(5), reference.random_outputs(7, 5, seed=3), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(DPN(5), reference.random_outputs(7, 5), labels)


def test_loss_is_zero_beyond_the_margin_only():
    hasher = DPN(5, margin=1.5)
    targets = prepared(hasher).tensors["targets"].numpy()[reference.ONE]
    assert reference.parts_of(hasher, 1.5 * targets, reference.ONE)["polarization"] == 0
    for factor in (1.4, -1.5):
        assert reference.parts_of(hasher, factor * targets, reference.ONE)["polarization"] > 0


def test_loss_bounds_the_hamming_distance_to_the_target():
    hasher = DPN(5, margin=2.0)
    targets = prepared(hasher).tensors["targets"].numpy()
    for seed in range(20):
        outputs = reference.random_outputs(1, 5, seed=seed)
        state = prepared(hasher)
        loss = hasher.loss(torch.tensor(outputs), torch.tensor([1]), state)["polarization"]
        wrong = (np.sign(outputs[0]) != targets[reference.ONE[1]]).sum()
        assert 7 * loss.item() >= 2 * wrong


def test_seed_decides_the_targets():
    some, again, other = (prepared(DPN(24, seed=s)).tensors["targets"] for s in (1, 1, 2))
    assert torch.equal(some, again)
    assert not torch.equal(some, other)
    assert set(some.unique().tolist()) == {-1.0, 1.0}


# ---- DPN-A


@both_kinds
def test_adaptive_targets_are_signs_of_polarized_sums(labels, float64):
    hasher = DPN(4, adaptive=True, margin=0.8)
    state = prepared(hasher, labels)
    before = state.tensors["targets"].clone()
    outputs = torch.from_numpy(reference.random_outputs(7, 4, scale=2.0).round(1))
    hasher.loss(outputs, torch.arange(7), state)
    assert torch.equal(state.tensors["U"], outputs)
    figures = hasher.after_epoch(state)
    kept = 0
    for c, k in np.ndindex(3, 4):
        total, images = 0, 0
        for i, label in enumerate(labels):
            value = outputs[i, k].item()
            member = label == c if np.ndim(label) == 0 else label[c] == 1
            total += member and abs(value) > 0.8 and np.sign(value)
            images += member
        keeps = abs(total) <= images / 2
        kept += keeps
        assert state.tensors["targets"][c, k] == (before[c, k] if keeps else np.sign(total))
    polarized = np.mean([abs(value) > 0.8 for value in outputs.flatten().tolist()])
    assert figures == {"polarized": pytest.approx(polarized)}
    assert 0 < kept < 12


def test_targets_are_fixed_unless_adaptive(float64):
    for adaptive in (False, True):
        hasher = DPN(12, adaptive=adaptive)
        state = prepared(hasher)
        before = state.tensors["targets"]
        hasher.loss(torch.from_numpy(-5 * before.numpy()[reference.ONE]), torch.arange(7), state)
        hasher.after_epoch(state)
        assert torch.equal(state.tensors["targets"], -before if adaptive else before)


def test_adaptive_targets_train_and_save(tmp_path, monkeypatch):
    options = {"adaptive": True, "training": reference.OVERFITTING}
    assert reference.training_map_of_noise(DPN(12, **options)) > 0.95
    hasher = DPN(12, adaptive=True, epochs=2)
    reference.check_saved(hasher, tmp_path, monkeypatch)
    assert "polarized" in hasher.history_[-1]


def test_margin_of_zero_is_refused():
    with pytest.raises(ValueError, match="margin must be a number > 0, got 0"):
        DPN(6, margin=0.0).fit(np.eye(3), [0, 1, 2])
