"""CroVCA: alignment of the codes of two views and the coding rate, against plain loops."""

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds

import bitprint as bp
from bitprint.methods.crovca import CroVCA, class_means, coding_rate

ROWS = torch.tensor([5, 0, 3, 6])


def parts_of(hasher, outputs, labels=reference.ONE, batch_size=5):
    state = reference.make_state(labels, batch_size)
    return hasher.loss(torch.as_tensor(outputs), ROWS.repeat(2), state)


def rate(outputs, epsilon):
    unit = outputs / np.linalg.norm(outputs, axis=1, keepdims=True)
    count, bits = outputs.shape
    matrix = np.eye(bits)
    for row in unit:
        matrix += bits / (count * epsilon) * np.outer(row, row)
    return 0.5 * np.linalg.slogdet(matrix)[1]


def alignment(outputs, targets):
    total = 0.0
    for i, k in np.ndindex(outputs.shape):
        p = 1 / (1 + np.exp(-outputs[i, k]))
        total -= np.log(p if targets[i, k] > 0 else 1 - p)
    return total / outputs.size


def test_loss_by_loops():
    outputs = reference.random_outputs(8, 5)
    parts = parts_of(CroVCA(5, beta=0.3, epsilon=0.1), outputs)
    expected = alignment(outputs, np.roll(outputs, 4, axis=0))
    assert parts["alignment"].item() == pytest.approx(expected * 4 / 5, rel=1e-10)
    rates = (rate(outputs[:4], 0.1) + rate(outputs[4:], 0.1)) / 2
    assert parts["rate"].item() == pytest.approx(-0.3 * rates * (4 + 5) / (4 * 5) * 4 / 5, rel=1e-9)


@both_kinds
def test_targets_of_labels_are_class_means(labels):
    outputs = reference.random_outputs(8, 5)
    targets = np.empty_like(outputs)
    own = [{label} if np.ndim(label) == 0 else set(np.flatnonzero(label)) for label in labels]
    batch = [own[row] for row in ROWS.repeat(2)]
    means = {
        c: np.mean([row for row, classes in zip(outputs, batch, strict=True) if c in classes], 0)
        for c in set().union(*batch)
    }
    for i, classes in enumerate(batch):
        targets[i] = np.mean([means[c] for c in classes], 0) if classes else outputs[(i + 4) % 8]
    assert labels.ndim == 1 or set() in batch
    parts = parts_of(CroVCA(5, supervised=True), outputs, labels)
    expected = alignment(outputs, targets) * 4 / 5
    assert parts["alignment"].item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("supervised", [False, True])
def test_gradient_by_finite_differences(supervised):
    outputs, hasher = reference.random_outputs(8, 5, seed=2), CroVCA(5, supervised=supervised)
    given = torch.tensor(outputs, requires_grad=True)
    sum(parts_of(hasher, given).values()).backward()
    expected = dsdh_reference.finite_differences(
        lambda at: sum(parts_of(hasher, at).values()).item(), outputs
    )
    np.testing.assert_allclose(given.grad, expected, rtol=1e-6, atol=1e-8)
    assert np.abs(expected).max() > 1e-3


def test_coding_rate_is_largest_for_orthogonal_outputs():
    orthogonal = coding_rate(torch.eye(4, dtype=torch.float64), 0.05)
    assert orthogonal.item() == pytest.approx(0.5 * 4 * np.log(1 + 1 / 0.05), rel=1e-10)
    assert coding_rate(torch.ones(4, 4, dtype=torch.float64), 0.05) < orthogonal / 2
    for seed in range(5):
        outputs = torch.from_numpy(reference.random_outputs(4, 4, seed=seed))
        assert coding_rate(outputs, 0.05) < orthogonal
        assert coding_rate(outputs, 0.05) == pytest.approx(coding_rate(7 * outputs, 0.05))


def test_means_of_classes_leave_rows_without_labels():
    outputs, none = torch.randn(3, 2), torch.zeros(3, 4)
    assert torch.equal(class_means(outputs, none, without=-outputs), -outputs)


def test_labels_are_needed_in_the_supervised_mode_only():
    data = np.random.default_rng(0).standard_normal((24, 6)).astype(np.float32)
    options = {"epochs": 1, "batch_size": 8}
    assert bp.create("crovca", 4, **options).fit(data).label_names_ is None
    with pytest.raises(ValueError, match="crovca learns from labels: it requires y"):
        bp.create("crovca", 4, supervised=True, **options).fit(data)
    names = ["cat", "dog"] * 12
    hasher = bp.create("crovca", 4, supervised=True, **options).fit(data, names)
    assert hasher.label_names_ == ["cat", "dog"]


def test_training_with_labels_finds_what_features_do_not_show():
    rng = np.random.default_rng(0)
    data = rng.standard_normal((300, 10)).astype(np.float32)
    labels = (data[:, 0] > 0) + 2 * (data[:, 1] > 0)
    plain, taught = (CroVCA(12, supervised=s, epochs=40).fit(data, labels) for s in (False, True))
    assert plain.score(data, labels) < 0.5
    assert taught.score(data, labels) > 0.8


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"beta": -1.0}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number"):
        CroVCA(4, **options).fit(np.eye(3))
