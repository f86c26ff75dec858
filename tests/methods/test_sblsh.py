import numpy as np
import pytest

from bitprint.methods.lsh import LSH
from bitprint.methods.sblsh import SBLSH, super_bits


def pair_at(angle, width=16):
    pair = np.zeros((2, width), np.float32)
    pair[0, 0] = 1
    pair[1, :2] = np.cos(angle), np.sin(angle)
    return pair


@pytest.mark.parametrize(("width", "bits", "depth"), [(16, 16, 16), (10, 25, 10), (7, 20, 3)])
def test_batches_are_orthonormal_and_span_what_they_came_from(width, bits, depth):
    vectors = np.random.default_rng(0).standard_normal((width, bits))
    made = super_bits(vectors, depth)
    assert made.shape == (width, bits)
    for start in range(0, bits, depth):
        old, new = vectors[:, start : start + depth], made[:, start : start + depth]
        np.testing.assert_allclose(new.T @ new, np.eye(new.shape[1]), atol=1e-10)
        np.testing.assert_allclose(new @ (new.T @ old), old, atol=1e-10)


@pytest.mark.parametrize(("width", "bits"), [(5, 12), (12, 5), (1, 3)])
def test_default_depth_is_the_largest(width, bits):
    features = np.random.default_rng(1).standard_normal((20, width))
    projections = SBLSH(bits).fit(features).projections_
    assert projections.shape == (width, bits)
    depth = min(width, bits)
    for start in range(0, bits, depth):
        batch = projections[:, start : start + depth].astype(np.float64)
        np.testing.assert_allclose(batch.T @ batch, np.eye(batch.shape[1]), atol=1e-6)
    np.testing.assert_array_equal(projections, SBLSH(bits, depth=depth).fit(features).projections_)


def test_depth_one_is_lsh():
    features = np.random.default_rng(2).standard_normal((40, 8))
    plain = LSH(64, seed=3).fit(features).encode(features)
    single = SBLSH(64, depth=1, seed=3).fit(features).encode(features)
    np.testing.assert_array_equal(single.hamming(single), plain.hamming(plain))


@pytest.mark.parametrize("angle", [np.pi / 6, np.pi / 3, np.pi / 2])
def test_unbiased_like_lsh_with_less_variance(angle):
    """2,000 draws of 16 bits: mean within 3 standard errors, variance clearly smaller."""
    draws, bits = 2000, 16
    pair = pair_at(angle)
    shares = {}
    for method in (LSH, SBLSH):
        codes = (
            method(bits, centre=False, seed=seed).fit(pair).encode(pair) for seed in range(draws)
        )
        shares[method] = np.array([code.hamming(code)[0, 1] / bits for code in codes])
    p = angle / np.pi
    assert abs(shares[SBLSH].mean() - p) < 3 * shares[SBLSH].std() / np.sqrt(draws)
    assert shares[SBLSH].var() < shares[LSH].var()
    # The relative standard error of a variance of 2,000 draws is sqrt(2 / 2000).
    assert shares[SBLSH].var() < p * (1 - p) / bits * (1 - 3 * np.sqrt(2 / draws))


def test_centring_is_that_of_lsh():
    features = 50 + np.random.default_rng(4).standard_normal((200, 16))
    centred = SBLSH(256).fit(features).encode(features)
    away = SBLSH(256, centre=False).fit(features).encode(features)
    assert 115 < centred.hamming(centred).mean() < 135
    assert away.hamming(away).mean() < 10


@pytest.mark.parametrize("depth", [0, -1, 9])
def test_invalid_depth_is_refused(depth):
    with pytest.raises(ValueError, match=f"depth must be from 1 to .* 8, got {depth}"):
        SBLSH(12, depth=depth).fit(np.zeros((5, 8)))


def test_seed_decides():
    features = np.random.default_rng(5).standard_normal((50, 8))
    same, again, other = (SBLSH(12, seed=seed).fit(features).encode(features) for seed in (1, 1, 2))
    assert same == again
    assert same != other


def test_constant_features_get_one_code():
    features = np.full((6, 4), 3.7)
    codes = SBLSH(12).fit(features).encode(features)
    assert not codes.hamming(codes).any()
