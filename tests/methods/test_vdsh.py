"""VDSH: updates never increase the objective, residuals converge, and codes are learned."""

import numpy as np
import pytest
import torch

import bitprint as bp
from bitprint.methods.vdsh import VDSH, Auxiliary, forward, random_start


def centred_classes(labels):
    classes = np.eye(labels.max() + 1)[labels]
    return torch.from_numpy(classes - classes.mean(axis=0))


def problem(hidden=(6, 5), bits=4, gamma=0.1, decay=0.05, count=40, seed=0):
    rng = np.random.default_rng(seed)
    inputs = torch.from_numpy(rng.standard_normal((count, 3)))
    targets = centred_classes(inputs.argmax(dim=1).numpy())
    weights, classifier = random_start([3, *hidden, bits], targets.shape[1], seed)
    return Auxiliary(inputs, targets, weights, classifier, gamma=gamma, decay=decay)


def xor(count, seed):
    features = np.random.default_rng(seed).standard_normal((count, 2))
    return features, (features[:, 0] * features[:, 1] > 0).astype(int)


def accuracy(hasher, features, labels, queries, truth):
    """Return the fraction of queries whose nearest training row has the same label."""
    nearest = hasher.encode(features).hamming(hasher.encode(queries)).argmin(axis=0)
    return np.mean(labels[nearest] == truth)


# ---- the objective and its updates


def layer_by_loops(rows, layer, last):
    result = np.empty((len(rows), layer.shape[1]))
    for i, k in np.ndindex(result.shape):
        total = layer[-1, k] + sum(rows[i, j] * layer[j, k] for j in range(rows.shape[1]))
        result[i, k] = total if last else max(total, 0)
    return result


def test_forward_by_loops():
    network = problem()
    for layer in network.weights:
        layer += torch.randn(layer.shape, generator=torch.Generator().manual_seed(1))
    rows = network.inputs.numpy()
    for m, outputs in enumerate(forward(network.inputs, network.weights)):
        rows = layer_by_loops(rows, network.weights[m].numpy(), last=m == 2)
        np.testing.assert_allclose(outputs.numpy(), rows, atol=1e-12)


def test_objective_by_loops():
    network = problem(gamma=0.3, decay=0.07)
    network.update()
    expected = 0.0
    below = network.inputs.numpy()
    for m, (outputs, layer) in enumerate(zip(network.outputs, network.weights, strict=True)):
        reached = layer_by_loops(below, layer.numpy(), last=m == 2)
        expected += 0.3 / 2 * np.square(outputs.numpy() - reached).sum()
        expected += 0.07 / 2 * np.square(layer.numpy()).sum()
        np.testing.assert_allclose(
            network.residuals()[m].numpy(), outputs.numpy() - reached, atol=1e-12
        )
        below = outputs.numpy()
    W = network.classifier.numpy()
    expected += np.square(network.targets.numpy() - below @ W).sum() / 2
    expected += 0.07 / 2 * np.square(W).sum()
    assert network.objective() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("decay", [1e-3, 0.5])
@pytest.mark.parametrize("hidden", [(), (7,), (6, 5), (4, 4, 4, 4)])
def test_no_update_increases_the_objective(hidden, gamma, decay):
    network = problem(hidden, gamma=gamma, decay=decay)
    values = [network.objective()]
    for _ in range(40):
        network.update()
        values.append(network.objective())
        assert all(outputs.min() >= 0 for outputs in network.outputs[:-1])
    assert np.all(np.diff(values) <= 1e-12 * values[0])
    assert values[-1] < 0.8 * values[0]


def test_no_single_update_increases_the_objective(monkeypatch):
    """Check each variable separately, so that one update cannot hide another."""
    values = []

    def watch(name):
        step = getattr(Auxiliary, name)

        def watched(self, *layer):
            before = self.objective()
            step(self, *layer)
            values.append((name, before, self.objective()))

        monkeypatch.setattr(Auxiliary, name, watched)

    steps = {"_improve_hash_outputs", "_improve_outputs", "_improve_weights"}
    for name in steps:
        watch(name)
    network = problem()
    for _ in range(20):
        network.update()
    assert all(after <= before + 1e-12 for _, before, after in values)
    assert {name for name, before, after in values if after < before - 1e-6} == steps


def test_classifier_and_hash_outputs_are_exact_minima():
    network = problem()
    network.update()
    Z, W, Y = network.outputs[-1], network.classifier, network.targets
    assert (Z.t() @ (Z @ W - Y) + network.decay * W).abs().max() < 1e-10
    network._improve_hash_outputs()
    Z, reached = network.outputs[-1], network.outputs[-1] - network.residuals()[-1]
    assert ((Z @ W - Y) @ W.t() + network.gamma * (Z - reached)).abs().max() < 1e-10


def test_without_hidden_layers_the_weights_are_ridge_regression():
    network = problem(hidden=())
    network.update()
    X = np.column_stack([network.inputs.numpy(), np.ones(40)])
    ridge = network.decay / network.gamma * np.eye(4)
    expected = np.linalg.solve(X.T @ X + ridge, X.T @ network.outputs[0].numpy())
    np.testing.assert_allclose(network.weights[0].numpy(), expected, atol=1e-10)


def test_without_hidden_layers_it_predicts_what_least_squares_predict():
    network = problem(hidden=(), gamma=0.02, decay=1e-9)
    for _ in range(300):
        network.update()
    X = np.column_stack([network.inputs.numpy(), np.ones(40)])
    expected = X @ np.linalg.lstsq(X, network.targets.numpy(), rcond=None)[0]
    found = forward(network.inputs, network.weights)[-1] @ network.classifier
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("hidden", [(), (6,), (6, 5)])
def test_duals_decrease_the_residuals(hidden):
    network = problem(hidden)
    shares = []
    for _ in range(200):
        network.update()
        network.update_duals()
        pairs = zip(network.residuals(), network.outputs, strict=True)
        shares.append(max(float(r.norm() / z.norm()) for r, z in pairs))
    assert shares[0] > 0.1
    assert shares[-1] < 1e-3
    real = forward(network.inputs, network.weights)[-1]
    assert (real - network.outputs[-1]).norm() < 0.01 * real.norm()


def test_duals_grow_by_gamma_times_the_residual():
    network = problem()
    for _ in range(2):
        network.update()
        before = [network.gamma * dual for dual in network.duals]
        gamma, residuals = network.gamma, network.residuals()
        network.update_duals()
        assert network.gamma > gamma
        for dual, old, residual in zip(network.duals, before, residuals, strict=True):
            np.testing.assert_allclose(network.gamma * dual, old + gamma * residual, atol=1e-12)


def test_start():
    weights, classifier = random_start([400, 300, 200, 8], classes=3, seed=0)
    assert [tuple(layer.shape) for layer in weights] == [(401, 300), (301, 200), (201, 8)]
    assert weights[0][:-1].var().item() == pytest.approx(2 / 400, rel=0.05)
    assert weights[1][:-1].var().item() == pytest.approx(2 / 300, rel=0.05)
    assert all(torch.all(layer[-1] == 0) for layer in weights)
    assert torch.all(weights[2] == 0)
    assert classifier.shape == (8, 3)
    assert torch.linalg.matrix_rank(classifier) == 3


# ---- the method


@pytest.mark.parametrize("solver", ["bcd", "admm"])
def test_hidden_layers_learn_what_a_linear_map_cannot(solver):
    features, labels = xor(200, seed=0)
    queries, truth = xor(300, seed=1)
    linear = VDSH(bits=8, layers=0, solver=solver).fit(features, labels)
    deep = VDSH(bits=8, layers=2, width=32, solver=solver).fit(features, labels)
    assert accuracy(linear, features, labels, queries, truth) < 0.65
    assert accuracy(deep, features, labels, queries, truth) > 0.85


def test_overfits_small_classes_and_loads(tmp_path, monkeypatch):
    labels = np.repeat(np.arange(4), 10)
    features = np.random.default_rng(0).standard_normal((40, 64))
    hasher = VDSH(bits=12, width=32).fit(features, labels)
    codes = hasher.encode(features)
    assert bp.evaluate(codes, labels, codes, labels).map > 0.95
    hasher.save(tmp_path)
    monkeypatch.setitem(bp.methods.METHODS, "vdsh", VDSH)
    loaded = bp.load(tmp_path)
    np.testing.assert_array_equal(loaded.project(features), hasher.project(features))


def test_outputs_are_those_of_the_network_not_the_auxiliary_ones():
    features, labels = xor(30, seed=2)
    hasher = VDSH(bits=3, layers=1, width=4, iterations=3).fit(features, labels)
    rows = features.astype(np.float32).astype(float)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    first, second = hasher.weights_[:12].reshape(3, 4), hasher.weights_[12:].reshape(5, 3)
    expected = layer_by_loops(layer_by_loops(rows, first, last=False), second, last=True)
    np.testing.assert_allclose(hasher.project(features), expected, rtol=1e-5, atol=1e-6)


def test_thresholds():
    features, labels = xor(101, seed=3)
    zero = VDSH(bits=6, width=16).fit(features, labels)
    median = VDSH(bits=6, width=16, threshold="median").fit(features, labels)
    np.testing.assert_array_equal(zero.thresholds_, 0)
    outputs = zero.project(features)
    np.testing.assert_allclose(
        outputs - median.project(features), np.tile(np.median(outputs, axis=0), (101, 1)), atol=1e-5
    )
    np.testing.assert_array_equal((median.project(features) >= 0).sum(axis=0), 51)


def test_several_labels():
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, (200, 5))
    features = labels + 0.2 * rng.standard_normal((200, 5))
    codes = VDSH(bits=24, width=32).fit(features, labels).encode(features)
    shared, distances = labels @ labels.T, codes.hamming(codes)
    means = [distances[shared == count].mean() for count in range(4)]
    assert means == sorted(means, reverse=True)


def test_scale_and_origin_of_the_features_do_not_matter():
    features, labels = xor(60, seed=4)
    features = np.round(64 * features)  # so that adding integers is exact
    moved = 2.0 ** np.array([-3, 5]) * (features + np.array([256, -128]))
    one, other = (VDSH(bits=8, width=8).fit(f, labels).encode(f) for f in (features, moved))
    assert one == other


@pytest.mark.parametrize("threshold", ["zero", "median"])
def test_constant_features_give_one_code(threshold):
    hasher = VDSH(bits=6, width=8, threshold=threshold).fit(np.ones((8, 3)), np.arange(8) % 2)
    codes = hasher.encode(np.ones((8, 3)))
    assert np.all(codes.hamming(codes) == 0)


def test_the_seed_decides():
    features, labels = xor(40, seed=5)
    one, same, other = (
        VDSH(bits=4, width=8, iterations=3, seed=seed).fit(features, labels).weights_
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "sgd"}, "solver must be bcd or admm"),
        ({"threshold": "mean"}, "threshold must be zero or median"),
        ({"layers": -1}, "layers must be at least 0"),
        ({"width": 0}, "width must be at least 1"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"gamma": 0.0}, "gamma must be positive"),
        ({"weight": -1.0}, "weight must be positive"),
        ({"device": "tpu"}, "unknown device"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        VDSH(bits=4, **options).fit(np.eye(6), [0, 0, 0, 1, 1, 1])
