"""IDHN: pairs with the cosine of their labels, against plain loops."""

import batch_reference as reference
import numpy as np
import pytest
import torch
from batch_reference import both_kinds

from bitprint.methods.idhn import IDHN, label_cosines


def cosine(some, other):
    lengths = np.sqrt(sum(some) * sum(other))
    return sum(a * b for a, b in zip(some, other, strict=True)) / lengths if lengths else 0.0


def vectors(labels):
    return np.eye(3)[labels] if labels.ndim == 1 else labels


@both_kinds
def test_loss_by_loops(labels):
    hasher, outputs = (
        IDHN(6, slope=3.0, gamma=0.2, quantisation=0.4),
        reference.random_outputs(7, 6),
    )
    Z, Y = outputs / (1 + np.abs(outputs)), vectors(labels)
    pair, kinds = 0.0, set()
    for i, j in np.ndindex(7, 7):
        s, product = cosine(Y[i], Y[j]), float(Z[i] @ Z[j])
        if 0.01 < s < 0.99:
            pair += 0.2 * 6 * ((product + 6) / 12 - s) ** 2
        else:
            t = 3.0 * product / 6
            pair += np.log(1 + np.exp(t)) - round(s) * t
        kinds.add(round(s, 1))
    assert kinds == ({0.0, 1.0} if labels.ndim == 1 else {0.0, 0.5, 0.7, 1.0})
    quantisation = sum(abs(abs(value) - 1) for value in Z.flatten()) / 6
    parts = reference.parts_of(hasher, outputs, labels, batch_size=10)
    assert parts["pair"] == pytest.approx(pair / 7 / 10, rel=1e-9)
    assert parts["quantisation"] == pytest.approx(0.4 * quantisation / 10, rel=1e-10)


@both_kinds
def test_gradient_by_finite_differences(labels):
    reference.check_gradient(IDHN(6), reference.random_outputs(7, 6), labels)


@both_kinds
def test_order_of_the_batch_does_not_matter(labels):
    reference.check_order_does_not_matter(IDHN(6), reference.random_outputs(7, 6), labels)


@pytest.mark.parametrize(
    ("other", "best"), [([1, 1, 0, 0], 0), ([1, 0, 1, 0], 6), ([0, 0, 1, 1], 12)]
)
def test_least_loss_of_a_pair_is_at_the_distance_of_its_labels(other, best):
    """The cosine of the labels is 1, 1/2 and 0."""
    state = reference.make_state(np.array([[1, 1, 0, 0], other]), batch_size=2)
    losses = []
    for distance in range(13):
        outputs = torch.full((2, 12), 1e6, dtype=torch.float64)
        outputs[1, :distance] *= -1
        losses.append(IDHN(12).loss(outputs, torch.arange(2), state)["pair"].item())
    assert np.argmin(losses) == best
    assert np.diff(losses[best:]).min(initial=1) > 0
    assert np.diff(losses[: best + 1]).max(initial=-1) < 0


def test_label_cosines_by_loops():
    found = label_cosines(torch.tensor(reference.SEVERAL, dtype=torch.float64))
    for i, j in np.ndindex(7, 7):
        expected = cosine(reference.SEVERAL[i], reference.SEVERAL[j])
        assert found[i, j].item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("options", [{"slope": 0.0}, {"gamma": -1.0}, {"quantisation": -0.1}])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be a number"):
        IDHN(6, **options).fit(np.eye(3), [0, 1, 2])
