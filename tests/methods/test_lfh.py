import numpy as np
import pytest

from bitprint.methods.lfh import LFH, update_others, update_sample

CLASSES = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1, 2, 2, 1])
SEVERAL = np.random.default_rng(1).integers(0, 2, (12, 4)).astype(np.uint8)
SAMPLE = np.array([7, 2, 9])
BETA = 5.0

both_kinds = pytest.mark.parametrize("labels", [CLASSES, SEVERAL], ids=["classes", "several"])


def start(scale=1.0, seed=0):
    return scale * np.random.default_rng(seed).standard_normal((12, 4))


def similar(labels, i, j):
    return float(np.any(labels[i] * labels[j] > 0) if labels.ndim == 2 else labels[i] == labels[j])


def pair_term(factors, labels, i, j):
    theta = float(factors[i] @ factors[j]) / 2
    return similar(labels, i, j) * theta - np.logaddexp(0, theta)


def log_posterior(factors, labels, beta):
    """All ordered pairs; the prior once for each pair that contains a row."""
    count = len(factors)
    pairs = sum(
        pair_term(factors, labels, i, j) for i in range(count) for j in range(count) if i != j
    )
    return pairs - (count - 1) / (2 * beta) * np.square(factors).sum()


def sampled_posterior(factors, labels, sample, beta):
    """Rows outside the sample with the sample: each pair twice, the prior once per column."""
    others = [i for i in range(len(factors)) if i not in sample]
    pairs = sum(2 * pair_term(factors, labels, i, j) for i in others for j in sample)
    return pairs - len(sample) / (2 * beta) * np.square(factors[others]).sum()


def numerical_gradient(function, factors, i):
    gradient = np.empty(factors.shape[1])
    for k in range(len(gradient)):
        values = []
        for step in (1e-5, -1e-5):
            moved = factors.copy()
            moved[i, k] += step
            values.append(function(moved))
        gradient[k] = (values[0] - values[1]) / 2e-5
    return gradient


@both_kinds
def test_a_sampled_row_takes_the_newton_step_of_the_bound(labels):
    """Step times curvature is the gradient, here by finite differences."""
    for i in range(12):
        before, after = start(), start()
        update_sample(after, labels, np.array([i]), BETA)
        others = np.delete(before, i, axis=0)
        curvature = others.T @ others / 8 + 11 / BETA * np.eye(4)
        gradient = numerical_gradient(lambda u: log_posterior(u, labels, BETA), before, i)
        np.testing.assert_allclose((after[i] - before[i]) @ curvature, gradient, rtol=1e-5)
        np.testing.assert_array_equal(np.delete(after, i, axis=0), others)


@both_kinds
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_sampled_rows_never_lower_the_posterior(labels, scale):
    factors = start(scale)
    values = [log_posterior(factors, labels, BETA)]
    for i in np.tile(np.arange(12), 4):
        update_sample(factors, labels, np.array([i]), BETA)
        values.append(log_posterior(factors, labels, BETA))
    assert np.all(np.diff(values) >= -1e-9)
    assert values[-1] > values[0]


def test_the_sum_of_squares_is_kept_up_to_date():
    together, alone = start(), start()
    update_sample(together, CLASSES, SAMPLE, BETA)
    for i in SAMPLE:
        update_sample(alone, CLASSES, np.array([i]), BETA)
    np.testing.assert_allclose(together, alone, rtol=1e-10)


@both_kinds
def test_other_rows_take_the_newton_step_of_the_bound(labels):
    before, after = start(), start()
    update_others(after, labels, SAMPLE, BETA)
    np.testing.assert_array_equal(after[SAMPLE], before[SAMPLE])
    curvature = before[SAMPLE].T @ before[SAMPLE] / 8 + len(SAMPLE) / BETA * np.eye(4)
    for i in np.setdiff1d(np.arange(12), SAMPLE):
        gradient = numerical_gradient(
            lambda u: sampled_posterior(u, labels, SAMPLE, BETA), before, i
        )
        np.testing.assert_allclose((after[i] - before[i]) @ curvature, gradient, rtol=1e-5)


@both_kinds
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_other_rows_never_decrease_the_sampled_posterior(labels, scale):
    factors = start(scale)
    values = [sampled_posterior(factors, labels, SAMPLE, BETA)]
    for _ in range(10):
        update_others(factors, labels, SAMPLE, BETA)
        values.append(sampled_posterior(factors, labels, SAMPLE, BETA))
    assert np.all(np.diff(values) >= -1e-9)
    assert values[-1] > values[0]


def test_factors_that_are_huge_do_not_overflow():
    factors = start(1e3)
    update_others(factors, CLASSES, SAMPLE, BETA)
    update_sample(factors, CLASSES, SAMPLE, BETA)
    assert np.all(np.isfinite(factors))


# ---- the method


def blobs(rng, count=300, classes=4, width=6):
    labels = rng.integers(0, classes, count)
    centres = 3 * rng.standard_normal((classes, width))
    return centres[labels] + 0.5 * rng.standard_normal((count, width)), labels


@pytest.mark.parametrize("anchors", [None, 40])
def test_learns_classes(anchors):
    features, labels = blobs(np.random.default_rng(2))
    hasher = LFH(bits=16, anchors=anchors).fit(features[:200], labels[:200])
    queries, database = hasher.encode(features[200:]), hasher.encode(features[:200])
    nearest = database.hamming(queries).argmin(axis=0)
    assert np.mean(labels[:200][nearest] == labels[200:]) > 0.9


def test_kernel_separates_classes_without_a_linear_boundary():
    features = np.random.default_rng(3).standard_normal((400, 2))
    labels = (features[:, 0] * features[:, 1] > 0).astype(int)
    same = labels[:, None] == labels
    gaps = {}
    for anchors in (None, 100):
        hasher = LFH(bits=16, anchors=anchors, weight=1e-3).fit(features, labels)
        codes = hasher.encode(features)
        distances = codes.hamming(codes)
        gaps[anchors] = distances[~same].mean() - distances[same].mean()
    assert abs(gaps[None]) < 1
    assert gaps[100] > 5


@pytest.mark.parametrize("anchors", [None, 7])
def test_outputs_are_the_ridge_regression_of_the_factors(anchors):
    """U is drawn again with the same seed; W solves the normal equations, outputs by hand."""
    features, labels = blobs(np.random.default_rng(4), count=50)
    hasher = LFH(bits=5, weight=0.3, anchors=anchors, iterations=3, seed=6).fit(features, labels)
    rng = np.random.default_rng(6)
    factors = rng.standard_normal((50, 5))
    for _ in range(3):
        sample = rng.permutation(50)[:5]
        update_others(factors, labels, sample, 30.0)
        update_sample(factors, labels, sample, 30.0)
    inputs = features.astype(np.float32).astype(float)
    if anchors is not None:
        squared = np.array([[sum((x - a) ** 2) for a in hasher.anchors_] for x in inputs])
        inputs = np.exp(-squared / (2 * squared.mean()))
    centred = inputs - inputs.mean(axis=0)
    penalty = 0.3 * np.square(centred).sum() / centred.shape[1]
    system = centred.T @ centred + penalty * np.eye(centred.shape[1])
    expected = centred @ np.linalg.solve(system, centred.T @ factors)
    np.testing.assert_allclose(hasher.project(features), expected, rtol=1e-4, atol=1e-5)


def test_scale_and_place_of_the_features_do_not_matter():
    features, labels = blobs(np.random.default_rng(5), count=100)
    moved = 16 * features + 32
    one, other = (LFH(bits=8).fit(rows, labels).project(rows) for rows in (features, moved))
    np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_several_labels():
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 2, (200, 4))
    features = labels + 0.1 * rng.standard_normal((200, 4))
    codes = LFH(bits=24).fit(features, labels).encode(features)
    share = labels @ labels.T > 0
    distances = codes.hamming(codes)
    assert distances[share].mean() < distances[~share].mean() - 2


@pytest.mark.parametrize("anchors", [None, 4])
def test_constant_features_give_one_code(anchors):
    labels = np.arange(8) % 2
    codes = LFH(bits=6, anchors=anchors).fit(np.ones((8, 3)), labels).encode(np.ones((8, 3)))
    assert np.all(codes.hamming(codes) == 0)


def test_more_bits_than_rows():
    features, labels = np.eye(6), np.array([0, 0, 0, 1, 1, 1])
    codes = LFH(bits=64, weight=0.01).fit(features, labels).encode(features)
    distances = codes.hamming(codes)
    same = labels[:, None] == labels
    assert distances[same].max() < distances[~same].min()


@pytest.mark.parametrize("option", ["beta", "weight", "iterations"])
def test_refusals(option):
    with pytest.raises(ValueError, match=f"lfh: {option} must be positive"):
        LFH(bits=4, **{option: 0}).fit(np.eye(4), [0, 0, 1, 1])
    with pytest.raises(ValueError, match="anchors"):
        LFH(bits=4, anchors=0).fit(np.eye(4), [0, 0, 1, 1])
