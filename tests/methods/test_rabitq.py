import numpy as np
import pytest

import bitprint as bp
from bitprint.methods.rabitq import RaBitQ


def vectors(samples, width, seed=0):
    rng = np.random.default_rng(seed)
    return (2 + rng.standard_normal((samples, width)) * rng.uniform(0.2, 3, width)).astype(
        np.float32
    )


def centered(hasher, features):
    return features.astype(np.float64) - hasher.mean_


@pytest.mark.parametrize("bits", [1, 7, 12, 30])
def test_rotation_has_orthonormal_rows_or_columns(bits):
    P = RaBitQ(bits).fit(vectors(50, 12)).rotation_
    assert P.shape == (12, bits)
    product = P.T @ P if bits <= 12 else P @ P.T
    np.testing.assert_allclose(product, np.eye(min(12, bits)), atol=1e-6)


def test_codes_are_signs_of_rotated_centered_vectors():
    features = vectors(60, 12)
    hasher = RaBitQ(16).fit(features)
    expected = centered(hasher, features) @ hasher.rotation_
    np.testing.assert_allclose(hasher.mean_, features.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(hasher.project(features), expected, atol=1e-5)
    np.testing.assert_array_equal(hasher.encode(features).signs() > 0, expected >= 0)


@pytest.mark.parametrize("bits", [5, 12, 20])
def test_factors_are_those_of_the_reconstruction(bits):
    """By plain loops over the vectors."""
    features = vectors(40, 12)
    hasher = RaBitQ(bits).fit(features)
    norms, alignments = hasher.factors(features)
    for row, signs in enumerate(hasher.encode(features).signs().astype(float)):
        x = centered(hasher, features)[row]
        reconstruction = hasher.rotation_ @ signs / np.sqrt(bits)
        length = np.sqrt(sum(value * value for value in x))
        assert norms[row] == pytest.approx(length, rel=1e-5)
        assert alignments[row] == pytest.approx(reconstruction @ x / length, rel=1e-4)


@pytest.mark.parametrize("bits", [6, 12, 24])
def test_estimates_follow_the_definition(bits):
    features, queries = vectors(30, 12), vectors(4, 12, seed=1)
    hasher = RaBitQ(bits).fit(features)
    codes, factors = hasher.encode(features), hasher.factors(features)
    products, bounds = hasher.estimate(queries, codes, factors)
    assert products.shape == bounds.shape == (4, 30)
    for i, q in enumerate(centered(hasher, queries)):
        for j, signs in enumerate(codes.signs().astype(float)):
            o = hasher.rotation_ @ signs / np.sqrt(bits)
            norm, a = float(factors.norms[j]), float(factors.alignments[j])
            assert products[i, j] == pytest.approx(norm * (o @ q) / a, rel=1e-3, abs=1e-3)
            limit = norm * np.linalg.norm(q) * np.sqrt(1 / a**2 - 1) * hasher._quantile(0.95)
            assert bounds[i, j] == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize("bits", [10, 16, 40])
def test_the_estimate_is_unbiased_over_rotations(bits):
    """The mean over 1,000 rotations is within 4 standard errors, for each of 12 pairs."""
    features = vectors(3, 16)
    queries = np.concatenate([features[:1], vectors(3, 16, seed=5)])  # also a vector with itself
    estimates = []
    for seed in range(1000):
        hasher = RaBitQ(bits, seed=seed).fit(features)
        found = hasher.estimate(queries, hasher.encode(features), hasher.factors(features))
        estimates.append(found.products.astype(np.float64))
    truth = centered(hasher, queries) @ centered(hasher, features).T
    error = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert np.all(np.abs(np.mean(estimates, axis=0) - truth) < 4 * error + 1e-3)
    biased = np.mean(estimates, axis=0) * 0.9
    assert np.any(np.abs(biased - truth) > 4 * error + 1e-3)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("bits", [10, 16, 40])
def test_the_bound_holds_with_its_probability(bits, confidence):
    """Exactly for a query that is orthogonal to the vector; within 4 standard deviations."""
    features = np.zeros((2, 16), np.float32)
    features[:, 0] = 3, -3
    query = np.zeros((1, 16), np.float32)
    query[0, 5] = 2
    within = []
    for seed in range(1000):
        hasher = RaBitQ(bits, seed=seed).fit(features)
        products, bounds = hasher.estimate(
            query, hasher.encode(features), hasher.factors(features), confidence=confidence
        )
        within.append(abs(products[0, 0]) <= bounds[0, 0])
    deviation = np.sqrt(confidence * (1 - confidence) / len(within))
    assert abs(np.mean(within) - confidence) < 4 * deviation


def test_more_bits_have_smaller_errors():
    features, queries = vectors(300, 32), vectors(20, 32, seed=1)
    errors = []
    for bits in (8, 32, 128, 512):
        hasher = RaBitQ(bits).fit(features)
        products, _ = hasher.estimate(queries, hasher.encode(features), hasher.factors(features))
        truth = centered(hasher, queries) @ centered(hasher, features).T
        errors.append(np.abs(products - truth).mean())
    assert errors == sorted(errors, reverse=True)


def test_a_vector_at_the_mean_has_estimates_of_zero():
    features = np.concatenate([vectors(9, 8), np.zeros((1, 8), np.float32)])
    features[-1] = features[:-1].mean(axis=0)
    hasher = RaBitQ(8).fit(features)
    hasher.mean_ = features[-1]
    products, bounds = hasher.estimate(
        features, hasher.encode(features[-1:]), hasher.factors(features[-1:])
    )
    assert not products.any()
    assert not bounds.any()


def test_estimates_are_those_of_a_saved_model(tmp_path):
    features = vectors(20, 12)
    hasher = RaBitQ(12, seed=3).fit(features)
    hasher.save(tmp_path)
    loaded = bp.load(tmp_path)
    expected = hasher.estimate(features, hasher.encode(features), hasher.factors(features))
    found = loaded.estimate(features, loaded.encode(features), loaded.factors(features))
    np.testing.assert_array_equal(found.products, expected.products)


def test_wrong_arguments_are_refused():
    features = vectors(20, 12)
    hasher = RaBitQ(12).fit(features)
    codes, factors = hasher.encode(features), hasher.factors(features)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, got 1"):
        hasher.estimate(features, codes, factors, confidence=1)
    with pytest.raises(ValueError, match="expected 12 bits and one pair of factors per code, got"):
        hasher.estimate(features, codes[:5], factors)
    with pytest.raises(ValueError, match="12 bits"):
        hasher.estimate(features, RaBitQ(8).fit(features).encode(features), factors)
