import numpy as np
import pytest

import bitprint as bp
from bitprint.methods.itq import ITQ
from bitprint.methods.nested_itq import NestedITQ


def correlated(samples=300, width=20, seed=0):
    """Return rows whose variance falls from the first to the last direction."""
    rng = np.random.default_rng(seed)
    spread = np.linspace(3, 0.3, width)
    turn = np.linalg.qr(np.random.default_rng(7).standard_normal((width, width))).Q
    return (4 + (rng.standard_normal((samples, width)) * spread) @ turn).astype(np.float32)


def objective(hasher, features, lengths):
    """Sum the magnitudes of the outputs of each prefix, by plain loops."""
    total = 0.0
    centered = features.astype(np.float64) - features.astype(np.float64).mean(axis=0)
    outputs = centered @ hasher.components_.astype(np.float64) @ hasher.rotation_
    for length in lengths:
        for k in range(length):
            total += sum(abs(value) for value in outputs[:, k])
    return total


def test_the_objective_is_the_sum_over_prefixes_and_never_decreases():
    features = correlated()
    hasher = NestedITQ(20, shortest=4).fit(features)
    assert hasher.objectives_.shape == (51,)
    assert np.all(np.diff(hasher.objectives_) >= -1e-9 * hasher.objectives_[0])
    assert hasher.objectives_[-1] > hasher.objectives_[0]
    assert hasher.objectives_[-1] == pytest.approx(
        objective(hasher, features, [4, 8, 16, 20]), 1e-5
    )


def test_the_rotation_step_is_the_best_rotation():
    """No small rotation of two columns increases the trace that the step maximizes."""
    rng = np.random.default_rng(0)
    V, B = rng.standard_normal((50, 6)), np.sign(rng.standard_normal((50, 6)))
    weights = NestedITQ(6, shortest=2)._weights()
    U, _, Wt = np.linalg.svd((V.T @ B) * weights)
    best = np.trace((B * weights).T @ V @ U @ Wt)
    for i in range(6):
        for j in range(i):
            for angle in (-0.1, 0.1):
                turn = np.eye(6)
                turn[[i, j], [i, j]] = np.cos(angle)
                turn[i, j], turn[j, i] = -np.sin(angle), np.sin(angle)
                assert np.trace((B * weights).T @ V @ U @ Wt @ turn) < best


@pytest.mark.parametrize("bits", [1, 7, 20])
def test_rotation_is_orthogonal(bits):
    R = NestedITQ(bits, shortest=3).fit(correlated()).rotation_
    assert np.abs(R.T @ R - np.eye(bits)).max() < 1e-10


def test_without_prefixes_it_equals_itq():
    features = correlated()
    nested = NestedITQ(12, seed=2).fit(features)
    np.testing.assert_allclose(
        np.abs(nested.rotation_), np.abs(ITQ(12, seed=2).fit(features).rotation_), atol=1e-8
    )


@pytest.mark.parametrize(
    ("bits", "shortest", "weights"),
    [
        (4, 1, [3, 2, 1, 1]),
        (4, 4, [1] * 4),
        (5, 2, [3, 3, 2, 2, 1]),
        (64, 64, [1] * 64),
        (66, 64, [2] * 64 + [1] * 2),
        (256, 64, [3] * 64 + [2] * 64 + [1] * 128),
    ],
)
def test_weights_count_the_prefixes_of_a_bit(bits, shortest, weights):
    assert NestedITQ(bits, shortest=shortest)._weights().tolist() == weights


def test_prefixes_find_more_neighbors_than_those_of_itq():
    features = correlated(samples=2000)
    queries = correlated(samples=100, seed=1)
    truth = np.argsort(-(queries - 4) @ (features - 4).T, axis=1)[:, :20]

    def found(hasher):
        near = hasher.encode(queries).prefix(5).hamming(hasher.encode(features).prefix(5))
        nearest = np.argsort(near, axis=1, kind="stable")[:, :100]
        return np.mean([len(np.intersect1d(*pair)) for pair in zip(nearest, truth, strict=True)])

    assert found(NestedITQ(20, shortest=5).fit(features)) > found(ITQ(20).fit(features))


def test_a_saved_model_has_the_same_codes(tmp_path):
    features = correlated()
    hasher = NestedITQ(16, shortest=4).fit(features)
    hasher.save(tmp_path)
    assert bp.load(tmp_path).encode(features) == hasher.encode(features)


def test_wrong_options_are_refused():
    features = correlated()
    with pytest.raises(ValueError, match=r"got 21 bits for 20 feature\(s\); use fewer"):
        NestedITQ(21).fit(features)
    with pytest.raises(ValueError, match="shortest must be an integer >= 1, got 0"):
        NestedITQ(8, shortest=0).fit(features)
    with pytest.raises(ValueError, match="iterations must be an integer >= 0, got -1"):
        NestedITQ(8, iterations=-1).fit(features)
