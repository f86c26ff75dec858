"""DSCH and DRSCH against plain loops; truncation and weighted distances."""

import math

import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.methods import METHODS
from bitprint.methods.drsch import DRSCH, DSCH, WeightedHead
from bitprint.supervision import class_matrix
from bitprint.training.plan import Training
from bitprint.training.state import State

BITS = 4
ONE = np.array([0, 1, 1, 2, 0, 2, 1])
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
both_kinds = pytest.mark.parametrize("labels", [ONE, SEVERAL], ids=["one label", "several labels"])
both_methods = pytest.mark.parametrize("cls", [DSCH, DRSCH])


@pytest.fixture
def float64():
    """Use float64 in the tested code, for an exact comparison with NumPy."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_state(hasher, labels, epochs=0):
    classes = class_matrix(labels)
    shown = labels if labels.ndim == 1 else classes
    state = State(torch.from_numpy(shown), torch.from_numpy(classes).double(), batch_size=7)
    hasher.prepare(state)
    for _ in range(epochs):
        hasher.after_epoch(state)
    return state


def random_outputs(count, bits=BITS, seed=0, spread=0.3):
    """Return outputs v and one row of weights."""
    rng = np.random.default_rng(seed)
    hashed = spread * rng.standard_normal((count, bits))
    weights = np.broadcast_to(rng.uniform(0.5, 1.5, bits), (count, bits))
    return torch.from_numpy(np.concatenate([hashed, weights], axis=1))


def share_a_label(labels, i, j):
    return labels[i] == labels[j] if labels.ndim == 1 else np.any(labels[i] & labels[j])


def parts_by_loops(outputs, labels, beta=5.0, threshold=-5.0, consistency=0.001):
    """Return the triplet sum and the Laplacian term, divided by the number of triplets."""
    bits = outputs.shape[1] // 2
    x = [
        [row[bits + k] * (2 / (1 + math.exp(-beta * row[k])) - 1) for k in range(bits)]
        for row in outputs.tolist()
    ]

    def distance(i, j):
        return sum((a - b) ** 2 for a, b in zip(x[i], x[j], strict=True))

    count, everyone = 0, range(len(x))
    triplets = 0.0
    for i in everyone:
        for p in everyone:
            for n in everyone:
                if p != i and n != i and share_a_label(labels, i, p):
                    if share_a_label(labels, i, n):
                        continue
                    count += 1
                    triplets += max(distance(i, p) - distance(i, n), threshold)
    A = [[1.0 if share_a_label(labels, i, j) else 0.001 for j in everyone] for i in everyone]
    laplacian = np.diag(np.sum(A, axis=1)) - np.array(A)
    trace = np.trace(np.array(x).T @ laplacian @ np.array(x))
    return triplets / max(count, 1), consistency * trace / max(count, 1)


# ---- the loss


@both_kinds
@pytest.mark.parametrize("threshold", [-5.0, -0.3])
def test_loss_by_loops(labels, threshold, float64):
    outputs = random_outputs(len(labels))
    hasher = DRSCH(BITS, threshold=threshold, consistency=0.7)
    parts = hasher.loss(outputs, torch.arange(len(labels)), make_state(hasher, labels))
    triplet, consistency = parts_by_loops(outputs, labels, threshold=threshold, consistency=0.7)
    assert parts["triplet"].item() == pytest.approx(triplet, rel=1e-11)
    assert parts["consistency"].item() == pytest.approx(consistency, rel=1e-11)


@both_kinds
def test_without_its_regulariser_it_is_dsch(labels, float64):
    outputs, rows = random_outputs(len(labels)), torch.arange(len(labels))
    with_it, without = DRSCH(BITS, consistency=0.0), DSCH(BITS)
    parts = with_it.loss(outputs, rows, make_state(with_it, labels))
    alone = without.loss(outputs, rows, make_state(without, labels))
    assert list(alone) == ["triplet"]
    assert parts["triplet"] == alone["triplet"]
    assert parts["consistency"] == 0


@both_kinds
def test_gradient_by_finite_differences(labels, float64):
    """Gradient for outputs and weights, with triplets on both sides of the threshold."""
    start = random_outputs(len(labels), seed=1)
    hasher = DRSCH(BITS, threshold=-0.4, consistency=0.5)
    state, rows = make_state(hasher, labels), torch.arange(len(labels))

    def total(outputs):
        return sum(hasher.loss(outputs, rows, state).values())

    outputs = start.clone().requires_grad_()
    total(outputs).backward()
    step = 1e-6
    for i, k in np.ndindex(*start.shape):
        moved = [start.clone(), start.clone()]
        moved[0][i, k] += step
        moved[1][i, k] -= step
        slope = (total(moved[0]) - total(moved[1])).item() / (2 * step)
        assert outputs.grad[i, k].item() == pytest.approx(slope, rel=1e-5, abs=1e-8)


def test_value_by_hand(float64):
    """Saturated codes of one bit of weight 2: distances 0 (similar) and 16 (dissimilar)."""
    outputs = torch.tensor([[50.0, 2.0], [50.0, 2.0], [-50.0, 2.0]])
    labels, rows = np.array([0, 0, 1]), torch.arange(3)
    hasher = DRSCH(1, threshold=-100.0, consistency=1.0)
    parts = hasher.loss(outputs, rows, make_state(hasher, labels))
    assert parts["triplet"].item() == pytest.approx(-16)  # two triplets of -16 each
    assert parts["consistency"].item() == pytest.approx(2 * 0.001 * 16 / 2)
    hasher = DRSCH(1, threshold=-5.0)
    assert hasher.loss(outputs, rows, make_state(hasher, labels))["triplet"].item() == -5


def test_triplets_below_the_threshold_have_no_gradient(float64):
    labels, rows = np.array([0, 0, 1]), torch.arange(3)
    for threshold, moves in ((-5.0, True), (-0.5, False)):
        outputs = torch.tensor([[0.3, 1.0], [0.2, 1.0], [-0.3, 1.0]], requires_grad=True)
        hasher = DSCH(1, threshold=threshold)
        hasher.loss(outputs, rows, make_state(hasher, labels))["triplet"].backward()
        assert bool(outputs.grad.any()) == moves


@both_methods
@both_kinds
def test_order_of_the_batch_does_not_matter(cls, labels, float64):
    hasher = cls(BITS)
    state, outputs = make_state(hasher, labels), random_outputs(len(labels))
    rows = torch.arange(len(labels))
    order = torch.tensor([4, 1, 6, 0, 5, 3, 2])
    one = hasher.loss(outputs, rows, state)
    other = hasher.loss(outputs[order], rows[order], state)
    for name, value in one.items():
        assert other[name].item() == pytest.approx(value.item(), rel=1e-12)


@both_methods
@pytest.mark.parametrize("labels", [np.zeros(4, int), np.arange(4), np.zeros((4, 2), int)])
def test_a_batch_without_triplets_is_harmless(cls, labels):
    hasher = cls(BITS)
    outputs = random_outputs(4).float().requires_grad_()
    parts = hasher.loss(outputs, torch.arange(4), make_state(hasher, labels))
    assert parts["triplet"].item() == 0
    torch.stack(list(parts.values())).sum().backward()
    assert torch.isfinite(outputs.grad).all()


# ---- annealing


def test_tanh_and_logistic_are_the_same():
    hasher = DSCH(BITS, beta=3.0)
    outputs = random_outputs(9, spread=2.0)
    found = hasher.weighted_codes(outputs, make_state(hasher, np.arange(9)))
    expected = outputs[:, BITS:] * (2 / (1 + torch.exp(-3.0 * outputs[:, :BITS])) - 1)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_beta_grows_and_the_threshold_falls_stage_by_stage(float64):
    labels = ONE
    outputs = random_outputs(len(labels), spread=3.0)
    hasher = DSCH(BITS, stages=3, threshold=-4.0, training=Training(epochs=7))
    seen = []
    for epochs in range(7):
        state = make_state(hasher, labels, epochs)
        stage = 3 * epochs // 7
        loss = hasher.loss(outputs, torch.arange(len(labels)), state)["triplet"].item()
        expected, _ = parts_by_loops(outputs, labels, 5 * 1.1**stage, -4 - 0.1 * stage)
        assert loss == pytest.approx(expected, rel=1e-11)
        seen.append(loss)
    assert len(set(seen)) == 3


# ---- truncation and weights


def blobs():
    rng = np.random.default_rng(0)
    return rng.standard_normal((40, 64)), np.repeat(np.arange(4), 10)


@pytest.fixture(scope="module")
def fitted():
    """A model trained briefly, with different weights set by hand."""
    features, labels = blobs()
    training = Training(epochs=3, batch_size=20, per_class=5, lr=0.05, schedule="constant")
    hasher = DRSCH(8, training=training).fit(features, labels)
    with torch.no_grad():
        hasher.net_.head.weights.copy_(torch.tensor([0.5, -2.0, 1.5, 0.1, 0.7, -0.2, 1.1, 0.9]))
    return hasher


STRENGTH = [1, 2, 6, 7, 4, 0, 5, 3]


def test_the_head_repeats_its_weights_in_every_row():
    head = WeightedHead(6, 3)
    outputs = head(torch.ones(5, 6))
    assert outputs.shape == (5, 6)
    assert torch.equal(outputs[:, 3:], torch.ones(5, 3))
    outputs[:, 3:].sum().backward()
    assert torch.equal(head.weights.grad, torch.full((3,), 5.0))


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_truncation_keeps_the_bits_of_the_largest_weights(fitted, bits):
    features, _ = blobs()
    short = fitted.truncate(bits)
    assert short.bits == bits
    np.testing.assert_array_equal(
        short.encode(features).signs(), fitted.encode(features).signs()[:, STRENGTH[:bits]]
    )
    assert fitted.bits == 8
    assert fitted.encode(features).bits == 8


def test_truncating_twice_is_truncating_once(fitted):
    features, _ = blobs()
    assert fitted.truncate(6).truncate(2).encode(features) == fitted.truncate(2).encode(features)


def test_truncation_drops_the_lightest_bits(fitted):
    features, _ = blobs()
    codes = fitted.encode(features)
    whole = fitted.weigh(codes).distances(codes)
    short = fitted.truncate(5)
    kept = short.weigh(short.encode(features)).distances(short.encode(features))
    dropped = np.array([0.5, -0.2, 0.1]) ** 2
    assert -1e-6 <= (whole - kept).min() <= (whole - kept).max() <= dropped.sum() + 1e-6
    weights = fitted.net_.head.weights.detach().numpy()
    assert np.sort(weights**2)[:3].sum() == pytest.approx(dropped.sum(), rel=1e-6)


def test_weighted_distance_is_that_of_weighted_codes(fitted):
    features, _ = blobs()
    codes = fitted.encode(features)
    x = codes.signs() * fitted.net_.head.weights.detach().numpy()
    found = fitted.weigh(codes).distances(codes[:3])
    for q, i in np.ndindex(3, 40):
        assert found[q, i] == pytest.approx(((x[q] - x[i]) ** 2).sum() / 4, rel=1e-5, abs=1e-6)


def test_a_truncated_model_can_be_saved(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "drsch", DRSCH)
    features, _ = blobs()
    short = fitted.truncate(3)
    short.save(tmp_path)
    loaded = bp.load(tmp_path)
    assert loaded.bits == 3
    np.testing.assert_array_equal(loaded.project(features), short.project(features))


def test_truncation_is_refused_in_one_sentence(fitted):
    with pytest.raises(ValueError, match="8 bits cannot be truncated to 9"):
        fitted.truncate(9)
    with pytest.raises(ValueError, match="bits must be an integer"):
        fitted.truncate(0)


# ---- training


@both_methods
@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
def test_overfits_noise(cls, several):
    features, labels = blobs()
    if several:
        labels = np.stack([labels < 2, labels % 3 == 0], axis=1).astype(int)
    training = Training(
        epochs=60, batch_size=20, per_class=5, lr=2e-3, optimizer="adamw", schedule="cosine"
    )
    hasher = cls(12, training=training).fit(features, labels)
    codes = hasher.encode(features)
    assert bp.evaluate(codes, labels, codes, labels).map > 0.95
    assert bp.evaluate(codes, labels, hasher.weigh(codes), labels).map > 0.95
    assert hasher.net_.head.weights.detach().std() > 0  # the weights are learned


@both_methods
def test_saved_and_loaded(cls, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, cls.name, cls)
    features, labels = blobs()
    hasher = bp.create(cls.name, bits=6, epochs=2, beta=4.0).fit(features, labels)
    hasher.save(tmp_path)
    loaded = bp.load(tmp_path)
    assert loaded.encode(features) == hasher.encode(features)
    codes = hasher.encode(features)
    np.testing.assert_array_equal(loaded.weigh(codes).weights, hasher.weigh(codes).weights)
    assert loaded.get_params()["beta"] == 4.0


class Stops(DRSCH):
    stop_after = 3

    def after_epoch(self, state):
        if self.stop_after == 0:
            raise KeyboardInterrupt
        self.stop_after -= 1
        return super().after_epoch(state)


def test_killed_run_resumes_at_its_stage(tmp_path):
    features, labels = blobs()
    options = {"stages": 5, "training": Training(epochs=5, batch_size=20, per_class=5, lr=0.01)}
    expected = DRSCH(6, **options).fit(features, labels).project(features)
    with pytest.raises(KeyboardInterrupt):
        Stops(6, **options).fit(features, labels, run=tmp_path / "run")
    resumed = DRSCH(6, **options).fit(features, labels, run=tmp_path / "run")
    np.testing.assert_array_equal(resumed.project(features), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "beta must be a number > 0"),
        ({"threshold": 0.0}, "threshold must be a number < 0, got 0.0"),
        ({"threshold": math.nan}, "threshold must be"),
        ({"stages": 0}, "stages must be at least 1"),
        ({"consistency": -1.0}, "consistency must be a number >= 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        DRSCH(4, **options).fit(*blobs())
