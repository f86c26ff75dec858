"""Product quantization against plain loops over vectors, parts and entries."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from bitprint.methods import product
from bitprint.methods.product import assign, lloyd, random_codebooks, reconstruct


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def squared(some, other):
    return sum((a - b) ** 2 for a, b in zip(some.tolist(), other.tolist(), strict=True))


def error(vectors, codebooks):
    return (vectors - reconstruct(assign(vectors, codebooks), codebooks)).square().sum().item()


@pytest.mark.parametrize("block", [4, 4096])
def test_each_part_gets_the_nearest_entry_of_its_own_codebook(block, monkeypatch):
    monkeypatch.setattr(product, "_BLOCK", block)
    vectors, codebooks = normal(9, 6), normal(3, 5, 2, seed=1)
    found = assign(vectors, codebooks)
    for i, m in np.ndindex(9, 3):
        part = vectors[i, 2 * m : 2 * m + 2]
        distances = [squared(part, codebooks[m, n]) for n in range(5)]
        assert found[i, m] == np.argmin(distances)
    assert assign(vectors[:0], codebooks).shape == (0, 3)


def test_reconstruction_joins_the_entries():
    codebooks, indices = normal(3, 5, 2), torch.tensor([[0, 4, 2], [3, 3, 1]])
    found = reconstruct(indices, codebooks)
    for i, k in np.ndindex(2, 6):
        assert found[i, k] == codebooks[k // 2, indices[i, k // 2], k % 2]


@pytest.mark.parametrize("block", [7, 4096])
def test_one_iteration_takes_means(block, monkeypatch):
    monkeypatch.setattr(product, "_BLOCK", block)
    vectors, codebooks = normal(30, 4), normal(2, 3, 2, seed=1)
    nearest, found = assign(vectors, codebooks), lloyd(vectors, codebooks, 1)
    for m, n in np.ndindex(2, 3):
        members = [vectors[i, 2 * m : 2 * m + 2] for i in range(30) if nearest[i, m] == n]
        torch.testing.assert_close(found[m, n], sum(members) / len(members))


def test_error_never_increases():
    vectors, codebooks = normal(200, 6), random_codebooks(normal(200, 6), 3, 16, generator())
    errors = [error(vectors, lloyd(vectors, codebooks, n)) for n in range(15)]
    assert all(later <= earlier for earlier, later in pairwise(errors))
    assert errors[-1] < 0.8 * errors[0]


def test_unused_entry_does_not_change():
    vectors = normal(20, 2)
    codebooks = torch.cat([vectors[:3], torch.full((1, 2), 1e3)])[None].double()
    assert torch.equal(lloyd(vectors, codebooks, 5)[0, 3], codebooks[0, 3])


def test_as_many_entries_as_vectors_leave_no_error():
    vectors = normal(16, 5)
    codebooks = random_codebooks(vectors, 1, 16, generator())
    assert error(vectors, codebooks) == 0
    assert error(vectors, lloyd(vectors, codebooks, 3)) == 0


def test_codebooks_begin_with_different_vectors():
    vectors = normal(40, 6)
    codebooks = random_codebooks(vectors, 2, 16, generator())
    chosen = []
    for book in range(2):
        parts = vectors[:, 3 * book : 3 * book + 3]
        found = [torch.nonzero((parts == entry).all(dim=1)).item() for entry in codebooks[book]]
        assert len(set(found)) == 16
        chosen.append(found)
    assert chosen[0] != chosen[1]
    assert torch.equal(codebooks, random_codebooks(vectors, 2, 16, generator()))
    assert not torch.equal(codebooks, random_codebooks(vectors, 2, 16, generator(1)))


def test_fewer_vectors_than_entries_are_repeated():
    vectors = normal(3, 4)
    codebooks = random_codebooks(vectors, 2, 8, generator())
    assert codebooks.shape == (2, 8, 2)
    assert error(vectors, codebooks) == 0
    improved = lloyd(vectors, codebooks, 3)
    assert torch.isfinite(improved).all()
    assert error(vectors, improved) == 0
