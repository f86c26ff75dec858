import numpy as np
import pytest
from scipy.stats import spearmanr

from bitprint.methods.klsh import KLSH, random_subsets


def normal(samples, width, seed=0):
    return np.random.default_rng(seed).standard_normal((samples, width)).astype(np.float32)


def kernel_by_hand(hasher, rows):
    """k(x, z) for every row and landmark, by plain loops."""
    values = np.empty((len(rows), len(hasher.landmarks_)))
    for i, x in enumerate(rows.astype(np.float64)):
        for j, z in enumerate(hasher.landmarks_.astype(np.float64)):
            if hasher.kernel == "rbf":
                values[i, j] = np.exp(-((x - z) ** 2).sum() / (2 * hasher.variance_))
            else:
                values[i, j] = x @ z
    return values


def centred(values, gram):
    """Center similarities (n, p); `gram` contains the similarities of the landmarks."""
    return values - values.mean(axis=1, keepdims=True) - gram.mean(axis=0) + gram.mean()


def square_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_landmarks_and_new_rows_are_centred_alike(kernel):
    features = normal(60, 5) + 2
    hasher = KLSH(64, kernel=kernel, landmarks=40).fit(features)
    gram = kernel_by_hand(hasher, hasher.landmarks_)
    for rows in (hasher.landmarks_, normal(30, 5, seed=1)):
        outputs = centred(kernel_by_hand(hasher, rows), gram) @ hasher.weights_
        np.testing.assert_allclose(hasher.project(rows), outputs, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(hasher.encode(rows).signs() > 0, outputs >= 0)


@pytest.mark.parametrize("width", [2, 4, 64])
def test_weights_sum_to_zero(width):
    hasher = KLSH(100).fit(normal(300, width))
    assert np.abs(hasher.weights_.sum(axis=0)).max() < 1e-9


def test_weights_are_whitened_subsets():
    """Without the whitening, weights are indicators of t of p landmarks minus t / p."""
    hasher = KLSH(50, landmarks=40, subset=7).fit(normal(40, 30))
    p, t = 40, 7
    gram = kernel_by_hand(hasher, hasher.landmarks_)
    marks = square_root(centred(gram, gram)) @ hasher.weights_ / np.sqrt((p - 1) / t) + t / p
    np.testing.assert_allclose(marks, np.round(marks), atol=1e-6)
    assert set(np.round(marks).ravel()) == {0, 1}
    np.testing.assert_array_equal(np.round(marks).sum(axis=0), t)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_bits_differ_in_proportion_to_the_angle_in_kernel_space(kernel):
    bits = 4000
    hasher = KLSH(bits, kernel=kernel, landmarks=300, subset=30).fit(normal(300, 8))
    gram = kernel_by_hand(hasher, hasher.landmarks_)
    inner = centred(gram, gram)
    lengths = np.sqrt(np.diag(inner))
    angles = np.arccos(np.clip(inner / lengths / lengths[:, None], -1, 1))
    codes = hasher.encode(hasher.landmarks_)
    pairs = np.triu_indices(300, k=1)
    share, expected = (codes.hamming(codes) / bits)[pairs], (angles / np.pi)[pairs]
    assert spearmanr(share, expected).statistic > 0.99
    # Tolerance: the largest of 44,850 deviations of 4,000 bits, and a sum of 30 is not Gaussian.
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / bits) + 0.01


def test_a_query_that_is_a_landmark_gets_its_code():
    hasher = KLSH(64).fit(normal(100, 6))
    together = hasher.encode(hasher.landmarks_)
    for i in range(0, 100, 10):
        assert hasher.encode(hasher.landmarks_[i : i + 1]) == together[i]


def test_default_variance_is_the_mean_squared_distance():
    features = normal(25, 3) + 100
    hasher = KLSH(4, landmarks=25).fit(features)
    rows = features.astype(np.float64)
    distances = [((x - y) ** 2).sum() for x in rows for y in rows]
    np.testing.assert_allclose(hasher.variance_, np.mean(distances), rtol=1e-9)
    assert KLSH(4, variance=2).fit(features).variance_ == 2


def test_landmarks_are_different_training_rows():
    features = normal(50, 3)
    for landmarks, expected in ((20, 20), (300, 50)):
        rows = KLSH(4, landmarks=landmarks).fit(features).landmarks_
        assert len(np.unique(rows, axis=0)) == expected
        assert {tuple(row) for row in rows} <= {tuple(row) for row in features}


def test_subsets_are_uniform():
    marks = random_subsets(20_000, 12, 3, np.random.default_rng(0))
    np.testing.assert_array_equal(marks.sum(axis=1), 3)
    p = 3 / 12
    assert np.abs(marks.mean(axis=0) - p).max() < 4 * np.sqrt(p * (1 - p) / 20_000)
    both = (marks.T @ marks / 20_000)[np.triu_indices(12, k=1)]
    p = p * 2 / 11
    assert np.abs(both - p).max() < 4 * np.sqrt(p * (1 - p) / 20_000)


def test_longer_codes_begin_with_shorter_ones_and_seed_decides():
    features = normal(80, 5)
    short, long, other = (
        KLSH(bits, seed=seed).fit(features).encode(features).signs()
        for bits, seed in ((12, 7), (64, 7), (12, 8))
    )
    np.testing.assert_array_equal(short, long[:, :12])
    assert np.any(short != other)


def test_kernel_function(tmp_path):
    features = normal(60, 5)
    named = KLSH(32, kernel="linear").fit(features)
    own = KLSH(32, kernel=lambda rows, landmarks: rows @ landmarks.T).fit(features)
    np.testing.assert_allclose(own.project(features), named.project(features), atol=1e-4)
    with pytest.raises(ValueError, match="kernel is a function cannot be saved; use one of rbf"):
        own.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_indefinite_part_is_ignored():
    """x.y over two coordinates minus x.y over the others: only the first two are hashed."""
    signature = np.array([1, 1, -1, -1, -1.0])
    features = normal(60, 5)
    hasher = KLSH(32, kernel=lambda rows, landmarks: rows * signature @ landmarks.T).fit(features)
    rank = np.linalg.matrix_rank(hasher.weights_)
    assert rank == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "cosine"}, "klsh: kernel must be rbf, linear or a function, got 'cosine'"),
        ({"kernel": "sigmoid"}, "klsh: kernel must be rbf, linear"),
        ({"kernel": lambda x, z: x @ z.T * np.nan}, "must return finite numbers of shape"),
        ({"kernel": lambda x, z: x[:, 0]}, r"finite numbers of shape \(20, 20\), got shape \(20,"),
        ({"kernel": lambda x, z: x[:, :1] - z[:, 0]}, r"kernel\(x, y\) must equal kernel\(y, x\)"),
        ({"variance": 0}, "variance must be positive, got 0"),
        ({"landmarks": 0}, "anchors must be at least 1"),
        ({"subset": 0}, "subset must be at least 1, got 0"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        KLSH(8, **options).fit(normal(20, 3))


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("samples", [1, 2, 40])
def test_constant_features_get_one_code(kernel, samples):
    features = np.full((samples, 5), 0.1)
    codes = KLSH(128, kernel=kernel).fit(features).encode(features)
    assert not codes.hamming(codes).any()


def test_duplicates_and_fewer_samples_than_bits():
    features = np.repeat(normal(4, 6), 3, axis=0)
    hasher = KLSH(128).fit(features)
    codes = hasher.encode(features)
    assert len(np.unique(codes.packed, axis=0)) == 4
    assert np.isfinite(hasher.project(normal(50, 6, seed=3))).all()
