import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bitprint.data.protocols import Split
from bitprint.data.protocols_unseen import UnseenSplit, unseen_split


def classes_of(labels, rows):
    if labels.ndim == 1:
        return set(labels[rows].tolist())
    return {column for row in rows for column in np.flatnonzero(labels[row]).tolist()}


def check_apart(labels, split):
    """Three disjoint lists; no class of the training set is in queries or database."""
    parts = [rows.tolist() for rows in (split.queries, split.training, split.database)]
    together = [row for rows in parts for row in rows]
    assert len(together) == len(set(together))
    assert all(rows == sorted(rows) for rows in parts)
    assert set(together) <= set(range(len(labels)))
    searched = classes_of(labels, split.queries) | classes_of(labels, split.database)
    assert not searched & classes_of(labels, split.training)
    return searched


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(2, 700), min_size=4, max_size=13),
    protocol=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32),
)
def test_sizes_with_one_label(sizes, protocol, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    split = unseen_split(labels, protocol, seed)
    unseen = check_apart(labels, split)
    assert len(unseen) == max(2, math.ceil(len(sizes) / 4))
    assert isinstance(split, Split)
    for number, size in enumerate(sizes):
        queries = min(100, -(-size // 10))
        rest = size - queries
        training = min(500, rest) if protocol == 1 else rest
        counts = [
            int((labels[rows] == number).sum())
            for rows in (split.queries, split.training, split.database)
        ]
        assert counts == ([queries, 0, rest] if number in unseen else [0, training, 0])


@settings(max_examples=40)
@given(protocol=st.sampled_from([1, 2]), seed=st.integers(0, 2**32))
def test_images_with_labels_of_both_kinds_are_left_out(protocol, seed):
    rng = np.random.default_rng(seed)
    labels = (rng.random((400, 6)) < 0.2).astype(np.uint8)
    split = unseen_split(labels, protocol, seed)
    unseen = check_apart(labels, split)
    assert len(unseen) == 2
    used = np.concatenate([split.queries, split.database])
    for row, carried in enumerate(labels):
        numbers = set(np.flatnonzero(carried).tolist())
        assert (row in used) == (bool(numbers) and numbers <= unseen)
        if numbers & unseen:
            assert row not in split.training


def test_ten_classes_are_seven_and_three():
    labels = np.arange(1000) % 10
    split = unseen_split(labels, 2, name="digits")
    assert len(classes_of(labels, split.training)) == 7
    assert len(classes_of(labels, split.database)) == 3
    assert split.name == "digits/unseen-2"
    assert split.map_at is None


def test_numbers_without_images_are_not_classes():
    labels = np.repeat([1, 5, 6, 9], 20)
    split = unseen_split(labels, 1)
    assert len(classes_of(labels, split.training)) == 2
    assert len(classes_of(labels, split.queries)) == 2


def test_the_seed_decides():
    labels = np.arange(400) % 8
    first, again, other = (unseen_split(labels, 1, seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    drawn = {
        tuple(sorted(classes_of(labels, unseen_split(labels, 1, s).queries))) for s in range(9)
    }
    assert len(drawn) > 1


def test_fingerprint_is_pinned():
    """A change here changes every published split."""
    split = unseen_split(np.arange(80) % 4, 1, seed=7)
    assert split.fingerprint == "0021cdd3068aff11234114457d0d0a92e0240ac6b45daa2b3bd6d6fd48b64ed2"


def test_too_few_classes():
    with pytest.raises(
        ValueError, match="pets: the protocol of unseen classes needs at least 4 classes, got 3"
    ):
        unseen_split(np.arange(30) % 3, 1, name="pets")


@pytest.mark.parametrize("single", [0, 1, 2, 3])
def test_a_class_of_one_image_is_named(single):
    labels = np.repeat(np.arange(4), [1 if number == single else 2 for number in range(4)])
    with pytest.raises(ValueError, match=f"pets: class {single} has only one image"):
        unseen_split(labels, 1, name="pets")


@pytest.mark.parametrize("protocol", [0, 3])
def test_there_are_two_protocols(protocol):
    with pytest.raises(ValueError, match="protocol must be 1 or 2"):
        unseen_split(np.arange(80) % 4, protocol)


@pytest.mark.parametrize(
    ("queries", "training", "database", "message"),
    [
        ([0, 1], [3], [1, 2], "queries must not be in the database"),
        ([0], [1, 3], [1, 2], "training images must not be queries"),
        ([0], [0, 3], [1, 2], "training images must not be queries"),
        ([0], [3, 3], [1, 2], "twice in training"),
        ([0, 0], [3], [1, 2], "twice in queries"),
    ],
)
def test_inconsistent_splits_are_refused(queries, training, database, message):
    with pytest.raises(ValueError, match=message):
        UnseenSplit(queries, training, database, name="mine", seed=0)


def test_rows_are_sorted_and_cannot_be_changed():
    split = UnseenSplit([1, 0], [5, 4], [3, 2], name="mine", seed=0)
    assert [rows.tolist() for rows in (split.queries, split.training, split.database)] == [
        [0, 1],
        [4, 5],
        [2, 3],
    ]
    for rows in (split.queries, split.training, split.database):
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 9


def test_what_is_left_of_classes_when_images_have_labels_of_both_kinds():
    def refused(labels, **about):
        with pytest.raises(ValueError, match="after excluding images that also have") as error:
            unseen_split(labels, 1, **about)
        return str(error.value)

    everything = np.ones((10, 4), int)
    assert "have unseen classes, no image of seen classes is left" in refused(everything)
    alone = np.repeat(np.eye(4, dtype=int), 5, axis=0)
    for number, name in enumerate("abcd"):
        nearly = alone.copy()
        nearly[5 * number : 5 * number + 4] = 1
        assert f"seen classes, class {number} has only one image; " in refused(nearly)
        assert f"class {name!r} has only one image; " in refused(nearly, label_names="abcd")
