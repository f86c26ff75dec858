import numpy as np
import pytest

from bitprint.methods.pca import principal_components, scores


def by_svd(features, count):
    """Directions by singular value decomposition, with a positive largest entry."""
    centred = features.astype(np.float64) - features.astype(np.float64).mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:count].T
    for column in directions.T:
        if column[np.argmax(np.abs(column))] < 0:
            column *= -1
    return directions


@pytest.mark.parametrize("shape", [(200, 9), (9, 9), (7, 30), (5000, 3)])
def test_components_are_those_of_the_svd(shape):
    rng = np.random.default_rng(0)
    spread = np.linspace(3, 1, shape[1])
    features = (5 + spread * rng.standard_normal(shape)).astype(np.float32)
    count = min(3, shape[1])
    mean, components = principal_components(features, count)
    np.testing.assert_allclose(mean, features.astype(np.float64).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(components, by_svd(features, count), atol=1e-9)
    expected = (features - mean) @ components
    np.testing.assert_allclose(scores(features, mean, components), expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(50, 8), (6, 8)])
def test_directions_without_variance_are_zero(shape):
    rng = np.random.default_rng(1)
    features = np.zeros(shape, np.float32)
    features[:, :2] = rng.integers(-9, 9, (shape[0], 2))
    features[:, 4] = 7
    _, components = principal_components(features, 5)
    assert components.shape == (8, 5)
    np.testing.assert_allclose(components.T @ components, np.diag([1, 1, 0, 0, 0]), atol=1e-12)
    assert not components[2:].any()


@pytest.mark.parametrize("shape", [(10, 4), (3, 4), (1, 4)])
def test_constant_features_have_no_components(shape):
    features = np.full(shape, 0.1, np.float32)
    mean, components = principal_components(features, 4)
    np.testing.assert_array_equal(mean, features[0])
    assert not components.any()


def test_distant_mean_does_not_change_codes():
    rng = np.random.default_rng(2)
    near = np.round(rng.standard_normal((300, 4)) * [8, 4, 2, 1])
    far = (near + 2**20).astype(np.float32)
    _, expected = principal_components(near.astype(np.float32), 4)
    _, components = principal_components(far, 4)
    np.testing.assert_allclose(components, expected, atol=1e-9)
