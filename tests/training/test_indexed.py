"""IndexedDataset gives rows of the wrapped dataset, in any order."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

import bitprint as bp

X = torch.arange(12.0).reshape(6, 2)
Y = torch.tensor([3, 1, 4, 1, 5, 9])


def test_indexed_items_have_the_row_last():
    dataset = bp.IndexedDataset(TensorDataset(X, Y))
    assert len(dataset) == 6
    for expected, (x, y, row) in enumerate(dataset):
        assert row == expected
        assert torch.equal(x, X[expected])
        assert y == Y[expected]
    assert dataset[-1][2] == 5
    with pytest.raises(IndexError):
        dataset[6]


def test_indexed_rows_follow_a_shuffled_loader():
    loader = DataLoader(bp.IndexedDataset(TensorDataset(X, Y)), batch_size=4, shuffle=True)
    seen = []
    for x, y, rows in loader:
        assert torch.equal(x, X[rows])
        assert torch.equal(y, Y[rows])
        seen += rows.tolist()
    assert sorted(seen) == list(range(6))


def test_indexed_rows_of_a_subset_count_from_zero():
    dataset = bp.IndexedDataset(Subset(TensorDataset(X, Y), [4, 2]))
    assert [(int(y), row) for _, y, row in dataset] == [(5, 0), (4, 1)]


def test_indexed_takes_lists_and_any_pairs():
    dataset = bp.IndexedDataset([("a", 0), ["b", 1]])
    assert list(dataset) == [("a", 0, 0), ("b", 1, 1)]


def test_indexed_refuses_what_has_no_pairs_or_rows():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(ValueError, match=r"^Stream has no rows: pass a map-style dataset"):
        bp.IndexedDataset(Stream())
    with pytest.raises(ValueError, match=r"must be tuples \(x, y\), got int"):
        bp.IndexedDataset([1, 2])[0]
    with pytest.raises(ValueError, match=r"must be tuples \(x, y\), got tuple"):
        bp.IndexedDataset(TensorDataset(X))[0]


def test_hashers_read_an_indexed_dataset():
    features = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    pairs = TensorDataset(torch.from_numpy(features), torch.arange(20) % 2)
    hasher = bp.create("ksh", bits=4).fit(bp.IndexedDataset(pairs))
    expected = bp.create("ksh", bits=4).fit(features, np.arange(20) % 2)
    assert hasher.encode(features) == expected.encode(features)
