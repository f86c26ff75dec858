"""NDCG and ACG against all orders of ties, plain loops and scikit-learn."""

from itertools import pairwise, permutations
from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ranking_reference import codes_at, random_task
from sklearn.metrics import ndcg_score

from bitprint import Codes
from bitprint.evaluation import evaluate
from bitprint.evaluation.gains import gains_of
from bitprint.evaluation.histograms import Task, histograms_of

LABELS = [{"classes": 4}, {"columns": 5}, {"columns": 70}]


class Scaled:
    """Hamming distances as floats."""

    def __init__(self, codes):
        self.codes, self.bits = codes, codes.bits

    def __len__(self):
        return len(self.codes)

    def distances(self, queries):
        return 0.37 * queries.hamming(self.codes)


def average_gain(shared, n):
    return sum(shared[:n]) / n


def discounted_gain(shared, n):
    return sum((2**r - 1) / log2(1 + rank) for rank, r in enumerate(shared[:n], start=1))


def normalized_gain(shared, n):
    return discounted_gain(shared, n) / discounted_gain(sorted(shared, reverse=True), n)


def as_labels(shared):
    """Query and database labels so that item i shares shared[i] labels with the query."""
    columns = max(shared) + 1
    return np.ones((1, columns), int), [[1] * r + [0] * (columns - r) for r in shared]


def shared_by_hand(query_labels, labels):
    """Number of labels that each query shares with each item."""
    if query_labels.ndim == 1:
        return (query_labels[:, None] == labels).astype(int)
    return query_labels @ labels.T


items = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(items.filter(lambda pairs: any(r for _, r in pairs)))
def test_gains_equal_the_mean_over_all_permutations(pairs):
    distances, shared = zip(*pairs, strict=True)
    lists = [
        [shared[i] for i in order]
        for order in permutations(range(len(pairs)))
        if all(distances[a] <= distances[b] for a, b in pairwise(order))
    ]
    query, database = codes_at(distances, bits=3)
    query_labels, labels = as_labels(shared)
    cutoffs = range(1, len(pairs) + 1)
    for ranker in (database, Scaled(database)):
        report = evaluate(query, query_labels, ranker, labels, graded=True, cutoffs=cutoffs)
        for n in cutoffs:
            acg = np.mean([average_gain(each, n) for each in lists])
            ndcg = np.mean([normalized_gain(each, n) for each in lists])
            assert report.acg_at[n] == pytest.approx(acg, rel=1e-12)
            assert report.ndcg_at[n] == pytest.approx(ndcg, rel=1e-12)


@pytest.mark.parametrize("kind", LABELS)
def test_ndcg_equals_that_of_scikit_learn(kind):
    """Its `ndcg_score` takes gains and also averages over ties."""
    task = random_task(np.random.default_rng(0), 9, 300, bits=7, **kind)
    query_codes, query_labels, codes, labels = task
    shared = shared_by_hand(query_labels, labels)
    kept = shared.any(axis=1)
    report = evaluate(*task, graded=True, cutoffs=(1, 10, 77, 300))
    assert list(report.ndcg_at) == [1, 10, 77, 300]
    for n, found in report.ndcg_at.items():
        gain, scores = 2.0 ** shared[kept] - 1, -query_codes.hamming(codes)[kept]
        assert found == pytest.approx(ndcg_score(gain, scores, k=n), rel=1e-12)


def test_gains_without_ties_equal_plain_loops():
    rng = np.random.default_rng(1)
    distances = rng.permutation(40)
    shared = rng.integers(0, 5, 40)
    query, database = codes_at(distances, bits=40)
    query_labels, labels = as_labels(shared.tolist())
    report = evaluate(query, query_labels, database, labels, graded=True, cutoffs=(1, 9, 40))
    ranked = shared[np.argsort(distances)].tolist()
    for n in (1, 9, 40):
        assert report.acg_at[n] == pytest.approx(average_gain(ranked, n), rel=1e-12)
        assert report.ndcg_at[n] == pytest.approx(normalized_gain(ranked, n), rel=1e-12)


@pytest.mark.parametrize("empty", ["skip", "zero"])
@pytest.mark.parametrize("ranker", [lambda codes: codes, Scaled])
def test_gains_are_averaged_over_queries(ranker, empty):
    task = random_task(np.random.default_rng(2), 12, 60, bits=6, columns=5)
    query_codes, query_labels, codes, labels = task
    query_labels[3] = 0
    each = [
        evaluate(
            query_codes[q], query_labels[q : q + 1], ranker(codes), labels, graded=True, cutoffs=[7]
        )
        for q in range(12)
        if (query_labels[q] @ labels.T).any()
    ]
    count = 12 if empty == "zero" else len(each)
    assert len(each) < 12
    report = evaluate(
        query_codes, query_labels, ranker(codes), labels, graded=True, cutoffs=[7], empty=empty
    )
    assert report.acg_at[7] == pytest.approx(sum(r.acg_at[7] for r in each) / count, rel=1e-12)
    assert report.ndcg_at[7] == pytest.approx(sum(r.ndcg_at[7] for r in each) / count, rel=1e-12)


def test_acg_of_single_labels_is_precision():
    task = random_task(np.random.default_rng(3), 12, 200, bits=6, classes=3)
    report = evaluate(*task, graded=True, cutoffs=(3, 50))
    assert report.acg_at == pytest.approx(report.precision_at, rel=1e-12)


def test_a_perfect_ranking_has_ndcg_one():
    query, database = codes_at([0, 1, 2, 3, 3], bits=3)
    query_labels, labels = as_labels([3, 2, 1, 0, 0])
    report = evaluate(query, query_labels, database, labels, graded=True, cutoffs=range(1, 6))
    assert list(report.ndcg_at.values()) == pytest.approx([1] * 5, rel=1e-12)


def test_grading_changes_nothing_else():
    task = random_task(np.random.default_rng(4), 12, 200, bits=6, columns=9)
    graded, plain = (evaluate(*task, graded=graded).as_dict() for graded in (True, False))
    changed = {name for name in plain if plain[name] != graded[name]}
    assert changed == {"ndcg_at", "acg_at"}
    assert plain["ndcg_at"] == plain["acg_at"] == {}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("size", [1, 2049])
def test_shared_labels_are_counted_as_by_loops(kind, size):
    task = random_task(np.random.default_rng(5), 5, size, bits=20, **kind)
    query_codes, query_labels, codes, labels = task
    distances = query_codes.hamming(codes)
    shared = shared_by_hand(query_labels, labels)
    counted = Task(*task)
    levels = counted._levels()
    wanted = np.zeros((5, 21, levels), int)
    for q in range(5):
        for i in range(size):
            wanted[q, distances[q, i], shared[q, i]] += 1

    def reduce(counts):
        return (counts,)

    for parts in (
        counted._count_on_cpu(2, levels, reduce),
        counted._count_with_torch(torch.device("cpu"), 2, levels, reduce),
    ):
        np.testing.assert_array_equal(np.concatenate([part[0] for part in parts]), wanted)
    histograms, gains = counted.count_gains("cpu")
    for found, expected in ((histograms, histograms_of(wanted)), (gains, gains_of(wanted))):
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("bits", [1, 48, 1024, 1030])
def test_cuda_counts_gains_as_the_cpu(bits):
    task = Task(*random_task(np.random.default_rng(bits), 40, 3000, bits, columns=70))
    for mine, theirs in zip(task.count_gains("cuda", 9), task.count_gains("cpu"), strict=True):
        for some, others in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(some, others)


def test_too_many_shared_labels_raise():
    code = Codes.from_signs([[1, 1]])
    for ranker in (code, Scaled(code)):
        report = evaluate(
            code, np.ones((1, 1000)), ranker, np.ones((1, 1000)), graded=True, cutoffs=[1]
        )
        assert (report.ndcg_at, report.acg_at) == ({1: 1}, {1: 1000})
        with pytest.raises(ValueError, match="share at most 1000 labels, these share up to 1001"):
            evaluate(code, np.ones((1, 1001)), ranker, np.ones((1, 1001)), graded=True, cutoffs=[1])
