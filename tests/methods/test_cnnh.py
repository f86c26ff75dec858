"""CNNH: factorization against brute force, losses against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bitprint as bp
from bitprint.methods.cnnh import (
    CNNH,
    CNNHPlus,
    factorize,
    group_by_labels,
    label_sums,
    quartic_minimum,
    sweep,
)
from bitprint.supervision import class_matrix
from bitprint.training.plan import Training
from bitprint.training.state import State

BITS = 5
ONE = np.array([0, 4, 4, 2, 0, 2, 4])  # class numbers with gaps
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
both_kinds = pytest.mark.parametrize("labels", [ONE, SEVERAL], ids=["one label", "several labels"])
both_methods = pytest.mark.parametrize("method", [CNNH, CNNHPlus])


def signed_similarity(labels):
    """S by loops: +1 if two images share a label, else -1."""
    S = np.empty((len(labels), len(labels)))
    for i, j in np.ndindex(S.shape):
        shared = labels[i] == labels[j] if labels.ndim == 1 else (labels[i] & labels[j]).any()
        S[i, j] = 1 if shared else -1
    return S


def objective(factors, labels):
    bits = factors.shape[1]
    return np.square(bits * signed_similarity(labels) - factors @ factors.T).sum()


def random_factors(labels, bits=BITS, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (len(labels), bits))


def run_sweep(factors, labels, rows, columns):
    groups = group_by_labels(labels)
    sums, gram = label_sums(factors, groups), factors.T @ factors
    sweep(factors, sums, gram, np.array(rows), np.array(columns), *groups)
    return sums, gram


def random_labels(kind, count=60, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "one label":
        return rng.integers(0, 5, count)
    return (rng.random((count, 6)) < 0.25).astype(np.uint8)


# ---- stage 1: one coordinate


@settings(deadline=None)  # the first call compiles
@given(p=st.floats(-8, 8), q=st.floats(-8, 8), now=st.floats(-1, 1))
def test_quartic_minimum_matches_a_fine_grid(p, q, now):
    def cost(x):
        return x**4 + 2 * p * x**2 - 4 * q * x

    x = quartic_minimum(p, q, now)
    assert -1 <= x <= 1
    assert cost(x) <= cost(np.linspace(-1, 1, 2001)).min() + 1e-12


def test_quartic_minimum_by_hand():
    assert quartic_minimum(1.0, 2.0, 0.0) == 1  # 1 + 1 - 2 = 0, at the bound
    assert quartic_minimum(0.0, -0.125, 1.0) == pytest.approx(-0.5)  # x^3 = -1/8
    assert quartic_minimum(3.0, 0.0, -1.0) == 0
    assert quartic_minimum(-0.25, 0.0, -0.1) == pytest.approx(-0.5)  # the nearer of two minimizers
    assert quartic_minimum(-0.25, 0.0, 0.1) == pytest.approx(0.5)


@both_kinds
def test_one_coordinate_is_set_to_its_minimum(labels):
    """The quartic of a sweep equals the objective along each coordinate."""
    start, target = random_factors(labels), BITS * signed_similarity(labels)
    grid = np.linspace(-1, 1, 201)
    for i, j in np.ndindex(start.shape):
        factors = start.copy()
        run_sweep(factors, labels, [i], [j])
        others = np.ones(start.shape, bool)
        others[i, j] = False
        np.testing.assert_array_equal(factors[others], start[others])
        costs = []
        for x in [factors[i, j], *grid]:
            trial = start.copy()
            trial[i, j] = x
            costs.append(np.square(target - trial @ trial.T).sum())
        assert costs[0] <= min(costs) + 1e-9


@both_kinds
def test_the_derivative_that_the_paper_gives_is_zero_there(labels):
    """g' = 4 L_i . h is zero or points out of [-1, 1], L = H H' - K S; and g'' >= 0."""
    start, target = random_factors(labels), BITS * signed_similarity(labels)
    for i, j in np.ndindex(start.shape):
        H = start.copy()
        run_sweep(H, labels, [i], [j])
        L, h = H @ H.T - target, H[:, j]
        if abs(h[i]) == 1:
            assert L[i] @ h * h[i] <= 1e-9
        else:
            assert abs(L[i] @ h) < 1e-9
            assert h @ h + h[i] ** 2 + L[i, i] >= -1e-9


# ---- stage 1: sweeps


@pytest.mark.parametrize("kind", ["one label", "several labels"])
def test_sums_of_a_sweep_match_its_result(kind):
    labels = random_labels(kind)
    factors = random_factors(labels)
    rng = np.random.default_rng(1)
    sums, gram = run_sweep(factors, labels, rng.permutation(60), rng.permutation(BITS))
    np.testing.assert_allclose(gram, factors.T @ factors, atol=1e-10)
    np.testing.assert_allclose(sums, label_sums(factors, group_by_labels(labels)), atol=1e-10)


@pytest.mark.parametrize("kind", ["one label", "several labels"])
def test_objective_never_increases_over_sweeps(kind):
    labels = random_labels(kind)
    values = [objective(factorize(labels, 8, sweeps=n, seed=3), labels) for n in range(6)]
    assert np.all(np.diff(values) <= 1e-9 * values[0])
    assert values[-1] < 0.8 * values[0]


@both_kinds
def test_groups_match_the_similarity_matrix(labels):
    groups = group_by_labels(labels)
    found = -np.ones((len(labels), len(labels)))
    for i, j in np.ndindex(found.shape):
        start, stop = groups.bounds[groups.member[i]], groups.bounds[groups.member[i] + 1]
        if groups.member[j] in groups.partners[start:stop]:
            found[i, j] = 1
    np.testing.assert_array_equal(found, signed_similarity(labels))


def test_many_label_sets_in_several_blocks(monkeypatch):
    labels = random_labels("several labels")
    whole = group_by_labels(labels)
    monkeypatch.setattr("bitprint.methods.cnnh._BLOCK", 7)
    for one, other in zip(whole, group_by_labels(labels), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("bits", "classes"), [(4, 4), (12, 10), (48, 10)])
def test_codes_of_stage_1_separate_all_classes(bits, classes, seed):
    labels = np.arange(300) % classes
    factors = factorize(labels, bits, seed=seed)
    assert np.abs(factors).max() <= 1
    codes = bp.Codes.from_signs(factors >= 0)
    assert bp.evaluate(codes, labels, codes, labels).map == pytest.approx(1, abs=1e-6)


def test_codes_of_stage_1_are_near_where_labels_are_shared():
    labels = random_labels("several labels")
    codes = bp.Codes.from_signs(factorize(labels, 24) >= 0)
    distances, similar = codes.hamming(codes), signed_similarity(labels) > 0
    assert distances[similar].mean() < distances[~similar].mean() / 2


def test_the_seed_decides():
    labels = random_labels("one label")
    np.testing.assert_array_equal(factorize(labels, 6, seed=4), factorize(labels, 6, seed=4))
    assert not np.array_equal(factorize(labels, 6, seed=4), factorize(labels, 6, seed=5))


# ---- stage 2


def make_state(method, labels, batch_size=9, **options):
    classes = torch.from_numpy(class_matrix(labels))
    shown = torch.from_numpy(labels) if labels.ndim == 1 else classes
    state = State(shown, classes, batch_size)
    hasher = method(BITS, **options)
    hasher.prepare(state)
    state.classes = state.classes.double()
    state.tensors["B"] = state.tensors["B"].double()
    return hasher, state


def random_outputs(state, seed=0):
    generator = torch.Generator().manual_seed(seed)
    width = BITS + state.classes.shape[1]
    return torch.randn(len(state), width, generator=generator, dtype=torch.float64)


def entropy_by_loops(logits, targets):
    """Loss of independent sigmoids: -t log p - (1 - t) log(1 - p)."""
    total = 0.0
    for value, target in zip(logits.ravel(), targets.ravel(), strict=True):
        share = 1 / (1 + np.exp(-value))
        total -= np.log(share) if target else np.log(1 - share)
    return total


def classification_by_loops(logits, labels):
    if labels.ndim == 2:
        return entropy_by_loops(logits, labels)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return -sum(np.log(shares[i, label]) for i, label in enumerate(labels))


@both_kinds
def test_targets_are_the_signs_of_the_factors(labels):
    _, state = make_state(CNNH, labels, seed=6, sweeps=2)
    factors = factorize(labels, BITS, sweeps=2, seed=6)
    np.testing.assert_array_equal(state.tensors["B"].numpy(), np.where(factors >= 0, 1, -1))


@both_kinds
def test_losses_by_loops(labels):
    hasher, state = make_state(CNNHPlus, labels, mu=0.5)
    outputs = random_outputs(state)
    rows = torch.tensor([5, 0, 3, 6])
    parts = hasher.loss(outputs[rows], rows, state)
    batch, targets = outputs[rows].numpy(), state.tensors["B"][rows].numpy() > 0
    codes = entropy_by_loops(batch[:, :BITS], targets) / 9
    assert parts["codes"].item() == pytest.approx(codes, rel=1e-12)
    labelled = 0.5 * classification_by_loops(batch[:, BITS:], labels[rows.numpy()]) / 9
    assert parts["classification"].item() == pytest.approx(labelled, rel=1e-12)
    plain, state = make_state(CNNH, labels)
    alone = plain.loss(outputs[rows], rows, state)
    assert alone.keys() == {"codes"}
    assert alone["codes"] == parts["codes"]


def test_loss_of_undecided_outputs_by_hand():
    hasher, state = make_state(CNNH, ONE, batch_size=7)
    parts = hasher.loss(torch.zeros(7, BITS), torch.arange(7), state)
    assert parts["codes"].item() == pytest.approx(BITS * np.log(2))


@both_methods
@both_kinds
def test_gradient_by_finite_differences(method, labels):
    hasher, state = make_state(method, labels)
    rows = torch.arange(len(labels))

    def total(outputs):
        return torch.stack(list(hasher.loss(outputs, rows, state).values())).sum()

    assert torch.autograd.gradcheck(total, random_outputs(state).requires_grad_())


@both_methods
@both_kinds
def test_order_of_the_batch_and_other_rows_do_not_matter(method, labels):
    hasher, state = make_state(method, labels)
    outputs, order = random_outputs(state), torch.tensor([3, 6, 0, 1, 5, 2, 4])
    whole = hasher.loss(outputs, torch.arange(7), state)
    shuffled = hasher.loss(outputs[order], order, state)
    for name, value in whole.items():
        assert value.item() == pytest.approx(shuffled[name].item(), rel=1e-12)
        singles = [hasher.loss(outputs[[i]], torch.tensor([i]), state)[name] for i in range(7)]
        assert value.item() == pytest.approx(sum(singles).item(), rel=1e-12)


def test_a_batch_of_one_image_without_labels_has_a_gradient():
    hasher, state = make_state(CNNHPlus, SEVERAL)
    outputs = random_outputs(state)[6:].requires_grad_()
    sum(hasher.loss(outputs, torch.tensor([6]), state).values()).backward()
    assert torch.isfinite(outputs.grad).all()
    assert (outputs.grad != 0).all()


# ---- the method

RECIPE = Training(epochs=60, batch_size=10, optimizer="adamw", lr=2e-3, schedule="cosine")
LABELS = np.repeat(np.arange(4), 10)


@both_methods
def test_overfits_noise_and_loads(method, tmp_path, monkeypatch):
    features = np.random.default_rng(0).standard_normal((40, 64))
    hasher = method(12, training=RECIPE).fit(features, LABELS)
    codes = hasher.encode(features)
    assert bp.evaluate(codes, LABELS, codes, LABELS).map > 0.95
    hasher.save(tmp_path)
    monkeypatch.setitem(bp.methods.METHODS, method.name, method)
    assert bp.load(tmp_path).encode(features) == codes


@both_methods
def test_overfits_several_labels(method):
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 0]])[LABELS]
    features = np.random.default_rng(1).standard_normal((40, 64))
    hasher = method(12, training=RECIPE).fit(features, labels)
    expected = factorize(class_matrix(labels), 12) >= 0
    assert np.mean((hasher.project(features) >= 0) == expected) > 0.98


def test_more_likely_bits_are_further_from_zero():
    """Outputs are logits: their sign is the more likely bit."""
    features = np.random.default_rng(0).standard_normal((40, 64))
    outputs = CNNH(12, training=RECIPE).fit(features, LABELS).project(features)
    signs = np.where(factorize(LABELS, 12) >= 0, 1, -1)
    assert np.all(signs * outputs > 0)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (CNNH, {"sweeps": 0}, "sweeps must be at least 1"),
        (CNNHPlus, {"mu": -1.0}, "mu must be a number >= 0"),
    ],
)
def test_refusals(method, options, message):
    with pytest.raises(ValueError, match=message):
        method(4, **options).fit(np.eye(6), [0, 0, 0, 1, 1, 1])
