import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitprint.training.soft_histograms import soft_histograms


def random_batch(count, bits, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    similar = rng.random((count, count)) < 0.4
    return torch.tensor(scale * rng.standard_normal((count, bits))), torch.tensor(similar)


@pytest.mark.parametrize(("bits", "bins"), [(5, None), (5, 2), (12, 5), (1, 1), (8, 8)])
def test_soft_histograms_match_plain_loops(bits, bins):
    outputs, similar = random_batch(6, bits, seed=1)
    found = soft_histograms(outputs, similar, bins)
    z, width = np.tanh(outputs.numpy()), bits / (bins or bits)
    expected = np.zeros((2, 6, (bins or bits) + 1))
    for i in range(6):
        for j in range(6):
            if i != j:
                distance = (bits - sum(z[i] * z[j])) / 2
                for b in range(expected.shape[2]):
                    gap = abs(distance - b * width) / width
                    expected[0 if similar[i, j] else 1, i, b] += max(0, 1 - gap)
    np.testing.assert_allclose(np.stack([each.numpy() for each in found]), expected, atol=1e-12)


@given(bits=st.integers(1, 20), count=st.integers(1, 9), seed=st.integers(0, 1000))
def test_soft_histograms_of_codes_are_the_true_ones(bits, count, seed):
    outputs, similar = random_batch(count, bits, seed, scale=1e6)
    found = soft_histograms(outputs, similar)
    codes = outputs.numpy() > 0
    for kind, each in zip((True, False), found, strict=True):
        for i in range(count):
            members = [j for j in range(count) if j != i and similar[i, j] == kind]
            distances = [int((codes[i] != codes[j]).sum()) for j in members]
            assert each[i].tolist() == np.bincount(distances, minlength=bits + 1).tolist()


@given(bins=st.integers(1, 12), seed=st.integers(0, 1000))
def test_soft_histograms_keep_count_and_mean_distance(bins, seed):
    outputs, similar = random_batch(7, 12, seed)
    both = sum(soft_histograms(outputs, similar, bins))
    np.testing.assert_allclose(both.sum(dim=1), 6)
    z = outputs.tanh()
    distances = ((12 - z @ z.t()) / 2).fill_diagonal_(0)
    centers = torch.arange(bins + 1).double() * 12 / bins
    np.testing.assert_allclose(both @ centers, distances.sum(dim=1), rtol=1e-9)


def test_soft_histograms_pass_gradcheck():
    outputs, similar = random_batch(5, 6, seed=3)
    outputs.requires_grad_()
    for bins in (None, 2):
        assert torch.autograd.gradcheck(lambda h, b=bins: soft_histograms(h, similar, b), outputs)
