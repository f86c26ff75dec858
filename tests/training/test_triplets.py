"""Triplets and draws against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bitprint.training.triplets import batch_triplets, draw, masked_mean, triplet_hinge

one_label = arrays.arrays(np.int64, st.integers(1, 9), elements=st.integers(0, 3))
several_labels = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 9), st.integers(1, 4)),
    elements=st.sampled_from([0.0, 1.0]),
)
some_labels = st.one_of(one_label, several_labels)


def are_similar(labels, i, j):
    if labels.ndim == 1:
        return labels[i] == labels[j]
    return any(a == 1 and b == 1 for a, b in zip(labels[i], labels[j], strict=True))


@given(labels=some_labels)
def test_triplets_are_those_of_the_definition(labels):
    count = len(labels)
    expected = {
        (q, p, n)
        for q in range(count)
        for p in range(count)
        for n in range(count)
        if len({q, p, n}) == 3 and are_similar(labels, q, p) and not are_similar(labels, q, n)
    }
    found = batch_triplets(torch.from_numpy(labels))
    assert found.shape == (count, count, count)
    assert {tuple(triplet) for triplet in found.nonzero().tolist()} == expected


@given(
    allowed=arrays.arrays(bool, st.tuples(st.integers(1, 8), st.integers(1, 12))),
    count=st.integers(1, 20),
    seed=st.integers(0, 1000),
)
def test_nothing_forbidden_is_drawn(allowed, count, seed):
    torch.manual_seed(seed)
    columns, found = draw(torch.from_numpy(allowed), count)
    assert columns.shape == (len(allowed), count)
    assert columns.min() >= 0
    assert columns.max() < allowed.shape[1]
    for row in range(len(allowed)):
        assert found[row] == allowed[row].any()
        if found[row]:
            assert allowed[row, columns[row]].all()


@pytest.mark.parametrize("total", [1, 2, 3, 1024, 999_999, 3_000_001])
def test_the_ends_of_chance_are_the_first_and_the_last_allowed(monkeypatch, total):
    """The largest float below 1, times the number of columns, does not round up."""
    allowed = torch.ones(1, total + 2, dtype=torch.bool)
    allowed[:, [0, -1]] = False
    for chance, expected in ((0.0, 1), (1 - 2**-24, total)):
        monkeypatch.setattr(torch, "rand", lambda *s, device, c=chance: torch.full(s, c))
        assert draw(allowed, 1)[0].item() == expected


def test_every_allowed_column_is_drawn_equally_often():
    torch.manual_seed(0)
    allowed = torch.tensor([[True, False, True, True, False, True]])
    columns, _ = draw(allowed, 40_000)
    counts = columns[0].bincount(minlength=6)
    # Binomial with n = 40,000 and p = 1/4: six standard deviations of 87.
    expected = torch.tensor([10_000, 0, 10_000, 10_000, 0, 10_000])
    assert (counts - expected).abs().max() < 520
    assert counts[[1, 4]].tolist() == [0, 0]


def test_the_seed_decides_the_draw():
    allowed = torch.ones(3, 50, dtype=torch.bool)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(draw(allowed, 7)[0])
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_masked_mean_by_loops():
    values = torch.arange(24.0).view(2, 3, 4)
    mask = values % 5 < 2
    mask[1] = False
    expected = [sum(v for v, m in zip(values[0].flatten(), mask[0].flatten(), strict=True) if m)]
    expected = [expected[0] / mask[0].sum(), torch.tensor(0.0)]
    torch.testing.assert_close(masked_mean(values, mask, (1, 2)), torch.stack(expected))
    torch.testing.assert_close(masked_mean(values, mask), expected[0])


def test_the_mean_of_nothing_is_zero_and_has_a_gradient():
    values = torch.tensor([1.0, float("inf")], requires_grad=True)
    mean = masked_mean(values, torch.tensor([False, False]))
    mean.backward()
    assert mean == 0
    assert values.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("labels", [[0, 0, 1, 2, 1, 0], [[1, 1], [0, 1], [1, 0], [0, 0], [0, 1]]])
def test_hinge_by_loops(labels):
    labels = np.array(labels)
    codes = torch.rand(len(labels), 4, generator=torch.Generator().manual_seed(0)).double()
    terms = []
    for q in range(len(labels)):
        for p in range(len(labels)):
            for n in range(len(labels)):
                if len({q, p, n}) < 3 or not are_similar(labels, q, p) or are_similar(labels, q, n):
                    continue
                near = sum((a - b) ** 2 for a, b in zip(codes[q], codes[p], strict=True))
                far = sum((a - b) ** 2 for a, b in zip(codes[q], codes[n], strict=True))
                terms.append(max(0.0, 0.3 + float(near - far)))
    assert 0 < sum(term == 0 for term in terms) < len(terms)
    found = triplet_hinge(codes, batch_triplets(torch.from_numpy(labels)), margin=0.3)
    assert found.item() == pytest.approx(sum(terms) / len(terms), rel=1e-12)


def test_hinge_of_codes_counts_bits():
    # The second differs in 1 bit from the first, the third in 3.
    codes = torch.tensor([[0.0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 0, 1]])
    only = torch.zeros(3, 3, 3, dtype=torch.bool)
    only[0, 1, 2] = True
    assert triplet_hinge(codes, only, margin=1.0) == 0
    assert triplet_hinge(codes, only, margin=5.0) == 5 + 1 - 3
    assert triplet_hinge(codes, torch.zeros_like(only), margin=1.0) == 0
