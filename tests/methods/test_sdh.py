from itertools import product

import numpy as np
import pytest
from sklearn.svm import LinearSVC

from bitprint.methods.sdh import SDH, hinge_codes, least_squares_codes
from bitprint.supervision import class_matrix


def problem(seed=0, count=60, bits=8, classes=4):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    codes = rng.choice([-1.0, 1.0], (count, bits))
    outputs = rng.standard_normal((count, bits))
    return codes, outputs, labels, class_matrix(labels).astype(float)


def blobs(rng, count=300, classes=5, width=6, noise=0.6):
    centres = 2 * rng.standard_normal((classes, width))
    labels = rng.integers(0, classes, count)
    return centres[labels] + noise * rng.standard_normal((count, width)), labels


def best_classifier(codes, classes, weight):
    return np.linalg.solve(codes.T @ codes + weight * np.eye(codes.shape[1]), codes.T @ classes)


def costs(codes, outputs, classes, classifier, nu):
    """Return the objective of each row, given W and P."""
    label_term = np.square(classes - codes @ classifier).sum(axis=1)
    return label_term + nu * np.square(codes - outputs).sum(axis=1)


# ---- codes from least squares


@pytest.mark.parametrize("nu", [1e-5, 0.01, 10.0])
def test_no_single_flip_helps(nu):
    codes, outputs, _, classes = problem()
    classifier = best_classifier(codes, classes, weight=1.0)
    new = least_squares_codes(codes, outputs, classes, 1.0, nu)
    assert set(np.unique(new)) == {-1.0, 1.0}
    now = costs(new, outputs, classes, classifier, nu)
    assert np.all(now <= costs(codes, outputs, classes, classifier, nu) + 1e-12)
    for k in range(codes.shape[1]):
        flipped = new.copy()
        flipped[:, k] *= -1
        assert np.all(costs(flipped, outputs, classes, classifier, nu) >= now - 1e-12)


@pytest.mark.parametrize(("nu", "rate"), [(1e-5, 0.7), (10.0, 0.99)])
def test_most_rows_reach_the_best_of_all_codes(nu, rate):
    """Each row has a local optimum, which is often the global one."""
    codes, outputs, _, classes = problem(count=200)
    classifier = best_classifier(codes, classes, weight=1.0)
    new = least_squares_codes(codes, outputs, classes, 1.0, nu)
    every = np.array(list(product([-1.0, 1.0], repeat=8)))
    best = [costs(every, outputs[i], classes[i], classifier, nu).min() for i in range(len(classes))]
    reached = costs(new, outputs, classes, classifier, nu) <= np.array(best) + 1e-9
    assert reached.mean() >= rate


def test_objective_never_increases_over_updates():
    """Update W, B and P; each update is an exact minimizer (B: bit by bit)."""
    codes, _, _, classes = problem(count=80)
    phi = np.random.default_rng(1).standard_normal((80, 10))
    weight, nu = 1.0, 0.05
    values = []
    for _ in range(6):
        mapping = np.linalg.solve(phi.T @ phi + 1e-2 * np.eye(10), phi.T @ codes)
        classifier = best_classifier(codes, classes, weight)

        def objective(codes, mapping=mapping, classifier=classifier):
            total = costs(codes, phi @ mapping, classes, classifier, nu).sum()
            ridges = weight * np.square(classifier).sum() + nu * 1e-2 * np.square(mapping).sum()
            return total + ridges

        values.append(objective(codes))
        codes = least_squares_codes(codes, phi @ mapping, classes, weight, nu)
        values.append(objective(codes))
    assert np.all(np.diff(values) <= 1e-9)
    assert values[-1] < values[0]


def test_with_little_nu_a_class_has_nearly_one_code():
    codes, outputs, labels, classes = problem(count=120, bits=12, classes=6)
    for _ in range(5):
        codes = least_squares_codes(codes, outputs, classes, 1.0, 1e-5)
    distinct = len(np.unique(np.column_stack([labels, codes]), axis=0))
    assert 6 <= distinct <= 12


# ---- codes from the hinge


@pytest.mark.parametrize("classes", [2, 4])
def test_hinge_codes_by_loops(classes):
    codes, outputs, labels, _ = problem(classes=classes)
    codes[:, :classes] = 2.0 * np.eye(classes)[labels] - 1  # codes that depend on the labels
    labels = 3 * labels + 1  # class numbers with gaps
    machine = LinearSVC(multi_class="crammer_singer", C=0.5, fit_intercept=False, random_state=0)
    weights = machine.fit(codes, labels).coef_
    if classes == 2:
        weights = np.array([-weights[0] / 2, weights[0] / 2])
    nu = 0.5
    expected = np.empty_like(codes)
    for i, label in enumerate(labels):
        mine = weights[(label - 1) // 3]
        for k in range(codes.shape[1]):
            argument = outputs[i, k] + sum(mine[k] - w[k] for w in weights) / (2 * nu)
            expected[i, k] = 1 if argument >= 0 else -1
    np.testing.assert_array_equal(hinge_codes(codes, outputs, labels, 2.0, nu), expected)
    assert not np.array_equal(expected, np.where(outputs >= 0, 1, -1))


def test_hinge_codes_minimize_the_objective():
    """b_i = argmin nu ||b - f_i||^2 - sum_k (w_y - w_k) . b, over all codes of 4 bits."""
    codes, outputs, labels, _ = problem(bits=4, classes=3)
    codes[:, :3] = 2.0 * np.eye(3)[labels] - 1
    weights = (
        LinearSVC(multi_class="crammer_singer", fit_intercept=False, random_state=0)
        .fit(codes, labels)
        .coef_
    )
    every = np.array(list(product([-1.0, 1.0], repeat=4)))
    new = hinge_codes(codes, outputs, labels, 1.0, 0.3)
    for i, label in enumerate(labels):
        pull = sum(weights[label] - w for w in weights)
        cost = 0.3 * np.square(every - outputs[i]).sum(axis=1) - every @ pull
        np.testing.assert_array_equal(new[i], every[cost.argmin()])


# ---- the method


@pytest.mark.parametrize("loss", ["l2", "hinge"])
@pytest.mark.parametrize("classes", [2, 5])
def test_learns_classes(loss, classes):
    features, labels = blobs(np.random.default_rng(2), classes=classes)
    hasher = SDH(bits=16, loss=loss, anchors=50).fit(features[:200], labels[:200])
    queries, database = hasher.encode(features[200:]), hasher.encode(features[:200])
    nearest = database.hamming(queries).argmin(axis=0)
    assert np.mean(labels[:200][nearest] == labels[200:]) > 0.9


def test_outputs_by_hand():
    features, labels = blobs(np.random.default_rng(3), count=30)
    hasher = SDH(bits=3, anchors=5).fit(features, labels)
    features = features.astype(np.float32).astype(float)
    for row in features[:6]:
        unit = row / np.sqrt(sum(row**2))
        phi = [np.exp(-sum((unit - a) ** 2) / (2 * 0.4**2)) for a in hasher.anchors_]
        expected = np.array([*phi, 1.0]) @ hasher.projections_
        np.testing.assert_allclose(hasher.project(row[None])[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(hasher.anchors_, axis=1), 1)


def test_length_of_the_rows_does_not_matter():
    features, labels = blobs(np.random.default_rng(4), count=100)
    lengths = 2.0 ** np.random.default_rng(5).integers(-8, 8, (100, 1))
    one, other = (
        SDH(bits=8, anchors=20).fit(rows, labels).encode(rows)
        for rows in (features, lengths * features)
    )
    assert one == other


def test_several_labels():
    rng = np.random.default_rng(6)
    labels = rng.integers(0, 2, (200, 5))
    features = labels + 0.2 * rng.standard_normal((200, 5))
    codes = SDH(bits=24, anchors=60).fit(features, labels).encode(features)
    shared = labels @ labels.T
    distances = codes.hamming(codes)
    means = [distances[shared == count].mean() for count in range(4)]
    assert means == sorted(means, reverse=True)


def test_constant_features_and_rows_of_zeros():
    labels = np.arange(8) % 2
    same = SDH(bits=6).fit(np.ones((8, 3)), labels).encode(np.ones((8, 3)))
    assert np.all(same.hamming(same) == 0)
    features = np.random.default_rng(7).standard_normal((8, 3))
    features[2] = 0
    assert np.all(np.isfinite(SDH(bits=6).fit(features, labels).project(features)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "squared"}, "loss must be l2 or hinge"),
        ({"anchors": 0}, "anchors"),
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"weight": -1.0}, "weight must be positive"),
        ({"nu": 0.0}, "nu must be positive"),
        ({"iterations": 0}, "iterations must be at least 1"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        SDH(bits=4, **options).fit(np.eye(6), [0, 0, 0, 1, 1, 1])


def test_the_hinge_refuses_several_labels():
    with pytest.raises(ValueError, match=r"one label per image.*use loss='l2'"):
        SDH(bits=4, loss="hinge").fit(np.eye(4), np.array([[1, 0], [0, 1], [1, 1], [0, 0]]))
