"""DPSH and the ablations DSDH-A, B and C, against plain loops."""

import dsdh_reference as reference
import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.methods.dpsh import DPSH
from bitprint.methods.dsdh_ablations import DSDHA, DSDHB, DSDHC
from bitprint.nets.mlp import MLP
from bitprint.nets.network import HashNetwork
from bitprint.supervision import class_matrix
from bitprint.training.state import State

BITS = 5
ONE = np.array([0, 1, 1, 2, 0, 2, 1])
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
both_kinds = pytest.mark.parametrize("labels", [ONE, SEVERAL], ids=["one label", "several labels"])


@pytest.fixture
def float64():
    """Use float64 in the tested code, for an exact comparison with NumPy."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_state(labels, batch_size=7):
    classes = class_matrix(labels)
    shown = labels if labels.ndim == 1 else classes
    return State(torch.from_numpy(shown), torch.from_numpy(classes).double(), batch_size)


def random_outputs(labels, width=BITS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(labels), width, generator=generator, dtype=torch.float64)


def all_rows(labels):
    return torch.arange(len(labels))


@both_kinds
def test_dsdh_a_is_dpsh_bit_for_bit(labels):
    rows, outputs = torch.tensor([5, 0, 3]), random_outputs(labels).float()
    losses = []
    for hasher in (DSDHA(BITS), DPSH(BITS, eta=55.0)):
        state = make_state(labels)
        state.tensors["U"] = outputs.clone()
        batch = outputs[rows].clone().requires_grad_()
        parts = hasher.loss(batch, rows, state)
        sum(parts.values()).backward()
        losses.append((*parts.values(), batch.grad, state.tensors["U"]))
    for mine, theirs in zip(*losses, strict=True):
        assert torch.equal(mine, theirs)


@both_kinds
def test_dsdh_a_is_dpsh_by_loops(labels, float64):
    state, outputs = make_state(labels), random_outputs(labels).requires_grad_()
    hasher = DSDHA(BITS)
    hasher.prepare(state)
    parts = hasher.loss(outputs, all_rows(labels), state)
    H, s = outputs.detach().numpy().T, reference.share_a_label(labels)
    B = np.where(H >= 0, 1.0, -1.0)
    scale = 1 / (7 * len(labels))
    quantisation = 55 * sum((B[k, i] - H[k, i]) ** 2 for k, i in np.ndindex(B.shape))
    assert parts["pair"].item() == pytest.approx(scale * reference.pair_term(H, s), rel=1e-12)
    assert parts["quantisation"].item() == pytest.approx(scale * quantisation, rel=1e-12)
    sum(parts.values()).backward()
    expected = scale * reference.gradient(H, B, s, 55.0)
    np.testing.assert_allclose(outputs.grad.numpy().T, expected, rtol=1e-10, atol=1e-13)


def test_both_runs_give_the_same_codes():
    features = np.random.default_rng(0).standard_normal((30, 4))
    options = {"epochs": 2, "batch_size": 8, "eta": 3.0}
    outputs = [
        bp.create(name, bits=16, **options).fit(features, np.arange(30) % 3).project(features)
        for name in ("dsdh-a", "dpsh")
    ]
    np.testing.assert_array_equal(*outputs)


def test_a_strong_pull_drives_outputs_to_plus_or_minus_one():
    features = np.random.default_rng(0).standard_normal((20, 8))
    labels = np.arange(20) % 2
    spread = {}
    for eta in (0.0, 1000.0):
        hasher = bp.create(
            "dpsh",
            bits=6,
            eta=eta,
            epochs=300,
            batch_size=20,
            optimizer="adamw",
            lr=3e-3,
            schedule="cosine",
            weight_decay=0.0,
            noise=0.0,
        )
        outputs = hasher.fit(features, labels).project(features)
        spread[eta] = np.abs(np.abs(outputs) - 1).max()
    assert spread[1000.0] < 0.02
    assert spread[0.0] > 0.5


# ---- DSDH-B


def cross_entropy_by_loops(logits, labels):
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        if labels.ndim == 1:
            total += np.log(sum(np.exp(row - row.max()))) + row.max() - row[label]
        else:
            for value, present in zip(row, label, strict=True):
                total += reference.log1p_exp(value) - present * value
    return total


@both_kinds
def test_dsdh_b_has_the_cross_entropy_of_its_labels(labels, float64):
    state, outputs = make_state(labels, batch_size=9), random_outputs(labels, BITS + 3)
    hasher = DSDHB(BITS, mu=0.5)
    hasher.prepare(state)
    parts = hasher.loss(outputs, all_rows(labels), state)
    expected = 0.5 * cross_entropy_by_loops(outputs[:, BITS:].numpy(), labels) / 9
    assert parts["classification"].item() == pytest.approx(expected, rel=1e-12)
    alone = make_state(labels, batch_size=9)
    DSDHA(BITS).prepare(alone)
    hashed = DSDHA(BITS).loss(outputs[:, :BITS], all_rows(labels), alone)
    assert parts["pair"] == hashed["pair"]
    assert parts["quantisation"] == hashed["quantisation"]


@both_kinds
def test_streams_of_dsdh_b_share_only_the_backbone(labels):
    hasher = DSDHB(BITS)
    torch.manual_seed(0)
    net = HashNetwork(MLP(4, [6]), hasher.make_head(6, 3))
    items = random_outputs(labels, 4).float()
    for stream, own, other in (
        ("classification", slice(BITS, None), slice(0, BITS)),
        ("pair", slice(0, BITS), slice(BITS, None)),
        ("quantisation", slice(0, BITS), slice(BITS, None)),
    ):
        state = make_state(labels)
        state.classes = state.classes.float()
        hasher.prepare(state)
        net.zero_grad()
        hasher.loss(net(items), all_rows(labels), state)[stream].backward()
        for head in (net.head.weight.grad, net.head.bias.grad):
            assert torch.count_nonzero(head[own]) > 0
            assert torch.count_nonzero(head[other]) == 0
        assert torch.count_nonzero(net.trunk.layers[0].weight.grad) > 0


def test_codes_of_dsdh_b_come_from_the_hash_stream_alone():
    features = np.random.default_rng(0).standard_normal((30, 4))
    hasher = bp.create("dsdh-b", bits=6, epochs=1).fit(features, np.arange(30) % 3)
    before = hasher.encode(features)
    assert before.bits == 6
    with torch.no_grad():
        hasher.net_.head.weight[6:] = 7.0
    assert hasher.encode(features) == before


# ---- DSDH-C


@both_kinds
def test_gradient_of_dsdh_c_by_finite_differences(labels, float64):
    mu, nu = 1.3, 0.4
    state = make_state(labels)
    outputs = random_outputs(labels).requires_grad_()
    hasher = DSDHC(BITS, mu=mu, nu=nu)
    hasher.prepare(state)
    W = torch.randn(BITS, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    state.tensors["W"] = W
    parts = hasher.loss(outputs, all_rows(labels), state)
    assert set(parts) == {"pair", "classification"}
    sum(parts.values()).backward()
    H, Y = outputs.detach().numpy().T, state.classes.numpy().T
    s = reference.share_a_label(labels)

    def objective(H):
        residual = Y - W.numpy().T @ H
        return reference.pair_term(H, s) + mu * (residual**2).sum() + nu * (W.numpy() ** 2).sum()

    found = 7 * len(labels) * outputs.grad.numpy().T
    np.testing.assert_allclose(
        found, reference.finite_differences(objective, H), rtol=1e-6, atol=1e-6
    )
    by_hand = reference.gradient(H, H, s, 0.0) - 2 * mu * W.numpy() @ (Y - W.numpy().T @ H)
    np.testing.assert_allclose(found, by_hand, rtol=1e-10, atol=1e-12)


@both_kinds
def test_classifier_of_dsdh_c_is_stationary_on_the_real_outputs(labels):
    mu, nu = 1.3, 0.4
    state, outputs = make_state(labels), random_outputs(labels)
    state.tensors["U"] = outputs
    DSDHC(BITS, mu=mu, nu=nu).after_epoch(state)
    H, W, Y = outputs.numpy(), state.tensors["W"].numpy(), state.classes.numpy()
    assert np.abs(-2 * mu * H.T @ (Y - H @ W) + 2 * nu * W).max() < 1e-10
    assert np.abs(W).max() > 0.01


def test_dsdh_c_begins_without_a_classifier():
    state = make_state(ONE)
    DSDHC(BITS).prepare(state)
    assert torch.equal(state.tensors["W"], torch.zeros(BITS, 3))
