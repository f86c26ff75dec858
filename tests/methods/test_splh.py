import numpy as np
import pytest
from sklearn.decomposition import PCA

from bitprint.data import ImageSet
from bitprint.methods.splh import SPLH, deflate, reweight, sequential_projections


def problem(seed=0, count=30, width=5):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, width))
    rows -= rows.mean(axis=0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = rng.integers(0, 3, count)
    return rows, pair_weights(labels), rng


def pair_weights(labels):
    weights = np.where(labels[:, None] == labels, 1.0, -1.0)
    np.fill_diagonal(weights, 0)
    return weights


def top_eigenvector(matrix):
    return np.linalg.eigh(matrix)[1][:, -1]


def assert_same_direction(one, other):
    assert abs(one @ other) == pytest.approx(1, abs=1e-9)


# ---- the sequence


def test_every_direction_is_the_best_of_its_own_matrix():
    """Compute M_k by loops: S over all pairs, X deflated row by row."""
    rows, weights, rng = problem()
    everything = rng.standard_normal((80, 5))
    eta, alpha = 0.4, 0.7
    found = sequential_projections(
        rows, weights.copy(), eta * everything.T @ everything / 80, alpha, bits=4
    )
    for k in range(4):
        matrix = rows.T @ weights @ rows / 30 + eta * everything.T @ everything / 80
        np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
        w = found[:, k]
        assert np.linalg.norm(w) == pytest.approx(1)
        assert_same_direction(w, top_eigenvector(matrix))
        p = rows @ w
        for i in range(30):
            for j in range(30):
                if weights[i, j] * p[i] * p[j] < 0:
                    weights[i, j] -= alpha * p[i] * p[j]
        everything = everything - np.outer(everything @ w, w)


def test_without_weights_and_spread_all_bits_are_one_eigenvector():
    rows, weights, _ = problem()
    found = sequential_projections(rows, weights, np.zeros((5, 5)), alpha=0.0, bits=3)
    matrix = rows.T @ weights @ rows
    for w in found.T:
        np.testing.assert_allclose(matrix @ w, (w @ matrix @ w) * w, atol=1e-9)
        assert_same_direction(w, top_eigenvector(matrix))


def test_without_labels_it_is_pca():
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((100, 6)) * [6, 5, 4, 3, 2, 1]
    rows -= rows.mean(axis=0)
    found = sequential_projections(
        rows[:20], np.zeros((20, 20)), 0.3 * rows.T @ rows / 100, alpha=0.0, bits=6
    )
    for w, component in zip(found.T, PCA(6).fit(rows).components_, strict=True):
        assert_same_direction(w, component)


def test_wrong_pairs_gain_weight_and_no_other_changes():
    rows, weights, rng = problem()
    for _ in range(5):
        p = rows @ rng.standard_normal(5)
        new = reweight(weights, p, alpha=0.8)
        products = np.outer(p, p)
        wrong = products * weights < 0
        assert wrong.any()
        np.testing.assert_array_equal(new[~wrong], weights[~wrong])
        assert np.all(np.abs(new[wrong]) > np.abs(weights[wrong]))
        assert np.all(np.sign(new) == np.sign(weights))
        np.testing.assert_allclose(new - weights, np.where(wrong, -0.8 * products, 0), atol=1e-12)
        np.testing.assert_array_equal(new, new.T)
        weights = new


def test_deflation_is_that_of_the_rows():
    rows, _, rng = problem()
    w = rng.standard_normal(5)
    w /= np.linalg.norm(w)
    left = rows - np.outer(rows @ w, w)
    np.testing.assert_allclose(deflate(rows.T @ rows, w), left.T @ left, atol=1e-12)


# ---- the method


def test_fit_gives_the_sequence_centred_unit_rows():
    rng = np.random.default_rng(3)
    features = (5 + rng.standard_normal((60, 4)) * [1, 2, 3, 4]).astype(np.float32)
    labels = rng.integers(0, 3, 60)
    hasher = SPLH(bits=3, eta=0.2, alpha=0.5).fit(features, labels)
    centred = features - features.mean(axis=0, dtype=float)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    expected = sequential_projections(
        unit, pair_weights(labels), 0.2 * unit.T @ unit / 60, alpha=0.5, bits=3
    )
    overlap = np.sum(expected * hasher.projections_, axis=0)
    np.testing.assert_allclose(np.abs(overlap), 1, atol=1e-4)
    outputs = centred @ hasher.projections_
    np.testing.assert_allclose(hasher.project(features), outputs, rtol=1e-3, atol=1e-4)


def test_large_features_do_not_make_the_weights_explode():
    """Products of unit rows are at most 1, so a weight increases by at most alpha per bit."""
    rng = np.random.default_rng(4)
    features = 1e6 * rng.standard_normal((80, 6))
    labels = rng.integers(0, 2, 80)
    big = SPLH(bits=40).fit(features, labels)
    small = SPLH(bits=40).fit(features / 2**20, labels)
    assert np.all(np.isfinite(big.project(features)))
    differ = big.encode(features).signs() != small.encode(features / 2**20).signs()
    assert differ.mean() < 0.01


def test_learns_classes_that_pca_misses():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 400)
    features = rng.standard_normal((400, 6)) * [5, 5, 5, 5, 5, 0.5]
    features[:, 5] += 3 * labels
    distances = {}
    for eta in (0.0, 1e6):
        codes = SPLH(bits=4, eta=eta, labelled=200).fit(features, labels).encode(features)
        block = codes.hamming(codes)
        same = labels[:, None] == labels
        distances[eta] = block[~same].mean() - block[same].mean()
    assert distances[0.0] > 0.3
    assert abs(distances[1e6]) < 0.1


def test_only_labelled_rows_are_used():
    rng = np.random.default_rng(6)
    features = rng.standard_normal((100, 5))
    labels = rng.integers(0, 3, 100)
    chosen = np.random.default_rng(7).permutation(100)[:20]
    other = (labels + 1) % 3
    other[chosen] = labels[chosen]
    one, two = (SPLH(bits=6, labelled=20, seed=7).fit(features, y) for y in (labels, other))
    np.testing.assert_array_equal(one.projections_, two.projections_)
    assert not np.array_equal(one.projections_, SPLH(bits=6).fit(features, labels).projections_)


def test_several_labels():
    rng = np.random.default_rng(8)
    labels = rng.integers(0, 2, (200, 4))
    features = labels + 0.1 * rng.standard_normal((200, 4))
    codes = SPLH(bits=16).fit(features, labels).encode(features)
    share = labels @ labels.T > 0
    distances = codes.hamming(codes)
    assert distances[share].mean() < distances[~share].mean() - 1


def test_constant_features_give_one_code():
    labels = np.arange(8) % 2
    codes = SPLH(bits=6).fit(np.full((8, 3), 0.1), labels).encode(np.full((8, 3), 0.1))
    assert np.all(codes.hamming(codes) == 0)


def test_more_bits_than_dimensions_and_rows():
    features = np.random.default_rng(9).standard_normal((6, 3))
    hasher = SPLH(bits=128).fit(features, [0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(np.linalg.norm(hasher.projections_, axis=0), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eta": -1.0}, "must not be negative"),
        ({"alpha": -0.5}, "must not be negative"),
        ({"labelled": 1}, "labelled must be at least 2"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=f"splh: .*{message}"):
        SPLH(bits=4, **options).fit(np.eye(4), [0, 0, 1, 1])


@pytest.mark.filterwarnings("error")
def test_images_without_label_warn_except_rows_of_zeros():
    pixels = np.random.default_rng(0).integers(0, 255, (9, 4, 4, 3)).astype(np.uint8)
    labels = np.eye(2, dtype=np.uint8)[np.arange(9) % 2]
    labels[6:] = 0
    images = ImageSet(pixels, labels)
    with pytest.warns(UserWarning, match="3 of 9 images have no label"):
        SPLH(bits=4).fit(images)
    SPLH(bits=4).fit(images, labels)
    SPLH(bits=4).fit(images.labelled())
