"""DQN against plain loops: loss, codebooks, codes and ranking."""

import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.data import load_digits
from bitprint.experiments.cells import Cell, run_cell
from bitprint.methods import METHODS
from bitprint.methods.dqn import DQN, cosine_loss
from bitprint.methods.product import lloyd
from bitprint.quantised import QuantisedCodes
from bitprint.supervision import class_matrix, similarity
from bitprint.training.plan import Training
from bitprint.training.state import State

ONE = np.array([0, 1, 1, 2, 0, 2, 1])
SEVERAL = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0]])
both_kinds = pytest.mark.parametrize("labels", [ONE, SEVERAL], ids=["one label", "several labels"])


@pytest.fixture
def float64():
    """Use float64 in the tested code, for an exact comparison with NumPy."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_state(hasher, labels, batch_size=7):
    classes = class_matrix(labels)
    shown = labels if labels.ndim == 1 else classes
    state = State(torch.from_numpy(shown), torch.from_numpy(classes).double(), batch_size)
    hasher.prepare(state)
    return state


def random_outputs(count, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.tanh(torch.randn(count, width, generator=generator, dtype=torch.float64))


def small(**options):
    """Three codebooks of eight entries of length 2."""
    return DQN(**({"bits": 9, "width": 6, "quantisation": 0.3} | options))


def quantised_state(hasher, labels, batch_size=7):
    """Return a state as after the first cycle, with codebooks and entries."""
    state = make_state(hasher, labels, batch_size)
    state.tensors["Z"] = random_outputs(len(labels), 6, seed=5)
    hasher._update_codebooks(state)
    return state


def noise():
    return np.random.default_rng(0).standard_normal((40, 64)), np.repeat(np.arange(4), 10)


QUICK = Training(epochs=5, batch_size=10, lr=1e-2)


# ---- the quantizer


@pytest.mark.parametrize(
    ("bits", "shape"),
    [
        (12, (2, 64, 150)),
        (16, (2, 256, 150)),
        (24, (3, 256, 100)),
        (32, (4, 256, 75)),
        (48, (6, 256, 50)),
        (64, (8, 256, 38)),
        (1, (1, 2, 300)),
        (7, (1, 128, 300)),
        (13, (13, 2, 24)),
    ],
)
def test_codebooks_of_equal_size_make_up_the_bits(bits, shape):
    books, entries, width = DQN(bits).quantiser_shape()
    assert (books, entries, width) == shape
    assert books * np.log2(entries) == bits
    assert books * width >= 300


# ---- the loss


@both_kinds
def test_cosine_loss_by_loops(labels):
    z = random_outputs(7, 5).numpy()
    expected = 0.0
    for i, j in np.ndindex(7, 7):
        if i != j:
            cosine = z[i] @ z[j] / np.sqrt(z[i] @ z[i]) / np.sqrt(z[j] @ z[j])
            shared = labels[i] == labels[j] if labels.ndim == 1 else np.any(labels[i] & labels[j])
            expected += ((1 if shared else -1) - cosine) ** 2
    similar = torch.from_numpy(similarity(labels, labels))
    assert cosine_loss(torch.from_numpy(z), similar).item() == pytest.approx(expected, rel=1e-12)


@both_kinds
def test_loss_by_loops(labels, float64):
    """The loss of a partial batch is divided by the nominal batch size."""
    hasher = small()
    state = quantised_state(hasher, labels, batch_size=6)
    rows = torch.tensor([5, 1, 2, 6])
    z = random_outputs(4, 6)
    C, h = state.tensors["C"].clone(), state.tensors["h"].clone()
    parts = hasher.loss(z, rows, state)
    error = 0.0
    for i, row in enumerate(rows.tolist()):
        for k in range(6):
            error += (z[i, k] - C[k // 2, h[row, k // 2], k % 2]).item() ** 2
    assert parts["quantisation"].item() == pytest.approx(0.3 * error / 6, rel=1e-12)
    similar = torch.from_numpy(similarity(labels[rows.numpy()], labels[rows.numpy()]))
    assert parts["pair"].item() == pytest.approx(cosine_loss(z, similar).item() / 30, rel=1e-12)
    assert torch.equal(state.tensors["Z"][rows], z)


def test_value_by_hand(float64):
    hasher = small(quantisation=2.0)
    state = make_state(hasher, np.array([0, 0, 1]), batch_size=3)
    state.tensors["quantised"] = torch.ones(())
    state.tensors["C"][0, 1] = torch.tensor([1.0, 0.0])
    state.tensors["h"][0, 0] = 1
    z = torch.zeros(3, 6)
    z[0, 0], z[1, 1], z[2, 0] = 0.5, 0.5, -0.5
    parts = hasher.loss(z, torch.arange(3), state)
    # Cosines 0, -1 and 0 with targets 1, -1 and -1, each in both orders, over six pairs.
    assert parts["pair"].item() == pytest.approx((1 + 0 + 1) / 3)
    assert parts["quantisation"].item() == pytest.approx(2 * (0.25 + 0.25 + 0.25) / 3)


@both_kinds
def test_gradient_by_finite_differences(labels, float64):
    hasher = small()
    state, rows = quantised_state(hasher, labels), torch.arange(7)
    start = random_outputs(7, 6, seed=1)

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
        assert outputs.grad[i, k].item() == pytest.approx(slope, rel=1e-5, abs=1e-9)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels, float64):
    hasher = small()
    state, z = quantised_state(hasher, labels), random_outputs(7, 6)
    rows, order = torch.arange(7), torch.tensor([4, 1, 6, 0, 5, 3, 2])
    one, other = hasher.loss(z, rows, state), hasher.loss(z[order], rows[order], state)
    for name, value in one.items():
        assert other[name].item() == pytest.approx(value.item(), rel=1e-12)


def test_the_loss_does_not_depend_on_the_length_of_outputs():
    similar = torch.from_numpy(similarity(ONE, ONE))
    z = random_outputs(7, 5)
    lengths = torch.arange(1, 8)[:, None]
    assert cosine_loss(z * lengths, similar).item() == pytest.approx(cosine_loss(z, similar).item())


def test_outputs_of_zero_and_batches_without_pairs_are_harmless():
    for count in (1, 3):
        z = torch.zeros(count, 6, requires_grad=True)
        hasher = small()
        state = make_state(hasher, np.array([0, 1, 0]))
        parts = hasher.loss(z, torch.arange(count), state)
        torch.stack(list(parts.values())).sum().backward()
        assert torch.isfinite(z.grad).all()
    alone = hasher.loss(random_outputs(1, 6).float(), torch.tensor([1]), state)
    assert alone["pair"].item() == pytest.approx(0, abs=1e-6)


# ---- cycles


def test_codebooks_are_updated_every_second_epoch():
    features, labels = noise()
    hasher = DQN(4, quantisation=0.1, training=QUICK).fit(features, labels)
    errors = [row.get("quantisation_error") for row in hasher.history_]
    assert [error is not None for error in errors] == [False, True, False, True, False]
    terms = [row["quantisation"] for row in hasher.history_]
    assert terms[:2] == [0, 0]
    assert min(terms[2:]) > 0
    assert all(row["pair"] > 0 for row in hasher.history_)


def test_quantisation_error_by_loops():
    hasher = small()
    state = make_state(hasher, np.arange(20) % 3)
    state.tensors["Z"] = z = random_outputs(20, 6).float()
    found = hasher._update_codebooks(state)
    C, h = state.tensors["C"], state.tensors["h"]
    squares = [(z[i, k] - C[k // 2, h[i, k // 2], k % 2]) ** 2 for i, k in np.ndindex(20, 6)]
    assert found == pytest.approx(sum(squares).item() / 20, rel=1e-5)
    assert found > 0


def test_a_strong_second_term_brings_outputs_to_their_codes():
    features, labels = noise()
    training = Training(epochs=40, batch_size=20, lr=1e-3, optimizer="adamw", schedule="constant")
    errors = []
    for weight in (0.0, 1.0):
        hasher = DQN(2, quantisation=weight, width=8, training=training).fit(features, labels)
        error = hasher.encode_queries(features) - hasher.encode(features).reconstruct()
        errors.append((error**2).sum(axis=1).mean())
    assert errors[1] < 0.5 * errors[0]


# ---- codes


@pytest.fixture(scope="module")
def fitted():
    return DQN(12, training=QUICK).fit(*noise())


def test_codes_are_the_nearest_entries(fitted):
    features, _ = noise()
    codes, queries = fitted.encode(features), fitted.encode_queries(features)
    assert isinstance(codes, QuantisedCodes)
    assert (len(codes), codes.bits, queries.shape) == (40, 12, (40, 300))
    for i, m in np.ndindex(40, 2):
        part = queries[i, 150 * m : 150 * m + 150].astype(np.float64)
        distances = ((codes.codebooks[m].astype(np.float64) - part) ** 2).sum(axis=1)
        assert distances[codes.indices[i, m]] <= distances.min() * (1 + 1e-3) + 1e-5
    assert len(fitted.encode(features[:0])) == 0


def test_ranking_is_by_asymmetric_quantiser_distance(fitted):
    features, labels = noise()
    queries, codes = fitted.encode_queries(features[::3]), fitted.encode(features)
    report = bp.evaluate(queries, labels[::3], codes, labels)
    vectors = codes.reconstruct()
    for q, label in enumerate(labels[::3]):
        order = np.argsort(((queries[q] - vectors) ** 2).sum(axis=1), kind="stable")
        ranks = np.flatnonzero(labels[order] == label) + 1
        expected = np.mean(np.arange(1, len(ranks) + 1) / ranks)
        assert report.average_precision[q] == pytest.approx(expected, rel=1e-6)
    assert report.bits == 12
    assert report.radius is None


def test_an_index_refuses_them(fitted, tmp_path):
    with bp.Index.create(tmp_path / "photos.bp", bits=12) as index:
        with pytest.raises(ValueError, match="expected Codes, got Quant"):
            index.add(range(40), fitted.encode(noise()[0]))
        assert len(index) == 0


@pytest.mark.parametrize("several", [False, True], ids=["one label", "several labels"])
@pytest.mark.parametrize("bits", [6, 12])
def test_overfits_noise(several, bits):
    features, labels = noise()
    if several:
        labels = np.stack([labels < 2, labels % 3 == 0], axis=1).astype(int)
    training = Training(epochs=40, batch_size=20, lr=2e-3, optimizer="adamw", schedule="cosine")
    hasher = DQN(bits, training=training).fit(features, labels)
    report = bp.evaluate(hasher.encode_queries(features), labels, hasher.encode(features), labels)
    assert report.map > 0.95


# ---- models


def test_saved_and_loaded_with_its_codebooks(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "dqn", DQN)
    features, labels = noise()
    hasher = bp.create("dqn", bits=12, epochs=3, batch_size=10, seed=1)
    hasher.fit(features, labels, run=tmp_path / "run")
    assert hasher.encode(features).codebooks.any()
    loaded = bp.load(tmp_path / "run")
    assert loaded.encode(features) == hasher.encode(features)
    np.testing.assert_array_equal(loaded.encode_queries(features), hasher.encode_queries(features))


class Stops(DQN):
    stop_after = 3

    def after_epoch(self, state):
        if self.stop_after == 0:
            raise KeyboardInterrupt
        self.stop_after -= 1
        return super().after_epoch(state)


def test_a_killed_run_and_a_finished_one_give_the_same_codes_again(tmp_path):
    features, labels = noise()
    expected = DQN(12, training=QUICK).fit(features, labels).encode(features)
    with pytest.raises(KeyboardInterrupt):
        Stops(12, training=QUICK).fit(features, labels, run=tmp_path / "run")
    for _ in range(2):  # the second run has no epochs left
        resumed = DQN(12, training=QUICK).fit(features, labels, run=tmp_path / "run")
        assert resumed.encode(features) == expected


class Keeps(DQN):
    def finish(self, net, state, feed):
        type(self).before = state.tensors["C"].clone()
        super().finish(net, state, feed)


def test_last_codebooks_match_the_trained_network():
    """Not from augmented images, and not with weights before averaging."""
    digits = load_digits().subset(np.arange(300))
    training = Training(
        epochs=3, batch_size=50, lr=0.01, augment="flip+shift", average=0.9, mirror=True
    )
    hasher = Keeps(12, backbone="small", training=training, device="cpu").fit(digits)
    outputs = torch.from_numpy(hasher.project(digits))
    expected = lloyd(outputs, hasher.before, 10)
    torch.testing.assert_close(hasher.net_.head.codebooks, expected)


def test_tables_need_no_special_case(monkeypatch):
    monkeypatch.setitem(METHODS, "dqn", DQN)
    digits = load_digits()
    few = digits.subset(np.arange(400))
    options = {"backbone": "small", "epochs": 2, "lr": 1e-2}
    cell = Cell("digits", 1, "dqn", "dqn", "small", bits=12, seed=0, options=options)
    row, history, _ = run_cell(cell, few)
    assert row["map"] > 0.15
    assert np.isnan(row["precision_radius2"])
    assert [epoch["epoch"] for epoch in history] == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quantisation": -1.0}, "quantisation must be a number >= 0"),
        ({"width": 0}, "width must be at least 1"),
        ({"cycle": 0}, "cycle must be at least 1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        DQN(4, **options).fit(*noise())
