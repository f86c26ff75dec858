import numpy as np
import pytest

from bitprint.methods.bre import BRE, Search, draw_pairs, half_squared_distances, line_search
from bitprint.supervision import similarity


def clusters(seed=0, count=60, classes=3, width=5, spread=0.4):
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    centres = rng.standard_normal((classes, width))
    return centres[labels] + spread * rng.standard_normal((count, width)), labels


def make_search(seed=0, count=60, bits=4, bases=8, grid=None):
    """A search on random rows; with `grid`, on integers, so that thresholds coincide."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, 5)) if grid is None else rng.integers(0, grid, (count, 2))
    i, j = draw_pairs(count, 0.3, rng)
    return Search(rows @ rows.T.astype(float), i, j, rng.random(len(i)), bits, bases, rng), rng


def objective_from_scratch(search):
    bits, count = search.signs.shape
    codes = [
        [
            sum(search.weights[k, q] * search.kernel[a, b] for q, b in enumerate(search.bases[k]))
            >= 0
            for k in range(bits)
        ]
        for a in range(count)
    ]
    return sum(
        0.5 * (d - sum(x != y for x, y in zip(codes[a], codes[b], strict=True)) / bits) ** 2
        for a, b, d in zip(search.i, search.j, search.targets, strict=True)
    )


def test_objective_is_recomputed_and_never_increases():
    search, rng = make_search()
    values = [search.objective()]
    for step in range(40):
        search.improve(step % 4, int(rng.integers(8)))
        values.append(search.objective())
        assert values[-1] == pytest.approx(objective_from_scratch(search), rel=1e-12)
    assert np.all(np.diff(values) <= 0)
    assert values[-1] < values[0]


def test_objective_never_increases_where_thresholds_coincide():
    search, rng = make_search(grid=3)
    values = [search.objective()]
    for step in range(40):
        search.improve(step % 4, int(rng.integers(8)))
        values.append(search.objective())
    assert np.all(np.diff(values) <= 0)
    assert values[-1] == pytest.approx(objective_from_scratch(search), rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_line_search_against_every_interval(seed):
    rng = np.random.default_rng(seed)
    count = 60
    offsets, slopes = rng.standard_normal((2, count))
    slopes[:5] = 0  # rows whose bit never changes
    i, j = draw_pairs(count, 0.2, rng)
    costs = rng.standard_normal(len(i))
    values, totals = line_search(offsets, slopes, i, j, costs)
    assert len(values) == count - 5 + 1
    assert np.all(np.diff(values) > 0)
    for value, total in zip(values, totals, strict=True):
        bits = [offsets[a] + value * slopes[a] >= 0 for a in range(count)]
        brute = sum(cost for a, b, cost in zip(i, j, costs, strict=True) if bits[a] != bits[b])
        assert total == pytest.approx(brute, abs=1e-10)
    # There is exactly one threshold between adjacent values: no interval is missing.
    inside = np.sort(-offsets[5:] / slopes[5:])
    assert np.all((values[:-1] < inside) & (inside < values[1:]))


def test_equal_thresholds_leave_no_interval_between_them():
    offsets, slopes = np.array([-1.0, -1.0, -2.0]), np.ones(3)
    i, j, costs = np.array([0, 1]), np.array([1, 2]), np.array([-10.0, -1.0])
    values, totals = line_search(offsets, slopes, i, j, costs)
    # Rows 0 and 1 are equal, so their bits cannot differ.
    assert totals.tolist() == [0, np.inf, -1, 0]
    assert 1 < values[2] < 2


def test_without_slopes_nothing_changes():
    values, totals = line_search(
        np.array([1.0, -1.0]), np.zeros(2), np.array([0]), np.array([1]), np.array([3.0])
    )
    assert totals.tolist() == [3.0]
    assert np.isfinite(values).all()


def test_one_bit_of_one_base_is_the_best_stump():
    """With K = 1 and s = 1 only the sign of the coefficient matters; test both."""
    for seed in range(10):
        search, _ = make_search(seed=seed, bits=1, bases=1)
        best = np.inf
        for coefficient in (-1.0, 1.0):
            bits = coefficient * search.kernel[:, search.bases[0, 0]] >= 0
            errors = search.targets - (bits[search.i] != bits[search.j])
            best = min(best, 0.5 * (errors**2).sum())
        search.improve(0, 0)
        assert search.objective() == pytest.approx(best, rel=1e-12)


def test_one_coefficient_is_set_to_the_best_of_all_stumps():
    """One coefficient shifts a threshold over the rows; test every interval."""
    for seed in range(5):
        search, _ = make_search(seed=seed, bits=1, bases=2)
        slopes = search.kernel[:, search.bases[0, 0]]
        offsets = search.weights[0, 1] * search.kernel[:, search.bases[0, 1]]
        corners = np.sort(-offsets / slopes)
        tried = np.concatenate(
            [[corners[0] - 1], (corners[1:] + corners[:-1]) / 2, [corners[-1] + 1]]
        )
        best = np.inf
        for value in tried:
            bits = offsets + value * slopes >= 0
            errors = search.targets - (bits[search.i] != bits[search.j])
            best = min(best, 0.5 * (errors**2).sum())
        search.improve(0, 0)
        assert search.objective() == pytest.approx(best, rel=1e-12)


def test_pairs_are_ordered_distinct_and_never_of_a_row_with_itself():
    i, j = draw_pairs(40, 0.25, np.random.default_rng(0))
    assert np.bincount(i).tolist() == [10] * 40
    assert np.all(i != j)
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == 400
    i, j = draw_pairs(3, 1.0, np.random.default_rng(0))
    assert set(zip(i.tolist(), j.tolist(), strict=True)) == {
        (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)
    }  # fmt: skip


def test_metric_targets_end_at_one():
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    i, j = np.array([0, 0, 1]), np.array([1, 2, 1])
    np.testing.assert_allclose(half_squared_distances(rows, i, j), [0.5, 1.0, 0.0], atol=1e-15)


def gap(codes, labels):
    distances, same = codes.hamming(codes), similarity(labels, labels)
    return (distances[~same].mean() - distances[same].mean()) / codes.bits


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("targets", ["labels", "metric"])
def test_similar_images_are_near(kernel, targets):
    features, labels = clusters(count=200)
    hasher = BRE(16, kernel=kernel, targets=targets, partners=0.3).fit(features[:150], labels[:150])
    assert gap(hasher.encode(features[150:]), labels[150:]) > 0.25


def test_labels_improve_on_distances():
    """The class is a direction of small variance among larger ones."""
    rng = np.random.default_rng(1)
    labels = np.arange(300) % 2
    features = rng.standard_normal((300, 6)) * [4, 4, 1, 1, 1, 1]
    features[:, 5] = np.where(labels, 1.5, -1.5) + 0.3 * features[:, 5]
    by_labels, by_metric = (
        BRE(16, targets=targets, partners=0.2).fit(features, labels).encode(features)
        for targets in ("labels", "metric")
    )
    assert gap(by_labels, labels) > gap(by_metric, labels) + 0.1


def test_labels_are_required_unless_metric():
    features, _ = clusters()
    assert BRE(8, targets="metric").fit(features).encode(features).bits == 8
    with pytest.raises(ValueError, match="learns from labels"):
        BRE(8).fit(features)


def test_images_with_several_labels():
    rng = np.random.default_rng(2)
    labels = (rng.random((150, 4)) < 0.35).astype(np.uint8)
    features = labels @ rng.standard_normal((4, 8)) + 0.1 * rng.standard_normal((150, 8))
    assert gap(BRE(16, partners=0.3).fit(features, labels).encode(features), labels) > 0.05


def test_outputs_by_hand():
    features, labels = clusters(count=40)
    hasher = BRE(3, bases=4, points=30).fit(features, labels)
    assert np.all(np.count_nonzero(hasher.weights_, axis=0) == 4)
    outputs = hasher.project(features)
    mean = features.astype(np.float32).mean(axis=0, dtype=float)
    for row in range(5):
        x = features[row].astype(np.float32) - mean
        x = x / np.linalg.norm(x)
        for k in range(3):
            value = sum(
                hasher.weights_[b, k] * (base @ x - hasher.centre_[b])
                for b, base in enumerate(hasher.bases_)
            )
            assert outputs[row, k] == pytest.approx(value, rel=1e-4, abs=1e-9)


def test_seed_decides_and_saved_state_gives_the_same_codes():
    features, labels = clusters()
    first = BRE(8, seed=1).fit(features, labels)
    again, other = (BRE(8, seed=seed).fit(features, labels) for seed in (1, 2))
    assert first.encode(features) == again.encode(features)
    assert first.encode(features) != other.encode(features)
    restored = BRE(8, seed=1)
    restored._restore(*first._export())
    assert restored.encode(features) == first.encode(features)


@pytest.mark.parametrize("bits", [1, 128])
def test_few_or_constant_or_repeated_rows(bits):
    labels = np.array([0, 0, 1, 1])
    constant = np.ones((4, 3))
    alike = BRE(bits).fit(constant, labels).encode(constant)
    assert alike.hamming(alike).max() == 0
    repeated = np.repeat([[0.0, 1.0], [1.0, 0.0]], 2, axis=0)
    codes = BRE(bits, partners=1.0).fit(repeated, labels).encode(repeated)
    assert codes.hamming(codes)[0, 1] == 0
    assert codes.hamming(codes)[0, 2] == bits
    assert len(BRE(bits, targets="metric").fit(constant[:1]).encode(constant)) == 4


@pytest.mark.parametrize(
    "options", [{"targets": "x"}, {"kernel": "x"}, {"bases": 0}, {"points": 1}, {"partners": 0}]
)
def test_bad_options_are_named(options):
    features, labels = clusters()
    with pytest.raises(ValueError, match=next(iter(options))):
        BRE(4, **options).fit(features, labels)
