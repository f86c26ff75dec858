"""TALR: for codes, its objective is the tie-aware AP of `bp.evaluate`."""

import batch_reference as reference
import dsdh_reference
import numpy as np
import pytest
import torch
from batch_reference import ONE, both_kinds
from hypothesis import given
from hypothesis import strategies as st

import bitprint as bp
from bitprint.methods.talr import TALR, relaxed_precision, simplified_precision

BITS = 5

both_relaxations = pytest.mark.parametrize("relaxation", ["exact", "simplified"])


def outputs_for(labels):
    return reference.random_outputs(len(labels), BITS)


def ap_of_each(codes, labels):
    """Return the tie-aware AP of every image as a query among the others, None without hits."""
    found = []
    for i in range(len(codes)):
        others = [j for j in range(len(codes)) if j != i]
        if not dsdh_reference.share_a_label(labels)[i, others].any():
            found.append(None)
            continue
        report = bp.evaluate(codes[[i]], labels[[i]], codes[others], labels[others])
        found.append(report.map)
    return found


@both_kinds
@pytest.mark.parametrize(("bits", "count"), [(1, 7), (3, 30), (5, 7), (12, 30), (33, 30)])
def test_loss_of_codes_is_the_tie_aware_ap_of_evaluate(labels, bits, count):
    """With few bits nearly all images are tied."""
    rng = np.random.default_rng(bits)
    labels = labels[rng.integers(0, 7, count)]
    codes = np.where(rng.random((count, bits)) < 0.5, -1, 1)
    precisions = [each for each in ap_of_each(codes, labels) if each is not None]
    expected = sum(1 - each for each in precisions) / 40
    found = reference.parts_of(TALR(bits), 1e6 * codes, labels, batch_size=40)
    assert expected > 0.04
    assert found == pytest.approx({"precision": expected}, rel=1e-9)


def ap_by_ranks(relevant, items):
    """Return sum r (P + rho ...) / j over integer ranks: McSherry and Najork by plain loops."""
    total = a = f = 0
    for r, n in zip(relevant, items, strict=True):
        for j in range(a + 1, a + n + 1):
            rho = (r - 1) / (n - 1) if n > 1 else 0
            total += r / n * (f + 1 + (j - a - 1) * rho) / j
        a, f = a + n, f + r
    return total / f


histograms = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8)


@given(counts=histograms.filter(lambda each: sum(r for r, _ in each) > 0))
def test_exact_precision_of_integer_counts_matches_loops(counts):
    relevant = np.array([[r for r, _ in counts]], float)
    items = np.array([[r + others for r, others in counts]], float)
    precision = relaxed_precision(torch.tensor(relevant), torch.tensor(items)).numpy()
    expected = ap_by_ranks(relevant[0].astype(int), items[0].astype(int))
    assert (relevant * precision).sum() / relevant.sum() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [0.0, 1e-9, 9e-5, 1e-4, 0.9999, 0.99999, 1.0, 1.00009, 1.0001])
@pytest.mark.parametrize("before", [0.0, 0.3, 100.0])
def test_exact_precision_is_smooth_at_zero_and_one(count, before):
    """The formula is 0 / 0 at both; AP and gradient are near those of a count a little larger."""

    def sum_of_precisions(count):
        items = torch.tensor([[before, count]], dtype=torch.float64, requires_grad=True)
        found = (items / 2 * relaxed_precision(items / 2, items)).sum()
        return found.item(), torch.autograd.grad(found, items)[0].numpy()

    (value, slope), (near, near_slope) = sum_of_precisions(count), sum_of_precisions(count + 1e-3)
    assert value == pytest.approx(near, abs=1e-3)
    np.testing.assert_allclose(slope, near_slope, rtol=0.01, atol=0.01)
    assert np.abs(near_slope).max() > 0.1


@both_kinds
@both_relaxations
@pytest.mark.parametrize("bins", [None, 3])
def test_gradient_matches_finite_differences(labels, relaxation, bins):
    hasher = TALR(BITS, bins=bins, relaxation=relaxation)
    reference.check_gradient(hasher, outputs_for(labels), labels)


@both_kinds
@both_relaxations
def test_order_of_the_batch_does_not_matter(labels, relaxation):
    hasher = TALR(BITS, relaxation=relaxation)
    reference.check_order_does_not_matter(hasher, outputs_for(labels), labels)


@both_relaxations
@pytest.mark.parametrize("bits", [1, 5, 12])
def test_unusual_batches_stay_finite(bits, relaxation):
    reference.check_unusual_batches(TALR(bits, relaxation=relaxation), bits)


@both_relaxations
def test_images_without_similar_images_add_nothing(relaxation):
    labels, outputs = np.array([0, 1, 2, 3]), reference.random_outputs(4, BITS)
    hasher = TALR(BITS, relaxation=relaxation)
    assert reference.parts_of(hasher, outputs, labels)["precision"] == 0
    assert not reference.gradient_of(hasher, outputs, labels).any()


@both_relaxations
def test_perfect_codes_have_no_loss(relaxation):
    codes = np.array([[9.0] * 6, [9.0] * 3 + [-9.0] * 3, [-9.0] * 6])[ONE]
    loss = reference.parts_of(TALR(6, relaxation=relaxation), codes, ONE)["precision"]
    assert loss == pytest.approx(0, abs=1e-9)


def test_simplified_precision_is_exact_without_ties():
    """And at a tie it is the precision at the middle rank."""
    relevant = torch.tensor([[1.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    alone, tied = torch.ones_like(relevant), torch.full_like(relevant, 3.0)
    some, others = (each(relevant, alone) for each in (relaxed_precision, simplified_precision))
    torch.testing.assert_close((relevant * some), relevant * others)
    # One of three is relevant in ranks 1-3: (0 + 1) / 2; one before in ranks 7-9: 2 / 8; 3 / 11.
    expected = torch.tensor([[1 / 2, 2 / 8, 3 / 11]], dtype=torch.float64)
    torch.testing.assert_close(simplified_precision(relevant, tied)[:, [0, 2, 3]], expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relaxation": "log"}, "relaxation must be exact or simplified, got 'log'"),
        ({"bins": 5}, "bins must be at most the number of bits, 4, got 5"),
    ],
)
def test_invalid_options_are_refused(options, message):
    reference.check_refused(TALR(4, **options), message)
