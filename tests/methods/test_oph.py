import numpy as np
import pytest
import torch

from bitprint.evaluation import evaluate
from bitprint.methods._orders import (
    LabelOrder,
    MetricOrder,
    distances,
    draw_rows,
    misplaced,
    ordinal_loss,
    place,
)
from bitprint.methods.oph import OPH, rotated_components


def two_modes(seed=0, count=300):
    """Each class has two distant modes; other directions have a larger variance."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    mode = rng.integers(0, 2, count)
    features = rng.standard_normal((count, 8)) * [3, 3, 3, 0.3, 0.3, 0.3, 0.3, 0.3]
    features[np.arange(count), 3 + labels] += 2
    features[:, 7] += 2 * mode
    return features, labels


def scenes(seed=0, count=200):
    rng = np.random.default_rng(seed)
    labels = (rng.random((count, 4)) < 0.4).astype(np.uint8)
    return labels @ rng.standard_normal((4, 6)) + 0.2 * rng.standard_normal((count, 6)), labels


def sets_of(categories, count):
    return [{j for j, c in enumerate(categories) if c == m} for m in range(count)]


def test_hard_loss_is_twice_the_misplaced_pairs():
    rng = np.random.default_rng(0)
    truth, placed = rng.integers(0, 5, (2, 30, 40))
    loss = 0
    for row, other in zip(truth, placed, strict=True):
        for true, found in zip(sets_of(row, 5), sets_of(other, 5), strict=True):
            loss += len(true - found) + len(found - true)
    share = misplaced(torch.from_numpy(truth), torch.from_numpy(placed))
    assert loss == round(2 * share * truth.size)
    assert loss == 2 * np.sum(truth != placed)


def test_ordinal_loss_against_plain_loops():
    rng = np.random.default_rng(1)
    soft, boundaries = 6 * rng.random((4, 7)), np.array([0.5, 2.0, 4.5])
    categories = rng.integers(0, 4, (4, 7))
    expected = 0.0
    for D, category in zip(soft.ravel(), categories.ravel(), strict=True):
        for m, boundary in enumerate(boundaries):
            sign = 1 if category <= m else -1
            expected += np.log(1 + np.exp(-sign * 1.7 * (boundary - D)))
    tensors = map(torch.from_numpy, (soft, categories, boundaries))
    assert ordinal_loss(*tensors, 1.7).item() == pytest.approx(expected / 28, rel=1e-12)


@pytest.mark.parametrize("order", ["labels", "metric"])
def test_gradient_by_finite_differences(order):
    rng = np.random.default_rng(2)
    hasher = OPH(5, balance=0.7)
    X = torch.from_numpy(rng.standard_normal((30, 4)))
    kind = LabelOrder(np.arange(30) % 3, 5) if order == "labels" else MetricOrder(X, 5)
    some, others = torch.arange(10), torch.arange(10, 30)
    categories = kind.categories(some, others)

    def loss(W, t):
        return hasher._loss(X[some] @ W - t, X[others] @ W - t, categories, kind, 2.0)

    W, t = torch.from_numpy(rng.standard_normal((4, 5))), torch.from_numpy(rng.standard_normal(5))
    for part in (W.requires_grad_(), t.requires_grad_()):
        (gradient,) = torch.autograd.grad(loss(W, t), part)
        for index in np.ndindex(*part.shape):
            step = torch.zeros_like(part)
            step[index] = 1e-6
            up, down = (
                loss(*(p + sign * step if p is part else p for p in (W, t))) for sign in (1, -1)
            )
            assert gradient[index].item() == pytest.approx(
                (up - down).item() / 2e-6, rel=1e-5, abs=1e-8
            )


def test_gradients_of_far_pairs_do_not_overflow():
    soft = torch.tensor([[1e4, 0.0]], requires_grad=True)
    loss = ordinal_loss(soft, torch.tensor([[0, 1]]), torch.tensor([5e3]), 4.0)
    loss.backward()
    assert torch.isfinite(loss)
    assert soft.grad.tolist() == [[2.0, -2.0]]


def test_distances_of_codes_count_bits():
    codes = torch.tensor([[1.0, 1, 1], [1, -1, 1], [-1, -1, -1]])
    assert distances(codes, codes).tolist() == [[0, 1, 3], [1, 0, 2], [3, 2, 0]]


def test_place_counts_the_boundaries_exceeded():
    placed = place(torch.tensor([0.0, 1.0, 1.5, 2.0, 9.0]), torch.tensor([1.0, 2.0]))
    assert placed.tolist() == [0, 0, 1, 1, 2]


def test_categories_of_labels_go_by_shared_labels():
    labels = np.array([[1, 1, 1], [1, 1, 0], [0, 0, 1], [0, 0, 0]], np.uint8)
    order = LabelOrder(labels, bits=24)
    everyone = torch.arange(4)
    assert order.categories(everyone, everyone).tolist() == [
        [0, 1, 2, 3],
        [1, 1, 3, 3],
        [2, 3, 2, 3],
        [3, 3, 3, 3],
    ]
    assert order.boundaries.tolist() == [2, 3, 6]
    assert LabelOrder(np.array([0, 1]), bits=12).boundaries.tolist() == [3]


def test_metric_categories_are_as_large_as_those_of_the_codes():
    rng = np.random.default_rng(3)
    rows = torch.from_numpy(rng.standard_normal((400, 3)))
    codes = torch.from_numpy(np.where(rng.standard_normal((400, 6)) >= 0.4, 1.0, -1.0))
    order = MetricOrder(rows, 6)
    order.resize(codes, rng)
    some, others = torch.arange(100), torch.arange(100, 400)
    truth = order.categories(some, others)
    placed = place(distances(codes, codes), order.boundaries)
    by_codes = np.bincount(placed.numpy().ravel(), minlength=7) / placed.numel()
    by_rows = np.bincount(truth.numpy().ravel(), minlength=7) / truth.numel()
    # The sizes are estimated from 200 x 200 pairs.
    np.testing.assert_allclose(by_rows, by_codes, atol=0.03)
    gaps = torch.cdist(rows[some], rows[others])
    for gap, category in zip(gaps, truth, strict=True):
        assert np.all(np.diff(category[gap.argsort()].numpy()) >= 0)


def test_drawn_rows_do_not_overlap():
    some, others = draw_rows(10, 3, 100, np.random.default_rng(0))
    assert sorted([*some.tolist(), *others.tolist()]) == list(range(10))
    assert len(some) == 3
    assert [len(part) for part in draw_rows(3, 128, 1000, np.random.default_rng(0))] == [1, 2]


def misplaced_share(hasher, features, labels=None):
    """Return the fraction of pairs in the wrong category, with sizes from these codes."""
    codes = torch.from_numpy(hasher.encode(features).signs().astype(np.float32))
    rows = torch.from_numpy(features.astype(np.float32))
    order = MetricOrder(rows, hasher.bits) if labels is None else LabelOrder(labels, hasher.bits)
    order.resize(codes, np.random.default_rng(0))
    everyone = torch.arange(len(features))
    return misplaced(
        order.categories(everyone, everyone), place(distances(codes, codes), order.boundaries)
    )


def test_labels_align_better_after_training_and_retrieval_gains():
    features, labels = two_modes()
    start, trained = (OPH(16, epochs=epochs).fit(features, labels) for epochs in (0, 10))
    assert misplaced_share(trained, features, labels) < 0.6 * misplaced_share(
        start, features, labels
    )
    new, truth = two_modes(seed=9, count=90)
    before, after = (
        evaluate(h.encode(new), truth, h.encode(features), labels).map for h in (start, trained)
    )
    assert after > before + 0.2


def test_metric_aligns_better_after_training():
    features, _ = two_modes()
    start, trained = (OPH(8, order="metric", epochs=epochs).fit(features) for epochs in (0, 10))
    assert misplaced_share(trained, features) < misplaced_share(start, features)


def test_images_with_several_labels():
    features, labels = scenes()
    start, trained = (OPH(16, epochs=epochs).fit(features, labels) for epochs in (0, 10))
    assert misplaced_share(trained, features, labels) < misplaced_share(start, features, labels)


def test_history_has_every_epoch():
    features, labels = two_modes()
    history = OPH(8, epochs=4).fit(features, labels).history_
    assert len(history) == 4
    assert all(np.isfinite(list(epoch.values())).all() for epoch in history)


def test_start_has_unit_variance_and_median_thresholds():
    features = two_modes()[0].astype(np.float32)
    for bits in (3, 8, 20):
        mean, weights = rotated_components(features, bits, np.random.default_rng(0))
        np.testing.assert_allclose(((features - mean) @ weights).std(axis=0), 1, rtol=1e-5)
    outputs = OPH(8, order="metric", epochs=0).fit(features).project(features)
    assert np.all(np.abs((outputs >= 0).mean(axis=0) - 0.5) < 0.01)


def test_labels_are_required_unless_metric():
    features, _ = two_modes()
    assert OPH(8, order="metric", epochs=1).fit(features).encode(features).bits == 8
    with pytest.raises(ValueError, match="learns from labels"):
        OPH(8).fit(features)


def test_scale_and_place_of_the_features_do_not_matter():
    features, labels = two_modes()
    near, far = (
        OPH(8, epochs=1).fit(a, labels).encode(a) for a in (features, 1000 * features + 5000)
    )
    assert np.mean(near.signs() != far.signs()) < 0.01


def test_seed_decides_and_saved_state_gives_the_same_codes():
    features, labels = two_modes()
    first, again, other = (OPH(8, epochs=1, seed=s).fit(features, labels) for s in (1, 1, 2))
    assert first.encode(features) == again.encode(features)
    assert first.encode(features) != other.encode(features)
    restored = OPH(8, epochs=1, seed=1)
    restored._restore(*first._export())
    assert restored.encode(features) == first.encode(features)


@pytest.mark.parametrize("bits", [1, 128])
@pytest.mark.parametrize("order", ["labels", "metric"])
def test_few_or_constant_or_repeated_rows(bits, order):
    labels = np.array([0, 0, 1, 1])
    constant = np.ones((4, 3))
    alike = OPH(bits, order=order, epochs=1).fit(constant, labels).encode(constant)
    assert alike.hamming(alike).max() == 0
    repeated = np.repeat([[0.0, 1.0], [1.0, 0.0]], 2, axis=0)
    codes = OPH(bits, order=order, epochs=1).fit(repeated, labels).encode(repeated)
    assert codes.hamming(codes)[0, 1] == 0


@pytest.mark.parametrize("options", [{"order": "x"}, {"epochs": -1}, {"partners": 0}])
def test_bad_options_are_named(options):
    features, labels = two_modes()
    with pytest.raises(ValueError, match=next(iter(options))):
        OPH(4, **options).fit(features, labels)


def test_one_image_has_no_order():
    with pytest.raises(ValueError, match="at least 2 training items"):
        OPH(4, order="metric").fit(np.ones((1, 3)))
