import numpy as np
import pytest

from bitprint.methods.itq import ITQ


def correlated(samples=300, width=20, seed=0):
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((samples, width)) @ rng.standard_normal((width, width))
    return (4 + mixed).astype(np.float32)


def scores_of(hasher, features):
    return (features.astype(np.float64) - features.astype(np.float64).mean(axis=0)) @ (
        hasher.components_.astype(np.float64)
    )


def loss(V, R):
    """||B - V R||^2 with the optimal B, entry by entry."""
    total = 0.0
    for row in V:
        for k in range(R.shape[1]):
            value = row @ R[:, k]
            total += ((1 if value >= 0 else -1) - value) ** 2
    return total


@pytest.mark.parametrize("bits", [1, 2, 12, 20])
def test_loss_never_increases(bits):
    features = correlated()
    hasher = ITQ(bits, iterations=50).fit(features)
    assert hasher.losses_.shape == (100,)
    rounding = np.finfo(np.float64).eps * bits * hasher.losses_[0]
    assert np.all(np.diff(hasher.losses_) <= rounding)
    if bits > 1:  # a rotation of one dimension is a sign
        assert hasher.losses_[-1] < hasher.losses_[0]


def test_losses_are_the_objective():
    features = correlated(samples=80)
    start = ITQ(6, iterations=0, seed=4).fit(features)
    hasher = ITQ(6, iterations=3, seed=4).fit(features)
    V, R = scores_of(hasher, features), start.rotation_
    for step in range(3):
        np.testing.assert_allclose(hasher.losses_[2 * step], loss(V, R), rtol=1e-5)
        B = np.where(V @ R >= 0, 1.0, -1.0)
        W, _, Ut = np.linalg.svd(B.T @ V)
        R = (W @ Ut).T
        np.testing.assert_allclose(
            hasher.losses_[2 * step + 1], np.square(B - V @ R).sum(), rtol=1e-5
        )
    np.testing.assert_allclose(hasher.rotation_, R, atol=1e-5)


@pytest.mark.parametrize("bits", [1, 7, 16])
def test_rotation_is_orthogonal(bits):
    for iterations in (0, 50):
        R = ITQ(bits, iterations=iterations).fit(correlated()).rotation_
        assert np.abs(R.T @ R - np.eye(bits)).max() < 1e-10


def test_beats_a_random_rotation_and_none():
    features = correlated()
    for seed in range(5):
        hasher = ITQ(12, seed=seed).fit(features)
        random = ITQ(12, seed=seed, iterations=0).fit(features)
        V = scores_of(hasher, features)
        found = loss(V, hasher.rotation_)
        assert found < loss(V, random.rotation_)
        assert found < loss(V, np.eye(12))


def test_corners_of_a_turned_square_are_found():
    turn = np.array([[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]])
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) @ turn
    for seed in range(5):
        hasher = ITQ(2, seed=seed).fit(corners)
        assert abs(hasher.losses_[-1]) < 1e-5
        codes = hasher.encode(corners)
        expected = np.array([[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 1], [2, 1, 1, 0]])
        np.testing.assert_array_equal(codes.hamming(codes), expected)


def test_codes_are_signs_of_rotated_centred_scores():
    features = correlated()
    hasher = ITQ(10).fit(features)
    expected = scores_of(hasher, features) @ hasher.rotation_
    np.testing.assert_allclose(hasher.project(features), expected, atol=1e-4)
    moved = ITQ(10).fit(features + 1000)
    agree = moved.encode(features + 1000).signs() == hasher.encode(features).signs()
    assert agree.mean() > 0.999  # equal except for rounding


def test_order_of_columns_does_not_change_distances():
    features = correlated()
    hasher = ITQ(12).fit(features)
    before = hasher.encode(features)
    hasher.rotation_ = hasher.rotation_[:, np.random.default_rng(1).permutation(12)]
    after = hasher.encode(features)
    assert after != before
    np.testing.assert_array_equal(after.hamming(after), before.hamming(before))


def test_seed_decides():
    features = correlated()
    same, again, other = (ITQ(8, seed=seed).fit(features).encode(features) for seed in (1, 1, 2))
    assert same == again
    assert same != other


def test_more_bits_than_features():
    with pytest.raises(ValueError, match=r"got 21 bits for 20 feature\(s\); use fewer"):
        ITQ(21).fit(correlated())


def test_negative_iterations():
    with pytest.raises(ValueError, match="iterations cannot be negative, got -1"):
        ITQ(2, iterations=-1).fit(correlated())


def test_fewer_samples_than_bits():
    features = correlated(samples=6, width=40)
    hasher = ITQ(32).fit(features)
    codes = hasher.encode(features)
    assert len(np.unique(codes.packed, axis=0)) == 6
    assert np.abs(hasher.rotation_.T @ hasher.rotation_ - np.eye(32)).max() < 1e-10
    assert np.isfinite(hasher.project(correlated(seed=9, width=40))).all()


def test_constant_features_get_one_code():
    features = np.full((6, 5), 0.1)
    codes = ITQ(5).fit(features).encode(features)
    assert not codes.hamming(codes).any()


def test_duplicate_rows_get_the_same_code():
    features = np.repeat(correlated(samples=20), 3, axis=0)
    packed = ITQ(16).fit(features).encode(features).packed.reshape(20, 3, -1)
    np.testing.assert_array_equal(packed, packed[:, :1].repeat(3, axis=1))
