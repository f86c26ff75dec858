from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.linalg import eigh

import bitprint as bp
from bitprint.methods import ksh
from bitprint.methods.ksh import (
    KSH,
    Kernel,
    Residual,
    accelerated_descent,
    learn,
    smooth_objective,
    spectral_start,
)

CLASSES = np.array([0, 2, 1, 2, 0, 7, 7, 1, 0, 2])
SEVERAL = np.random.default_rng(9).integers(0, 2, (10, 4)).astype(np.uint8)


def dense_residual(labels, bits, codes):
    """K S - H H' by plain loops."""
    matrix = np.empty((len(labels), len(labels)))
    for i, one in enumerate(labels):
        for j, other in enumerate(labels):
            share = bool(np.any(one * other > 0)) if labels.ndim == 2 else one == other
            matrix[i, j] = bits * (1 if share else -1)
            matrix[i, j] -= sum(h[i] * h[j] for h in codes)
    return matrix


def problem(seed=0, count=40, width=6, classes=3):
    rng = np.random.default_rng(seed)
    phi = rng.standard_normal((count, width))
    phi -= phi.mean(axis=0)
    return phi, rng.integers(0, classes, count), rng


def two_modes(rng, count=400):
    """Each class is in two opposite corners of a square: no linear bit separates them."""
    corner = rng.integers(0, 4, count)
    centres = 3.0 * np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])
    noise = rng.standard_normal((count, 6))
    features = np.hstack([centres[corner], np.zeros((count, 4))]) + noise
    return features.astype(np.float32), corner // 2


# ---- the residual


@pytest.mark.parametrize("labels", [CLASSES, SEVERAL], ids=["classes", "several labels"])
def test_residual_is_the_dense_matrix(labels):
    rng = np.random.default_rng(1)
    residual = Residual(labels, bits=5)
    codes = []
    for _ in range(4):
        right = rng.standard_normal((10, 3))
        dense = dense_residual(labels, 5, codes)
        np.testing.assert_allclose(residual @ right[:, 0], dense @ right[:, 0], atol=1e-12)
        np.testing.assert_allclose(residual.between(right), right.T @ dense @ right, atol=1e-11)
        assert residual.form(right[:, 0]) == pytest.approx(right[:, 0] @ dense @ right[:, 0])
        codes.append(rng.choice([-1.0, 1.0], 10))
        residual.subtract(codes[-1])


def test_classes_and_their_one_hot_matrix_are_the_same_supervision():
    one_hot = np.eye(8, dtype=np.uint8)[CLASSES]
    right = np.random.default_rng(2).standard_normal(10)
    np.testing.assert_allclose(Residual(CLASSES, 3) @ right, Residual(one_hot, 3) @ right)


def test_norm_of_the_residual_follows_the_greedy_objective():
    """||R - h h'||^2 = ||R||^2 - 2 h'Rh + l^2: a bit with h'Rh > l^2 / 2 lowers the loss."""
    phi, labels, _ = problem()
    hasher = KSH(bits=6, anchors=20).fit(phi, labels)
    signs = hasher.encode(phi).signs().astype(float)
    matrix, norms, gains = dense_residual(labels, 6, []), [], []
    for h in signs.T:
        norms.append(np.square(matrix).sum())
        gains.append(h @ matrix @ h)
        matrix -= np.outer(h, h)
    norms.append(np.square(matrix).sum())
    for k, gain in enumerate(gains):
        assert norms[k + 1] == pytest.approx(norms[k] - 2 * gain + len(labels) ** 2)
        assert (norms[k + 1] < norms[k]) == (gain > len(labels) ** 2 / 2)
    assert gains[0] > len(labels) ** 2 / 2


# ---- one bit


def test_gradient_of_the_smooth_objective():
    phi, labels, rng = problem()
    residual = Residual(labels, bits=4)
    residual.subtract(rng.choice([-1.0, 1.0], len(labels)))
    a = rng.standard_normal(phi.shape[1])
    gradient = phi.T @ smooth_objective(phi @ a, residual)[1]
    for j, step in enumerate(1e-5 * np.eye(len(a))):
        up, down = (smooth_objective(phi @ (a + s), residual)[0] for s in (step, -step))
        assert gradient[j] == pytest.approx((up - down) / 2e-5, rel=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
def test_rounded_products_are_near_the_exact_ones(threads, monkeypatch):
    monkeypatch.setattr(ksh, "thread_count", lambda: threads)
    rng = np.random.default_rng(2)
    phi, a, b = rng.standard_normal((200, 40)), rng.standard_normal(40), rng.standard_normal(200)
    with ThreadPoolExecutor(threads) as pool:
        for kernel in (ksh.Kernel(phi), ksh.Kernel(phi.astype(np.float32))):
            found = kernel.times(a, pool)
            np.testing.assert_allclose(found, phi @ a, atol=2e-4 * np.linalg.norm(a))
            found = kernel.transposed_times(b, pool)
            np.testing.assert_allclose(found, phi.T @ b, atol=2e-4 * np.linalg.norm(b))


def test_smooth_objective_by_loops():
    phi, labels, rng = problem(count=8)
    a = rng.standard_normal(phi.shape[1])
    v = [2 / (1 + np.exp(-x)) - 1 for x in phi @ a]
    matrix = dense_residual(labels, 4, [])
    by_hand = -sum(v[i] * matrix[i, j] * v[j] for i in range(8) for j in range(8))
    assert smooth_objective(phi @ a, Residual(labels, 4))[0] == pytest.approx(by_hand)


def test_spectral_start_is_the_best_without_signs():
    phi, labels, rng = problem()
    residual, gram = Residual(labels, 4), phi.T @ phi
    start = spectral_start(residual.between(phi), gram, len(phi))
    assert start @ gram @ start == pytest.approx(len(phi))
    quadratic = phi.T @ dense_residual(labels, 4, []) @ phi
    best = eigh(quadratic, gram)[0][-1]
    np.testing.assert_allclose(quadratic @ start, best * (gram @ start), atol=1e-8)
    for a in rng.standard_normal((200, len(start))):
        a *= np.sqrt(len(phi) / (a @ gram @ a))
        assert a @ quadratic @ a <= start @ quadratic @ start + 1e-9


def test_gradient_steps_improve_the_smooth_objective():
    for seed in range(5):
        phi, labels, _ = problem(seed)
        residual = Residual(labels, 4)
        start = spectral_start(residual.between(phi), phi.T @ phi, len(phi))
        before, after = (
            smooth_objective(phi @ a, residual)[0]
            for a in (start, accelerated_descent(Kernel(phi), residual, start))
        )
        assert after < before


def test_every_bit_is_at_least_as_good_as_its_spectral_start():
    features, labels = two_modes(np.random.default_rng(3), 150)
    hasher = KSH(bits=8, anchors=30).fit(features, labels)
    kernel = np.exp(
        -np.square(features[:, None] - hasher.anchors_[None]).sum(axis=2, dtype=float)
        / (2 * hasher.variance_)
    )
    phi = kernel - kernel.mean(axis=0)
    gram = phi.T @ phi
    gram += 1e-8 * np.trace(gram) / len(gram) * np.eye(len(gram))
    residual = Residual(labels, bits=8)
    gains = []
    for projection in hasher.projections_.T:
        start = phi @ spectral_start(residual.between(phi), gram, len(phi))
        found, first = (np.where(z >= 0, 1.0, -1.0) for z in (phi @ projection, start))
        gains.append(found @ (residual @ found) - first @ (residual @ first))
        residual.subtract(found)
    assert min(gains) >= 0
    assert max(gains) > 0


def plain_learn(phi, labels, bits):
    """The method with dense matrices in float64, without blocks and updates."""
    gram = phi.T @ phi
    gram += 1e-8 * np.trace(gram) / len(gram) * np.eye(len(gram))
    residual, codes, projections = Residual(labels, bits), [], []
    for _ in range(bits):
        dense = dense_residual(labels, bits, codes)
        vectors = eigh(phi.T @ dense @ phi, gram)[1]
        start = vectors[:, -1] * np.sqrt(len(phi))
        choices = [start, accelerated_descent(Kernel(phi), residual, start)]
        signs = [np.where(phi @ a >= 0, 1.0, -1.0) for a in choices]
        better = int(signs[1] @ dense @ signs[1] > signs[0] @ dense @ signs[0])
        codes.append(signs[better])
        residual.subtract(signs[better])
        projections.append(choices[better])
    return np.stack(projections, axis=1)


@pytest.mark.parametrize("several", [False, True])
def test_blocks_and_updates_learn_as_dense_matrices(several, monkeypatch):
    monkeypatch.setattr(ksh, "_ROWS", 16)
    phi, labels, rng = problem(seed=3, count=60)
    if several:
        labels = rng.integers(0, 2, (60, 4)).astype(np.uint8)
    plain = phi @ plain_learn(phi, labels, 4)
    for exact in (True, False):
        given = phi if exact else phi.astype(np.float32)
        outputs = phi @ learn(given, labels, 4)
        # An eigenvector has an arbitrary sign, so a bit may be inverted.
        agreement = np.abs(np.mean(np.sign(outputs) * np.sign(plain), axis=0))
        assert agreement.min() == 1 if exact else agreement.min() > 0.95


# ---- the method


def test_outputs_by_hand():
    features, labels = two_modes(np.random.default_rng(4), 30)
    hasher = KSH(bits=3, anchors=5).fit(features, labels)
    rows = features.astype(float)
    anchors = hasher.anchors_.astype(float)
    squared = [[sum((x - a) ** 2) for a in anchors] for x in rows]
    variance = np.mean(squared)
    kernel = np.exp(-np.array(squared) / (2 * variance))
    mean = kernel.mean(axis=0)
    assert hasher.variance_ == pytest.approx(variance)
    # A single query is centered by the mean of the training rows.
    np.testing.assert_allclose(
        hasher.project(features[7:8])[0], (kernel[7] - mean) @ hasher.projections_, rtol=1e-5
    )
    assert all(any(np.array_equal(a, x) for x in features) for a in hasher.anchors_)


def test_separates_classes_without_a_linear_boundary():
    features, labels = two_modes(np.random.default_rng(5), 600)
    train, query = slice(0, 500), slice(500, None)
    hasher = KSH(bits=12, anchors=60).fit(features[train], labels[train])
    centred = features - features[train].mean(axis=0)
    axes = np.linalg.svd(centred[train], full_matrices=False)[2]
    linear = bp.Codes.from_signs(centred @ axes.T >= 0)
    maps = [
        bp.evaluate(codes[query], labels[query], codes[train], labels[train]).map
        for codes in (hasher.encode(features), linear)
    ]
    assert maps[0] > 0.85
    assert maps[1] < 0.65


def many_label_sets():
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, (200, 6))
    return labels + 0.2 * rng.standard_normal((200, 6)), labels


def test_several_labels():
    features, labels = many_label_sets()
    codes = KSH(bits=16, anchors=40).fit(features, labels).encode(features)
    share = labels @ labels.T > 0
    distances = codes.hamming(codes)
    assert distances[share].mean() < distances[~share].mean() - 2


def test_many_label_sets_use_a_random_subset():
    features, labels = many_label_sets()
    assert len(np.unique(labels, axis=0)) > 40
    rng = np.random.default_rng(3)
    rng.permutation(200)  # the anchors
    unseen = rng.permutation(200)[40:]
    other = labels.copy()
    other[unseen] = 1 - labels[unseen]
    one, two = (
        KSH(bits=4, anchors=20, labelled=40, seed=3).fit(features, y) for y in (labels, other)
    )
    np.testing.assert_array_equal(one.projections_, two.projections_)
    everything = KSH(bits=4, anchors=20, seed=3).fit(features, labels)
    assert not np.array_equal(one.projections_, everything.projections_)


def test_scale_and_place_of_the_features_do_not_matter():
    features, labels = two_modes(np.random.default_rng(7), 100)
    codes = KSH(bits=6, anchors=20).fit(features, labels).encode(features)
    moved = 4 * features + 8
    again = KSH(bits=6, anchors=20).fit(moved, labels).encode(moved)
    assert np.mean(codes.signs() != again.signs()) < 0.01


def test_more_bits_than_rows_and_duplicate_rows():
    features = np.repeat(np.random.default_rng(8).standard_normal((4, 3)), 2, axis=0)
    labels = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    codes = KSH(bits=128).fit(features, labels).encode(features)
    distances = codes.hamming(codes)
    assert np.all(distances[::2, :] == distances[1::2, :])
    same = labels[:, None] == labels
    assert distances[same].max() < distances[~same].min()


@pytest.mark.parametrize(
    ("options", "features", "message"),
    [
        ({}, np.ones((6, 3)), "same features"),
        ({"anchors": 0}, np.eye(6), "anchors"),
        ({"labelled": 1}, np.eye(6), "labelled must be at least 2"),
    ],
)
def test_refusals(options, features, message):
    with pytest.raises(ValueError, match=message):
        KSH(bits=4, **options).fit(features, [0, 0, 0, 1, 1, 1])
