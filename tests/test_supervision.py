import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from scipy.stats import chi2

from bitprint import supervision
from bitprint.supervision import (
    check_both_labels,
    check_labels,
    check_several_classes,
    class_count,
    class_matrix,
    class_names,
    sample_pairs,
    sample_triplets,
    shared_labels,
    similarity,
)

label_vectors = st.integers(0, 25).flatmap(
    lambda n: arrays(np.int64, n, elements=st.integers(0, 5))
)
label_matrices = st.tuples(st.integers(0, 25), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.uint8, shape, elements=st.integers(0, 1))
)
some_labels = st.one_of(label_vectors, label_matrices).filter(len)


def shared_by_hand(first, second):
    """Return the number of shared labels of two images, computed by a loop."""
    if np.ndim(first) == 0:
        return int(first == second)
    return sum(1 for a, b in zip(first, second, strict=True) if a == 1 and b == 1)


# Labels


@pytest.mark.parametrize(
    "labels",
    [[0, 3, 1], np.array([0, 3, 1], np.uint8), np.array([0.0, 3.0, 1.0]), (0, 3, 1)],
)
def test_class_numbers_become_int64(labels):
    checked = check_labels(labels, 3)
    assert checked.dtype == np.int64
    assert checked.tolist() == [0, 3, 1]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_label_matrices_become_uint8(kind):
    checked = check_labels(np.array([[0, 1], [1, 1], [0, 0]], kind))
    assert checked.dtype == np.uint8
    assert checked.tolist() == [[0, 1], [1, 1], [0, 0]]


def test_booleans_are_two_classes():
    assert check_labels([True, False]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            3,
            r"labels must be \(N,\) class numbers or an \(N, c\) matrix of 0 and 1, got shape \(\)",
        ),
        (np.zeros((2, 2, 2)), r"got shape \(2, 2, 2\)"),
        (np.zeros((2, 0)), r"got shape \(2, 0\)"),
        ([0.0, np.nan], "labels contain NaN or infinity"),
        ([[0.0, np.inf]], "labels contain NaN or infinity"),
        (np.array([None, 1]), "class names, or a list of names per image; label 0 is None"),
        (["cat", 1], "label 1 is 1$"),
        (["cat", float("nan")], "label 1 is nan$"),
        ([["cat"], [2]], r"label 1 is \[2\]$"),
        ([[0, 1], [2]], r"label 0 is \[0, 1\]$"),
        ([b"cat", b"dog"], "label 0 is b'cat'$"),
        ("cat", r"got shape \(\)"),
        ({"cat", "dog"}, r"got shape \(\)"),
        ([set(), set()], "no image has a label"),
        ([[0, 2]], "a label matrix must contain only 0 and 1"),
        ([[0, -1]], "a label matrix must contain only 0 and 1"),
        ([[0.5, 1]], "a label matrix must contain only 0 and 1"),
        ([0, -1], "class numbers must be integers >= 0"),
        ([0, 0.5], "class numbers must be integers >= 0"),
        ([-1, 1], r"convert other classes with np\.unique\(labels, return_inverse=True\)\[1\]$"),
        ([[0], [2], [1]], r"pass labels\.ravel\(\)$"),
        ([[0.3, 0.7]], "pass scores > 0.5$"),
        (csr_matrix([[0, 1], [1, 0]]), r"pass labels\.toarray\(\)$"),
    ],
)
def test_other_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        check_labels(labels)


def test_labels_of_one_column_are_refused_for_training():
    with pytest.raises(ValueError, match=r"shape \(N, 1\).*pass labels\.ravel\(\)$"):
        check_several_classes(check_labels([[0], [1], [1]]))


@pytest.mark.parametrize("form", [list, tuple, np.array, lambda names: np.array(names, object)])
def test_class_names_are_numbered_in_sorted_order(form):
    checked = check_labels(form(["emu", "cat", "emu", "dog"]), 4)
    assert checked.dtype == np.int64
    assert checked.tolist() == [2, 0, 2, 1]
    assert class_names(form(["emu", "cat", "emu", "dog"])) == ["cat", "dog", "emu"]


@pytest.mark.parametrize(
    "labels",
    [
        [["emu", "cat"], ["dog"], []],
        [{"cat", "emu"}, ("dog", "dog"), frozenset()],
        [{"cat", "emu"}, "dog", ()],
        np.array([["emu", "cat"], ["dog", "dog"], ["cat", "cat"]]),
    ],
    ids=["lists", "collections", "mixed", "array"],
)
def test_several_names_become_a_matrix(labels):
    checked = check_labels(labels, 3)
    assert checked.dtype == np.uint8
    assert checked[:2].tolist() == [[1, 0, 1], [0, 1, 0]]
    assert class_names(labels) == ["cat", "dog", "emu"]


def test_class_names_can_be_given_in_order():
    assert check_labels(["cat", "dog"], names=["emu", "dog", "cat"]).tolist() == [2, 1]
    with pytest.raises(ValueError, match="the label 'fox' is not one of the class names"):
        check_labels(["cat", "fox"], names=["emu", "dog", "cat"])


def test_class_names_of_numbers_are_none():
    for numbers in ([1, 0], np.eye(2), torch.tensor([1, 0])):
        assert class_names(numbers) is None


def test_labels_may_be_a_tensor_with_a_gradient():
    assert check_labels(torch.eye(2, requires_grad=True)).tolist() == [[1, 0], [0, 1]]


def test_labels_of_both_sides_are_numbered_together():
    both = check_both_labels(["fox", "cat"], ["emu", "cat"])
    assert [each.tolist() for each in both] == [[2, 0], [1, 0]]
    both = check_both_labels(["fox", "cat"], [["emu", "fox"], []])
    assert [each.tolist() for each in both] == [[[0, 0, 1], [1, 0, 0]], [[0, 1, 1], [0, 0, 0]]]


@pytest.mark.parametrize(
    ("query_labels", "labels", "message"),
    [
        (["cat"], [0], "query labels are names but database labels are numbers"),
        ([0], [["cat"]], "database labels are names but query labels are numbers"),
        ([0], [[0, 1]], "must both be class numbers or both be 0/1 matrices"),
        ([[0, 1]], [[0, 1, 1]], "query labels have 2 classes but database labels have 3"),
    ],
)
def test_labels_of_two_kinds_are_refused(query_labels, labels, message):
    with pytest.raises(ValueError, match=message):
        check_both_labels(query_labels, labels)


@pytest.mark.parametrize("labels", [np.array([2**64 - 1], np.uint64), np.array([1e300])])
def test_class_numbers_beyond_int64_are_refused(labels):
    with pytest.raises(ValueError, match="class numbers"):
        check_labels(labels)


@pytest.mark.parametrize("labels", [[0, 1, 2], [[0, 1], [1, 0], [1, 1]]])
def test_the_number_of_labels_must_match_the_images(labels):
    assert len(check_labels(labels, 3)) == 3
    with pytest.raises(ValueError, match="4 images but 3 labels"):
        check_labels(labels, 4)


def test_class_count():
    assert class_count(np.array([0, 4, 1])) == 5
    assert class_count(np.zeros((3, 7), np.uint8)) == 7
    assert class_count(np.array([], np.int64)) == 0


@given(label_vectors)
def test_class_matrix_has_a_one_where_the_class_is(labels):
    matrix = class_matrix(labels, classes=6)
    assert matrix.dtype == np.float32
    expected = [[float(label == column) for column in range(6)] for label in labels]
    assert matrix.shape == (len(labels), 6)
    assert matrix.tolist() == expected
    if len(labels):
        assert class_matrix(labels).shape[1] == max(labels) + 1


@given(label_matrices)
def test_class_matrix_of_a_matrix_is_itself(labels):
    matrix = class_matrix(labels)
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, labels)


def test_a_single_class_is_refused():
    for same in ([3, 3, 3], [[0, 1], [0, 1]], [3]):
        with pytest.raises(ValueError, match="all training images have the same labels"):
            check_several_classes(np.array(same))
    with pytest.raises(ValueError, match="there are no training images"):
        check_several_classes(np.empty(0, np.int64))
    for several in ([3, 3, 1], [[0, 1], [1, 1]]):
        check_several_classes(np.array(several))


# Similarity


@given(some_labels, st.data())
def test_similarity_and_shared_labels_match_plain_loops(labels, data):
    cut = data.draw(st.integers(0, len(labels)))
    some, others = labels[:cut], labels[::-1]
    counts = [[shared_by_hand(a, b) for b in others] for a in some]
    for left, right in ((some, others), (torch.tensor(some), torch.tensor(others.copy()))):
        similar, shared = similarity(left, right), shared_labels(left, right)
        assert tuple(similar.shape) == tuple(shared.shape) == (cut, len(labels))
        assert similar.dtype in (np.bool_, torch.bool)
        assert shared.tolist() == counts
        assert similar.tolist() == [[count > 0 for count in row] for row in counts]


@pytest.mark.parametrize("count", [255, 256, 257, 512, 1000])
def test_many_shared_labels_do_not_wrap(count):
    """In a byte, 256 shared labels would overflow to 0."""
    labels = np.ones((2, count), np.uint8)
    for each in (labels, torch.from_numpy(labels)):
        assert shared_labels(each, each).tolist() == [[count, count], [count, count]]
        assert similarity(each, each).tolist() == [[True, True], [True, True]]


# Pairs and triplets


def partners_by_hand(labels, similar):
    return [
        [j for j, b in enumerate(labels) if j != i and (shared_by_hand(a, b) > 0) == similar]
        for i, a in enumerate(labels)
    ]


@given(some_labels, st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=200)
def test_pairs_are_similar_or_dissimilar(labels, per_image, block, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervision, "_BLOCK", block)
        rows, partners, similar = sample_pairs(labels, per_image, np.random.default_rng(seed))
    assert rows.dtype == partners.dtype == np.int64
    assert similar.dtype == bool
    for kind in (True, False):
        allowed = partners_by_hand(labels, kind)
        for i, choices in enumerate(allowed):
            drawn = partners[(rows == i) & (similar == kind)]
            assert len(drawn) == (per_image if choices else 0)
            assert set(drawn.tolist()) <= set(choices)


@given(some_labels, st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=200)
def test_triplets_are_valid(labels, per_image, block, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervision, "_BLOCK", block)
        queries, positives, negatives = sample_triplets(
            labels, per_image, np.random.default_rng(seed)
        )
    assert queries.dtype == positives.dtype == negatives.dtype == np.int64
    assert len(queries) == len(positives) == len(negatives)
    like, unlike = partners_by_hand(labels, True), partners_by_hand(labels, False)
    for i in range(len(labels)):
        own = queries == i
        assert own.sum() == (per_image if like[i] and unlike[i] else 0)
        assert set(positives[own].tolist()) <= set(like[i])
        assert set(negatives[own].tolist()) <= set(unlike[i])


@given(label_vectors.filter(len), st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=100)
def test_classes_and_their_one_hot_matrix_have_the_same_samples(labels, per_image, block, seed):
    """Partners by class are those drawn from the similarities of all pairs."""
    one_hot = np.eye(6, dtype=np.uint8)[labels]
    for sample in (sample_pairs, sample_triplets):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(supervision, "_BLOCK", block)
            classes, matrix = (
                sample(given, per_image, np.random.default_rng(seed)) for given in (labels, one_hot)
            )
        assert all(np.array_equal(a, b) for a, b in zip(classes, matrix, strict=True))


def test_an_empty_set_has_no_pairs_and_no_triplets():
    for labels in (np.empty(0, np.int64), np.empty((0, 3), np.uint8)):
        rng = np.random.default_rng(0)
        assert [len(part) for part in sample_pairs(labels, 2, rng)] == [0, 0, 0]
        assert [len(part) for part in sample_triplets(labels, 2, rng)] == [0, 0, 0]


def test_images_without_labels_are_never_similar():
    labels = np.array([[0, 0], [0, 0], [1, 0], [1, 0]], np.uint8)
    rows, partners, similar = sample_pairs(labels, 100, np.random.default_rng(0))
    assert set(rows[similar].tolist()) == {2, 3}
    assert set(partners[~similar & (rows == 0)].tolist()) == {1, 2, 3}


def test_sets_larger_than_a_block():
    """2,500 images cross two block borders; the last block is not full."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 2_500)
    labels[[0, 1_024, 2_499]] = [10, 11, 12]  # alone in their class
    rows, partners, similar = sample_pairs(labels, 3, rng)
    assert np.array_equal(labels[rows] == labels[partners], similar)
    assert not np.any(rows == partners)
    assert np.all(np.bincount(rows[~similar], minlength=2_500) == 3)
    counts = np.bincount(rows[similar], minlength=2_500)
    assert np.flatnonzero(counts == 0).tolist() == [0, 1_024, 2_499]
    assert np.all(np.delete(counts, [0, 1_024, 2_499]) == 3)
    queries, positives, negatives = sample_triplets(labels, 3, rng)
    assert np.array_equal(labels[queries], labels[positives])
    assert not np.any(labels[queries] == labels[negatives])
    assert not np.any(queries == positives)
    assert np.array_equal(np.bincount(queries, minlength=2_500), counts)


def chi_square(drawn, choices):
    """Pearson's statistic of `drawn` against the uniform distribution over `choices`."""
    counts = np.array([np.sum(drawn == choice) for choice in choices])
    expected = len(drawn) / len(choices)
    return float(np.sum((counts - expected) ** 2) / expected)


@pytest.mark.parametrize("kind", ["pairs", "triplets"])
def test_partners_are_drawn_uniformly(kind):
    """A fair sampler exceeds this bound once in a million times."""
    labels = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]])
    rng = np.random.default_rng(0)
    if kind == "pairs":
        rows, partners, similar = sample_pairs(labels, 7_000, rng)
        drawn = {s: (rows[similar == s], partners[similar == s]) for s in (True, False)}
    else:
        queries, positives, negatives = sample_triplets(labels, 7_000, rng)
        drawn = {True: (queries, positives), False: (queries, negatives)}
    for similar, image in itertools.product((True, False), range(len(labels))):
        choices = partners_by_hand(labels, similar)[image]
        rows, partners = drawn[similar]
        statistic = chi_square(partners[rows == image], choices)
        assert statistic <= chi2.isf(1e-6, df=max(1, len(choices) - 1))


@pytest.mark.parametrize("sample", [sample_pairs, sample_triplets])
def test_samples_are_determined_by_the_generator(sample):
    labels = np.random.default_rng(0).integers(0, 4, 60)
    first, again, other = (sample(labels, 2, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[1], other[1])
