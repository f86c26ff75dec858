"""PCAH and PCA-RR, against NumPy's singular value decomposition."""

import numpy as np
import pytest

import bitprint as bp
from bitprint.methods.itq import ITQ
from bitprint.methods.pca_rr import PCARR
from bitprint.methods.pcah import PCAH

both = pytest.mark.parametrize("cls", [PCAH, PCARR])


def correlated(samples=300, width=20, seed=0):
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((samples, width)) @ rng.standard_normal((width, width))
    return (4 + mixed).astype(np.float32)


def components(features, bits):
    """Return centered features and their leading right singular vectors."""
    centered = features.astype(np.float64) - features.astype(np.float64).mean(axis=0)
    return centered, np.linalg.svd(centered, full_matrices=False)[2][:bits].T


@pytest.mark.parametrize(("samples", "bits"), [(300, 1), (300, 7), (300, 20), (15, 12)])
def test_pcah_outputs_are_scores_of_singular_vectors(samples, bits):
    features = correlated(samples)
    centered, vectors = components(features, bits)
    hasher = PCAH(bits).fit(features)
    signs = np.sign((vectors * hasher.components_).sum(axis=0))  # vectors have arbitrary signs
    np.testing.assert_allclose(hasher.project(features), centered @ vectors * signs, atol=2e-4)


@pytest.mark.parametrize("bits", [1, 7, 20])
def test_pca_rr_rotates_the_scores(bits):
    features = correlated()
    hasher, plain = PCARR(bits, seed=3).fit(features), PCAH(bits).fit(features)
    R = hasher.rotation_
    assert np.abs(R.T @ R - np.eye(bits)).max() < 1e-10
    np.testing.assert_allclose(hasher.project(features), plain.project(features) @ R, atol=1e-4)
    assert np.array_equal(R, PCARR(bits, seed=3).fit(features).rotation_)
    assert bits == 1 or not np.allclose(R, PCARR(bits, seed=4).fit(features).rotation_)


def test_pca_rr_is_the_start_of_itq():
    features = correlated()
    start = ITQ(12, iterations=0, seed=5).fit(features)
    np.testing.assert_array_equal(
        PCARR(12, seed=5).fit(features).project(features), start.project(features)
    )


def test_rotation_spreads_the_variance_over_all_bits():
    features = correlated()
    before, after = (cls(12).fit(features).project(features).var(axis=0) for cls in (PCAH, PCARR))
    assert before.sum() == pytest.approx(after.sum(), rel=1e-5)
    assert after.max() / after.min() < before.max() / before.min()


@both
def test_more_bits_than_features_are_refused(cls):
    with pytest.raises(ValueError, match=rf"^{cls.name}: bits must .* got 21 bits for 20 feature"):
        cls(21).fit(correlated())


@both
def test_constant_features_get_one_code(cls):
    codes = cls(5).fit(np.full((6, 5), 0.1)).encode(np.full((6, 5), 0.1))
    assert not codes.hamming(codes).any()


@both
def test_saved_model_has_the_same_codes(cls, tmp_path):
    features = correlated()
    hasher = cls(7).fit(features)
    hasher.save(tmp_path)
    assert bp.load(tmp_path).encode(features) == hasher.encode(features)
