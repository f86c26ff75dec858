"""DSDH's mathematics: gradient, classifier, codes and options, against plain loops."""

import math

import dsdh_reference as reference
import numpy as np
import pytest
import torch
from sklearn.base import clone

import bitprint as bp
from bitprint.methods.dsdh import (
    DSDH,
    class_weights,
    codes_near,
    codes_per_label,
    separated_codes,
)
from bitprint.supervision import class_matrix, similarity
from bitprint.training.losses import pair_loss, quantization_loss
from bitprint.training.plan import Training
from bitprint.training.state import State

SINGLE = np.array([0, 0, 1, 1, 1, 2, 0, 2, 1])
SEVERAL = np.array(
    [[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
)


@pytest.fixture
def float64():
    """Numbers made by the code under test are float64, to compare with NumPy to the last digits."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def make_state(labels, batch_size=4):
    classes = class_matrix(np.asarray(labels))
    shown = labels if labels.ndim == 1 else classes
    return State(torch.from_numpy(shown), torch.from_numpy(classes).double(), batch_size)


def random_set(labels, bits=5, seed=0, scale=1.0):
    """H and B in the paper's columns."""
    rng = np.random.default_rng(seed)
    shape = (bits, len(labels))
    return scale * rng.standard_normal(shape), rng.choice([-1.0, 1.0], shape)


def labelled(count, classes=4, bits=8, seed=0, scale=0.5):
    """State of a larger set with outputs of about `scale` and random codes, ready for a step."""
    labels = np.random.default_rng(seed).integers(classes, size=count)
    state = make_state(labels)
    H, B = random_set(labels, bits, seed, scale)
    state.tensors |= {"U": torch.from_numpy(H.T.copy()), "B": torch.from_numpy(B.T.copy())}
    return state, H, B, class_matrix(labels).T.astype(float)


# ---- the network's gradient


@pytest.mark.parametrize("ours", [False, True], ids=["as printed", "our changes"])
@pytest.mark.parametrize("labels", [SINGLE, SEVERAL], ids=["one label", "several labels"])
def test_equation_12_is_the_gradient_of_equation_11(labels, ours):
    H, B = random_set(labels)
    changes = {"slope": 0.25, "weights": np.arange(1.0, len(labels) + 1)} if ours else {}
    changes |= {"kinds": (0.6, 2.5)} if ours else {}
    Y, s = class_matrix(labels).T.astype(float), reference.share_a_label(labels)
    W = np.random.default_rng(1).standard_normal((len(H), len(Y)))

    def objective(H):
        return reference.objective(H, W, B, Y, s, mu=0.8, nu=0.1, eta=1.7, **changes)

    expected = reference.finite_differences(objective, H)
    found = reference.gradient(H, B, s, 1.7, **changes)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("labels", [SINGLE, SEVERAL], ids=["one label", "several labels"])
@pytest.mark.parametrize("eta", [0.0, 0.3, 55.0])
@pytest.mark.parametrize("mode", ["paper", "balanced"])
@pytest.mark.parametrize("bits", [5, 24])
def test_the_loss_has_the_gradient_of_the_whole_objective(labels, eta, mode, bits, float64):
    """The batch is the whole set, so eq. 12 must come out: both orders of a pair, and i = j."""
    outputs, B = random_set(labels, bits)
    H, inner, changes = outputs, 1, {}
    if mode == "balanced":  # h = tanh(network), and so the derivative of tanh in front of eq. 12
        H, inner = np.tanh(outputs), np.cosh(outputs) ** -2
        if labels.ndim == 1:
            weights = 1 / np.array([3, 4, 2])[labels]  # the sizes of the three classes
            changes = {"slope": 1.0 if bits == 5 else 0.25, "weights": weights / weights.mean()}
        similar = reference.share_a_label(labels)
        changes["kinds"] = reference.pair_weights(similar, changes.get("weights"))
    count = len(labels)
    state = make_state(labels, batch_size=count)
    hasher = DSDH(len(H), mode=mode, eta=eta)
    hasher.prepare(state)
    state.tensors["B"] = torch.from_numpy(B.T)
    rows = np.random.default_rng(1).permutation(count)
    outputs = torch.from_numpy(outputs.T[rows].copy()).requires_grad_()
    parts = hasher.loss(outputs, torch.from_numpy(rows), state)
    torch.stack(list(parts.values())).sum().backward()
    found = count * count * outputs.grad.numpy()[np.argsort(rows)].T
    similar = reference.share_a_label(labels)
    expected = inner * reference.gradient(H, B, similar, eta, **changes)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(state.tensors["U"].numpy().T, H)


def test_the_gradient_of_a_part_of_the_set_sees_all_of_it(float64):
    """Rows outside of the batch are the last outputs; the divisor is the nominal batch size."""
    H, B = random_set(SINGLE)
    state = make_state(SINGLE, batch_size=4)
    hasher = DSDH(len(H), eta=2.0)
    hasher.prepare(state)
    state.tensors |= {"B": torch.from_numpy(B.T), "U": torch.from_numpy(H.T.copy())}
    rows = [7, 2]
    state.tensors["U"][rows] = 99.0  # stale: to be replaced by the batch's own outputs
    outputs = torch.from_numpy(H.T[rows]).requires_grad_()
    parts = hasher.loss(outputs, torch.tensor(rows), state)
    torch.stack(list(parts.values())).sum().backward()
    expected = reference.gradient(H, B, reference.share_a_label(SINGLE), 2.0)[:, rows]
    found = 4 * len(SINGLE) * outputs.grad.numpy().T
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(state.tensors["U"].numpy(), H.T)


@pytest.mark.parametrize("labels", [SINGLE, SEVERAL], ids=["one label", "several labels"])
def test_pair_and_quantisation_losses_by_loops(labels):
    H, B = random_set(labels, seed=2)
    outputs, codes = torch.from_numpy(H.T), torch.from_numpy(B.T)
    s = reference.share_a_label(labels)
    np.testing.assert_array_equal(similarity(labels, labels), s)
    found = pair_loss(
        outputs, outputs, similarity(torch.from_numpy(labels), torch.from_numpy(labels))
    )
    assert found.item() == pytest.approx(reference.pair_term(H, s), rel=1e-12)
    distance = sum((B[k, i] - H[k, i]) ** 2 for k, i in np.ndindex(B.shape))
    assert quantization_loss(outputs, codes).item() == pytest.approx(distance, rel=1e-12)


def test_pair_loss_does_not_depend_on_the_order_and_prefers_true_codes():
    labels = torch.from_numpy(SINGLE)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    outputs = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(1)).double()
    loss = pair_loss(outputs, outputs, similarity(labels, labels))
    shuffled = labels[order], outputs[order]
    again = pair_loss(shuffled[1], shuffled[1], similarity(shuffled[0], shuffled[0]))
    torch.testing.assert_close(again, loss)
    perfect = torch.tensor([[1.0, 1, 1, 1, 1, 1], [-1, -1, -1, 1, 1, 1], [1, 1, -1, -1, -1, -1]])
    perfect = perfect.double()[labels]
    assert pair_loss(perfect, perfect, similarity(labels, labels)) < pair_loss(
        outputs.sign(), outputs.sign(), similarity(labels, labels)
    )


def test_large_outputs_do_not_overflow():
    outputs = torch.tensor([[400.0], [-400.0]])
    loss = pair_loss(outputs, outputs, torch.tensor([[True, False], [False, True]]))
    assert loss.item() == 0.0


# ---- classifier and codes after an epoch, mode "paper"

RATIOS = [0.01, 0.05, 0.3, 1.0, 10.0, 55.0]


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("mu", [1.0, 12.5])
@pytest.mark.parametrize("mode", ["paper", "balanced"])
def test_the_step_equals_equations_15_to_18(ratio, mu, mode):
    state, H, B, Y = labelled(60)
    hasher = DSDH(8, mode=mode, mu=mu, nu=0.1 * mu, eta=ratio * mu)
    weights = weigh(state, mode)
    figures = hasher.after_epoch(state)
    W = reference.solve_classifier(B, Y, 0.1, weights)
    expected = reference.descend(B, W, W @ Y + ratio * H, sweeps=10)
    np.testing.assert_array_equal(state.tensors["B"].numpy().T, expected)
    np.testing.assert_array_equal(state.tensors["U"].numpy().T, H)
    # What is reported: the classification term over N^2, and bits set against the network.
    term = mu * (weights * (Y - W.T @ expected) ** 2).sum() + 0.1 * mu * (W**2).sum()
    assert figures["classification"] == pytest.approx(term / 60**2, rel=1e-9)
    assert figures["changed_bits"] == pytest.approx(np.mean(expected != np.where(H >= 0, 1, -1)))


def weigh(state, mode):
    """Give the images different weights, if the mode has any; return them."""
    weights = np.ones(len(state))
    if mode == "balanced":
        weights = np.random.default_rng(4).uniform(0.2, 3.0, len(state))
        state.tensors["weights"] = torch.from_numpy(weights)
    return weights


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("mode", ["paper", "balanced"])
def test_the_whole_objective_never_increases_over_the_steps(ratio, mode):
    state, H, B, Y = labelled(50, seed=3)
    s = reference.share_a_label(state.labels.numpy())
    mu, nu, eta = 2.0, 0.2, 2.0 * ratio
    hasher = DSDH(8, mode=mode, mu=mu, nu=nu, eta=eta)
    weights = weigh(state, mode)
    W = np.zeros((8, 4))
    values = [reference.objective(H, W, B, Y, s, mu, nu, eta, weights=weights)]
    for _ in range(4):
        W = reference.solve_classifier(B, Y, nu / mu, weights)
        values.append(reference.objective(H, W, B, Y, s, mu, nu, eta, weights=weights))
        hasher.after_epoch(state)
        B = state.tensors["B"].numpy().T
        assert set(np.unique(B)) == {-1.0, 1.0}
        values.append(reference.objective(H, W, B, Y, s, mu, nu, eta, weights=weights))
    assert reference.largest_rise(values) < 1e-9
    assert values[-1] < values[0] - 1


def test_the_label_term_moves_codes_when_eta_is_small_and_not_at_the_papers_weights():
    changed = {}
    for ratio in (0.01, 0.1, 55.0):
        state, H, _, _ = labelled(200, classes=5, bits=12, scale=1.0)
        H = np.sign(H) * (0.8 + 0.4 * np.abs(np.sin(H)))  # |h| between 0.8 and 1.2
        state.tensors["U"] = torch.from_numpy(H.T.copy())
        changed[ratio] = DSDH(12, mu=1.0, nu=0.1, eta=ratio).after_epoch(state)["changed_bits"]
    assert changed[0.01] > 0.2
    assert changed[0.1] < changed[0.01]
    assert changed[55.0] == 0


def test_codes_come_closer_to_one_per_class_when_labels_rule():
    state, *_ = labelled(200, classes=5, bits=8)
    before = codes_per_label(state.tensors["B"], state.labels)
    hasher = DSDH(8, mu=1.0, nu=0.1, eta=1e-6)
    for _ in range(10):
        after = hasher.after_epoch(state)["codes_per_label"]
    assert before > 20
    assert after < 4


def test_codes_start_as_random_signs_of_the_seed():
    codes = []
    for seed in (0, 0, 1):
        state = make_state(np.arange(400) % 3)
        DSDH(16, seed=seed).prepare(state)
        codes.append(state.tensors["B"])
        assert set(codes[-1].unique().tolist()) == {-1.0, 1.0}
        # 6,400 fair coins: four standard deviations are 0.05.
        assert abs(codes[-1].mean().item()) < 0.05
    assert torch.equal(codes[0], codes[1])
    assert not torch.equal(codes[0], codes[2])


@pytest.mark.parametrize(("classes", "bits", "apart"), [(2, 8, 6), (10, 24, 9), (100, 16, 4)])
def test_separated_codes_are_far_apart(classes, bits, apart):
    codes = separated_codes(classes, bits, torch.Generator().manual_seed(0))
    distances = (bits - codes @ codes.t()) / 2
    assert distances.fill_diagonal_(bits).min() >= apart


def test_more_codes_than_there_are_repeat_evenly():
    codes = separated_codes(300, 4, torch.Generator().manual_seed(0))
    _, counts = codes.unique(dim=0, return_counts=True)
    assert (len(counts), counts.min().item(), counts.max().item()) == (16, 18, 19)


def test_balanced_codes_start_from_their_classes():
    state = make_state(SINGLE)
    DSDH(16, mode="balanced").prepare(state)
    assert codes_per_label(state.tensors["B"], state.labels) == 1
    assert len(state.tensors["B"].unique(dim=0)) == 3
    state = make_state(SEVERAL)
    DSDH(16, mode="balanced").prepare(state)
    assert state.tensors["B"].abs().min() == 1
    single = state.tensors["B"][[0, 2, 3]]
    both = single[0] == single[1]
    torch.testing.assert_close(state.tensors["B"][1][both], single[0][both])


def energy(codes, means):
    """sum_ij e^-d_ij - sum_i b_i . m_i / 5, i and j different, by loops."""
    total = 0.0
    for i, j in np.ndindex(len(codes), len(codes)):
        if i != j:
            total += np.exp(-float((codes[i] != codes[j]).sum()))
    return total - float((codes * means).sum()) / 5


def test_codes_near_means_are_best_of_all_for_each_class():
    """Six bits, so that all codes of a class are tried; means of pairs of classes coincide."""
    means = np.repeat(np.tanh(np.random.default_rng(0).standard_normal((6, 6))), 2, axis=0)
    codes = codes_near(torch.from_numpy(means), sweeps=50).numpy()
    least = energy(codes, means)
    assert least < energy(np.where(means >= 0, 1.0, -1.0), means) - 1
    for row in range(len(codes)):
        for code in np.ndindex(*[2] * 6):
            other = codes.copy()
            other[row] = 2 * np.array(code) - 1
            assert energy(other, means) > least - 1e-12


def test_codes_near_distinct_means_are_their_signs():
    means = 0.9 * separated_codes(20, 32, torch.Generator().manual_seed(0))
    torch.testing.assert_close(codes_near(means), means.sign())


def test_codes_near_equal_means_differ():
    codes = codes_near(torch.full((40, 8), 0.1))
    assert len(codes.unique(dim=0)) == 40


def test_pairs_alone_have_a_gradient_until_codes_start(float64):
    outputs, B = random_set(SINGLE)
    state = make_state(SINGLE, batch_size=len(SINGLE))
    hasher = DSDH(len(B), mode="balanced", codes_after=2, eta=3.0)
    hasher.prepare(state)
    weights = 1 / np.array([3, 4, 2])[SINGLE]
    weights /= weights.mean()
    kinds = reference.pair_weights(reference.share_a_label(SINGLE), weights)
    for eta in (0.0, 0.0, 3.0):
        tensor = torch.from_numpy(outputs.T.copy()).requires_grad_()
        parts = hasher.loss(tensor, torch.arange(len(SINGLE)), state)
        torch.stack(list(parts.values())).sum().backward()
        H, codes = np.tanh(outputs), state.tensors["B"].numpy().T

        def objective(outputs, codes=codes, eta=eta):
            H, s = np.tanh(outputs), reference.share_a_label(SINGLE)
            zeros = np.zeros((len(B), 3)), np.zeros((3, len(SINGLE)))
            changes = {"weights": weights, "kinds": kinds}
            return reference.objective(H, zeros[0], codes, zeros[1], s, 0, 0, eta, **changes)

        expected = reference.finite_differences(objective, outputs)
        found = len(SINGLE) ** 2 * tensor.grad.numpy().T
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        assert (parts["quantisation"] > 0) == (eta > 0)
        np.testing.assert_allclose(state.tensors["U"].numpy().T, H)
        hasher.after_epoch(state)


def test_codes_start_from_mean_outputs_of_classes(float64):
    """With a large mu the steps for W and B keep the codes they start from."""
    labels = np.array([0, 0, 1, 1, 1, 2])
    state = make_state(labels)
    hasher = DSDH(8, mode="balanced", codes_after=2, mu=1e6, nu=1e5, eta=1.0)
    hasher.prepare(state)
    outputs = np.tanh(np.random.default_rng(5).standard_normal((6, 8)))
    state.tensors["U"] = torch.from_numpy(outputs)
    before = state.tensors["B"].clone()
    hasher.after_epoch(state)
    means = np.stack([outputs[:2].mean(axis=0), outputs[2:5].mean(axis=0), outputs[5]])
    expected = codes_near(torch.from_numpy(means))[labels]
    torch.testing.assert_close(state.tensors["B"], before)
    assert not torch.equal(before, expected)
    hasher.after_epoch(state)
    torch.testing.assert_close(state.tensors["B"], expected)


@pytest.mark.parametrize(
    ("options", "labels", "expected"),
    [
        ({"backbone": "mlp:32"}, SINGLE, True),
        ({"backbone": "mlp:32"}, SEVERAL, False),
        ({"backbone": "small"}, SINGLE, False),
        ({"backbone": "mlp:32", "codes_after": 0}, SINGLE, False),
        ({"backbone": "small", "codes_after": 3}, SINGLE, True),
    ],
)
def test_codes_start_late_over_features_with_one_label(options, labels, expected):
    hasher = DSDH(8, mode="balanced", training=Training(epochs=10), **options)
    state = make_state(labels)
    hasher.prepare(state)
    assert ("epochs" in state.tensors) == expected


# ---- weights, figures, options


def test_weights_of_the_modes():
    assert DSDH(8, mode="paper").weights(5000) == (1.0, 0.1, 55.0)
    assert DSDH(8, mode="authors").weights(70) == (1.0, 0.1, 55.0)
    assert DSDH(16, mode="balanced").weights(5000) == (2000.0, 200.0, 200.0)
    assert DSDH(16, mode="balanced").weights(5000, 100) == (20_000.0, 2000.0, 200.0)
    assert DSDH(16, mode="balanced").weights(5000, 2) == (2000.0, 200.0, 200.0)
    assert DSDH(64, mode="balanced", eta=3.0).weights(100) == (655.36, 65.536, 3.0)
    assert DSDH(8, mode="paper", mu=2.0, nu=0.0625).weights(100) == (2.0, 0.0625, 55.0)
    over_features = DSDH(16, mode="balanced", backbone="mlp")
    assert over_features.weights(5000) == (2000.0, 200.0, 200.0)
    longer = DSDH(64, mode="balanced", backbone="mlp")
    assert longer.weights(5000) == pytest.approx((2048.0, 204.8, 25.0))
    assert over_features.weights(5000, several=True) == pytest.approx((200.0, 20.0, 20.0))


@pytest.mark.parametrize(("mode", "factor"), [("balanced", 1.0), ("paper", 0.5)])
def test_balanced_weights_keep_their_strength_when_the_set_doubles(mode, factor, float64):
    outputs, B = random_set(SINGLE)
    H = np.tanh(outputs) if mode == "balanced" else outputs
    parts = []
    for copies in (1, 2):
        state = make_state(np.tile(SINGLE, copies))
        hasher = DSDH(len(H), mode=mode)
        hasher.prepare(state)
        state.tensors["B"] = torch.from_numpy(np.tile(B, copies).T.copy())
        state.tensors["U"] = torch.from_numpy(np.tile(H, copies).T.copy())
        parts.append(hasher.loss(torch.from_numpy(outputs.T[:4]), torch.arange(4), state))
    torch.testing.assert_close(parts[1]["pair"], parts[0]["pair"])
    torch.testing.assert_close(parts[1]["quantisation"], factor * parts[0]["quantisation"])


def test_weights_by_the_sizes_of_classes():
    labels = torch.tensor([4, 4, 4, 4, 0, 2, 2, 2, 2])  # classes 1 and 3 have no images
    weights = class_weights(torch.eye(5)[labels])
    assert weights.tolist() == pytest.approx([0.75] * 4 + [3.0] + [0.75] * 4)
    assert class_weights(torch.eye(3)[[2, 0, 1, 0, 2, 1]]).tolist() == [1.0] * 6
    loose = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    assert class_weights(loose).tolist() == [1.0] * 4


@pytest.mark.parametrize(("size", "ratio"), [(9, 9), (10, 10), (11, 10), (300, 10)])
def test_no_image_counts_more_than_ten_times_as_much_as_another(size, ratio):
    weights = class_weights(torch.eye(2)[[0] * size + [1]])
    assert (weights[-1] / weights[0]).item() == pytest.approx(ratio)
    assert weights.mean().item() == pytest.approx(1.0)


def test_small_classes_are_learned_beside_large_ones():
    """Against the same training with images that all count alike."""

    class Counted(DSDH):
        def prepare(self, state):
            super().prepare(state)
            state.tensors["weights"].fill_(1.0)

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((5, 16))

    def draw(sizes):
        labels = np.repeat(np.arange(5), sizes)
        noise = rng.standard_normal((len(labels), 16))
        return (centres[labels] + noise).astype(np.float32), labels

    training = Training(epochs=20, batch_size=32, optimizer="adamw", lr=0.01)
    data, (queries, asked), (database, held) = draw([300, 100, 30, 10, 5]), draw(40), draw(40)
    maps = []
    for method in (Counted, DSDH):
        hasher = method(12, mode="balanced", training=training, device="cpu").fit(*data)
        maps.append(bp.evaluate(hasher.encode(queries), asked, hasher.encode(database), held).map)
    assert maps[1] > maps[0] + 0.1


@pytest.mark.parametrize("mode", ["paper", "balanced"])
def test_the_form_of_the_labels_does_not_matter(mode, float64):
    outputs, B = random_set(SINGLE, bits=12)
    found = []
    for labels in (SINGLE, class_matrix(SINGLE).astype(int)):
        state = make_state(labels)
        hasher = DSDH(12, mode=mode)
        hasher.prepare(state)
        state.tensors["B"] = torch.from_numpy(B.T.copy())
        found.append(hasher.loss(torch.from_numpy(outputs.T[:4]), torch.arange(4), state))
    assert found[0] == found[1]


def test_codes_per_label_by_hand():
    a, b, c = [1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]
    codes = torch.tensor([a, a, b, a, c, b])
    assert codes_per_label(codes, torch.tensor([0, 0, 0, 5, 5, 5])) == 2.5  # {a, b} and {a, c, b}
    # As sets of labels: {0} has a; {0, 1} has a and b; {1} has a and c; none has b.
    several = torch.tensor([[1, 0], [1, 1], [1, 1], [0, 1], [0, 1], [0, 0]])
    assert codes_per_label(codes, several) == 1.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "matlab"}, "mode must be"),
        ({"mu": 0.0}, "must be a number > 0"),
        ({"mu": -1.0}, "must be a number > 0"),
        ({"mu": float("nan")}, "must be a number > 0"),
        ({"nu": 0.0}, "must be a number > 0"),
        ({"eta": -1.0}, "eta must be a number >= 0"),
        ({"codes_after": -1}, "codes_after must be an integer >= 0"),
        ({"codes_after": 1, "mode": "paper"}, "codes_after needs mode='balanced' and one label"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    hasher = bp.create("dsdh", bits=4, epochs=1, **options)
    with pytest.raises(ValueError, match=message):
        hasher.fit(np.eye(6), [0, 0, 0, 1, 1, 1])


# ---- whole runs


@pytest.mark.parametrize("mode", ["paper", "authors", "balanced"])
def test_runs_repeat_by_seed(mode):
    features = np.random.default_rng(0).standard_normal((40, 6))
    labels = np.arange(40) % 4
    options = {"mode": mode, "epochs": 2, "batch_size": 16, "lr": 1e-2}
    outputs = [
        bp.create("dsdh", bits=24, seed=seed, **options).fit(features, labels).project(features)
        for seed in (3, 3, 4)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert np.mean((outputs[0] >= 0) != (outputs[2] >= 0)) > 0.1


@pytest.mark.parametrize("mode", ["paper", "authors", "balanced"])
def test_learns_from_several_labels_per_image(mode):
    """Every item carries two of four labels; similar items share one."""
    rng = np.random.default_rng(0)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 0)]
    labels = np.zeros((80, 4), int)
    for row in range(80):
        labels[row, list(pairs[row % 4])] = 1
    features = labels @ rng.standard_normal((4, 10)) + 0.1 * rng.standard_normal((80, 10))
    hasher = bp.create(
        "dsdh",
        bits=16,
        mode=mode,
        epochs=30,
        noise=0.0,
        batch_size=16,
        optimizer="adamw",
        lr=1e-2,
        schedule="constant",
    )
    codes = hasher.fit(features, labels).encode(features)
    chance = np.mean(reference.share_a_label(labels))
    assert chance < 0.8
    assert bp.evaluate(codes, labels, codes, labels).map > 0.95


@pytest.mark.parametrize(
    ("classes", "images", "bits", "least"), [(3, 270, 24, 0.99), (100, 27, 16, 0.95)]
)
def test_recipe_on_few_and_many_classes_finds_them(classes, images, bits, least):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), images + 5)
    features = rng.standard_normal((classes, 32))[labels]
    features += 0.5 * rng.standard_normal(features.shape)
    asked = np.arange(len(labels)) % (images + 5) < 5
    hasher = bp.create("dsdh", bits, device="cpu", epochs=40)
    database = hasher.fit(features[~asked], labels[~asked]).encode(features[~asked])
    queries = hasher.encode(features[asked])
    assert bp.evaluate(queries, labels[asked], database, labels[~asked]).map > least


@pytest.mark.parametrize(("backbone", "most"), [("mlp", 150.0), ("mlp:64", 150.0), ("small", 10.0)])
def test_limit_of_class_weights_follows_the_backbone(backbone, most):
    labels = torch.tensor([0] * 300 + [1] * 2)
    state = State(labels, torch.eye(2)[labels], batch_size=128)
    DSDH(8, mode="balanced", backbone=backbone).prepare(state)
    weights = state.tensors["weights"]
    assert weights[-1] / weights[0] == pytest.approx(most)


def test_many_classes_in_a_short_code_get_codes_of_their_own():
    """48 classes in six bits; with a weak pull to codes of the labels, classes share codes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(48), 20)
    centers = 2 * rng.standard_normal((48, 32))
    features, queries = (centers[labels] + rng.standard_normal((960, 32)) for _ in range(2))
    eta = 0.03 * 960 * math.sqrt(6) / 100
    weak = {"codes_after": 0, "mu": 48 * eta, "nu": 4.8 * eta, "eta": eta}
    found = []
    for options in ({}, weak):
        hasher = bp.create("dsdh", bits=6, device="cpu", epochs=100, **options)
        codes = hasher.fit(features, labels).encode(features)
        found.append(bp.evaluate(hasher.encode(queries), labels, codes, labels).map)
    assert found[0] > 0.95
    assert found[1] < 0.85


def test_a_run_interrupted_before_or_after_codes_start_resumes_exactly(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 12
    features = rng.standard_normal((12, 8))[labels] + 0.1 * rng.standard_normal((60, 8))
    hasher = bp.create("dsdh", 8, epochs=10, batch_size=20, lr=1e-2, backbone="mlp:16")
    hasher.fit(features, labels, run=tmp_path / "whole")
    expected = (tmp_path / "whole" / "model.safetensors").read_bytes()
    for stop in (1, 4):
        run = tmp_path / str(stop)

        def interrupt(row, stop=stop):
            if row["epoch"] == stop:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bitprint.training.run.RunFolder.due", lambda self: True)
            with pytest.raises(KeyboardInterrupt):
                clone(hasher).fit(features, labels, run=run, callback=interrupt)
        clone(hasher).fit(features, labels, run=run)
        assert (run / "model.safetensors").read_bytes() == expected
