import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bitprint.data.digits import load_digits
from bitprint.data.folder import load_folder
from bitprint.data.images import ImageSet
from bitprint.data.protocols import (
    Split,
    cifar10_split,
    generic_split,
    make_split,
    nuswide_split,
    own_split,
    split_for,
)
from bitprint.data.shapes import draw_shapes

# fmt: off
NUSWIDE_COUNTS = [
    74190, 54087, 51577, 35264, 33887, 22561, 17835, 15051, 14345, 13392, 11307,
    9524, 8605, 8418, 7875, 6327, 6099, 5404, 5352, 5239, 5099,
]
# fmt: on


def check_consistent(split, count):
    """Queries and database partition the set; the training set is a subset of the database."""
    queries, training, database = (
        rows.tolist() for rows in (split.queries, split.training, split.database)
    )
    assert sorted(queries + database) == list(range(count))
    assert not set(queries) & set(database)
    assert set(training) <= set(database)
    for rows in (queries, training, database):
        assert rows == sorted(set(rows))


@pytest.fixture(scope="module")
def cifar_labels():
    return np.random.default_rng(0).permutation(np.repeat(np.arange(10), 6_000))


@pytest.mark.parametrize(
    ("protocol", "queries", "training", "database"),
    [(1, 100, 500, 5_900), (2, 1_000, 5_000, 5_000)],
)
def test_cifar10(cifar_labels, protocol, queries, training, database):
    split = cifar10_split(cifar_labels, protocol, seed=5)
    check_consistent(split, 60_000)
    assert np.bincount(cifar_labels[split.queries]).tolist() == [queries] * 10
    assert np.bincount(cifar_labels[split.training]).tolist() == [training] * 10
    assert np.bincount(cifar_labels[split.database]).tolist() == [database] * 10
    assert split.map_at is None
    assert split.name == f"cifar10/{protocol}"


def test_cifar10_must_be_whole(cifar_labels):
    for labels in (
        cifar_labels[:-1],
        (cifar_labels + (np.arange(60_000) == 0)) % 10,
        np.zeros((60_000, 10)),
    ):
        with pytest.raises(ValueError, match=r"all 60,000 images.*use generic_split"):
            cifar10_split(labels, 1)


@pytest.fixture(scope="module")
def nuswide_labels():
    """Labels with the real number of images of each concept."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((195_834, 21), np.uint8)
    for column, count in enumerate(NUSWIDE_COUNTS):
        matrix[rng.permutation(len(matrix))[:count], column] = 1
    return matrix


def check_nuswide(labels):
    first, second = (nuswide_split(labels, protocol, seed=1) for protocol in (1, 2))
    for split in (first, second):
        check_consistent(split, 195_834)
        assert (len(split.queries), len(split.database)) == (2_100, 193_734)
        assert (labels[split.queries].sum(axis=0) >= 100).all()
    assert len(first.training) == 10_500
    assert (labels[first.training].sum(axis=0) >= 500).all()
    assert np.array_equal(second.training, second.database)
    assert (first.map_at, second.map_at) == (5_000, 50_000)


def test_nuswide(nuswide_labels):
    check_nuswide(nuswide_labels)
    with pytest.raises(ValueError, match=r"all 195,834 images.*got labels of shape \(195833"):
        nuswide_split(nuswide_labels[1:], 1)


def test_nuswide_always_succeeds():
    """Even if all images drawn before have the current concept."""
    before = 2_100
    for count in sorted(NUSWIDE_COUNTS):
        assert count - before >= 500
        before += 500


def test_nuswide_real():
    path = os.environ.get("BITPRINT_NUSWIDE_LABELS")
    if not path:
        pytest.skip("BITPRINT_NUSWIDE_LABELS names no .npz of NUS-WIDE's labels")
    with np.load(path) as real:
        labels = real["Y21"][real["nuswide21_rows"]]
    assert labels.sum(axis=0).tolist() == NUSWIDE_COUNTS
    check_nuswide(labels)


@given(
    sizes=st.lists(st.integers(8, 30), min_size=1, max_size=6),
    queries=st.integers(0, 4),
    training=st.none() | st.integers(0, 4),
    seed=st.integers(0, 2**32),
)
def test_single_labels_get_exact_numbers(sizes, queries, training, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    split = make_split(labels, queries_per_class=queries, training_per_class=training, seed=seed)
    check_consistent(split, len(labels))
    for number in range(len(sizes)):
        assert (labels[split.queries] == number).sum() == queries
        if training is not None:
            assert (labels[split.training] == number).sum() == training
    if training is None:
        assert np.array_equal(split.training, split.database)


@st.composite
def label_matrices(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    classes = draw(st.integers(1, 6))
    count = draw(st.integers(60, 120))
    return (rng.random((count, classes)) < rng.uniform(0.4, 0.9, classes)).astype(np.uint8)


@given(labels=label_matrices(), seed=st.integers(0, 2**32))
def test_several_labels_get_exact_totals(labels, seed):
    classes = labels.shape[1]
    split = make_split(labels, queries_per_class=2, training_per_class=1, seed=seed)
    check_consistent(split, len(labels))
    assert len(split.queries) == 2 * classes
    assert len(split.training) == classes
    assert (labels[split.queries].sum(axis=0) >= 2).all()
    assert (labels[split.training].sum(axis=0) >= 1).all()


@given(labels=label_matrices(), protocol=st.sampled_from([1, 2]), seed=st.integers(0, 2**32))
def test_generic_multi_label(labels, protocol, seed):
    split = generic_split(labels, protocol, seed)
    check_consistent(split, len(labels))
    wanted = np.ceil(0.1 * labels.sum(axis=0))
    carried = labels[split.queries].sum(axis=0)
    assert (carried >= wanted).all()
    assert len(split.queries) <= wanted.sum()
    assert not (labels[split.queries].sum(axis=1) == 0).any()


@settings(max_examples=30)
@given(
    sizes=st.lists(st.integers(2, 1_400), min_size=1, max_size=4),
    protocol=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32),
)
def test_generic_single_label(sizes, protocol, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    split = generic_split(labels, protocol, seed)
    check_consistent(split, len(labels))
    for number, size in enumerate(sizes):
        queries = min(100, -(-size // 10))
        rest = size - queries
        assert (labels[split.queries] == number).sum() == queries
        training = (labels[split.training] == number).sum()
        assert training == (min(500, rest) if protocol == 1 else rest)


def test_generic_without_labels():
    split = generic_split(None, 2, count=50)
    check_consistent(split, 50)
    assert len(split.queries) == 5
    with pytest.raises(ValueError, match="count is required"):
        generic_split(None, 1)


def test_large_class_numbers_take_no_memory():
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    large = np.array([7, 2**40, 2**53 - 1])[labels]
    for protocol in (1, 2):
        split = generic_split(large, protocol)
        assert split.fingerprint == generic_split(labels, protocol).fingerprint
    drawn = make_split(large, queries_per_class=2, training_per_class=3)
    assert (
        drawn.fingerprint
        == make_split(labels, queries_per_class=2, training_per_class=3).fingerprint
    )
    with pytest.raises(ValueError, match=f"class {2**53 - 1} has 10 images left"):
        make_split(large, queries_per_class=11)
    with pytest.raises(ValueError, match=f"class {2**40} has only one image"):
        generic_split([0, 0, 2**40], 1)
    with pytest.raises(ValueError, match="6,000 per class"):
        cifar10_split(np.full(60_000, 2**40), 1)


def test_classes_that_are_too_small_are_named():
    with pytest.raises(ValueError, match="pets: class 2 has only one image"):
        generic_split([0, 0, 1, 1, 2], 1, name="pets")
    pixels, names = np.zeros((5, 8, 8, 3), np.uint8), ["cat", "dog", "eel"]
    with pytest.raises(ValueError, match="pets: class 'eel' has only one image"):
        split_for(ImageSet(pixels, [0, 0, 1, 1, 2], label_names=names, name="pets"), 1)
    with pytest.raises(ValueError, match="no image has a label"):
        generic_split(np.zeros((4, 2)), 1)
    with pytest.raises(ValueError, match="class 1 has 3 images left, but 4 queries are needed"):
        make_split([0, 0, 0, 0, 1, 1, 1], queries_per_class=4)
    with pytest.raises(ValueError, match="has 1 images left, but 2 training images are needed"):
        make_split([0, 0, 0, 0, 1, 1, 1], queries_per_class=2, training_per_class=2)


@pytest.mark.parametrize("protocol", [1, 2])
def test_split_a_rare_label_of_several_gets_no_query(protocol):
    labels = np.zeros((40, 3), np.uint8)
    labels[:, 0] = labels[20:, 1] = 1
    labels[7] = [0, 0, 1]  # the only image of its only label
    split = generic_split(labels, protocol)
    assert 7 not in split.queries
    assert 7 in split.database
    assert 7 in split.training


@pytest.mark.parametrize("protocol", [0, 3, None])
def test_there_are_two_protocols(protocol, cifar_labels):
    with pytest.raises(ValueError, match="protocol must be 1 or 2"):
        generic_split(np.arange(20) % 2, protocol)
    with pytest.raises(ValueError, match="protocol must be 1 or 2"):
        cifar10_split(cifar_labels, protocol)


def test_the_seed_decides(cifar_labels):
    first = cifar10_split(cifar_labels, 1, seed=0)
    again = cifar10_split(cifar_labels, 1, seed=0)
    other = cifar10_split(cifar_labels, 1, seed=1)
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    assert np.array_equal(first.queries, again.queries)


def test_fingerprint_is_pinned():
    """A change here changes every published split."""
    split = make_split(np.arange(40) % 4, queries_per_class=2, training_per_class=3, seed=7)
    assert split.fingerprint == "20e10df6b7a774316ed53d368bebbb47b394242b72e541293af897caf044335d"


def test_fingerprint_tells_the_parts_apart():
    one = Split([0, 1], [2], [2, 3], name="a", seed=0)
    two = Split([0], [2], [2, 3], name="a", seed=0)
    three = Split([0, 1], [3], [2, 3], name="a", seed=0)
    assert len({split.fingerprint for split in (one, two, three)}) == 3


@pytest.mark.parametrize(
    ("queries", "training", "database", "message"),
    [
        ([0, 1], [2], [1, 2], "queries must not be in the database"),
        ([0], [1, 3], [1, 2], "training images must be in the database"),
        ([0, 0], [1], [1, 2], "twice in queries"),
        ([0], [1], [1, 2, 2], "twice in database"),
    ],
)
def test_inconsistent_splits_are_refused(queries, training, database, message):
    with pytest.raises(ValueError, match=message):
        Split(queries, training, database, name="mine", seed=0)


def test_split_rows_cannot_be_changed():
    split = Split([1, 0], [2], [2, 3], name="mine", seed=0)
    assert split.queries.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        split.queries[0] = 5


def test_split_for_goes_by_the_protocol(cifar_labels):
    pixels = np.zeros((60_000, 1, 1, 3), np.uint8)
    cifar = ImageSet(pixels, labels=cifar_labels, protocol="cifar10")
    assert split_for(cifar, 1, 3).fingerprint == cifar10_split(cifar_labels, 1, 3).fingerprint
    with pytest.raises(ValueError, match="use generic_split"):
        split_for(cifar.subset(np.arange(100)), 1)
    nuswide = ImageSet(pixels[:10], labels=np.ones((10, 21)), protocol="nuswide")
    with pytest.raises(ValueError, match="protocols of NUS-WIDE"):
        split_for(nuswide, 1)
    digits = load_digits()
    split = split_for(digits, 2, seed=4)
    assert split.name == "digits/2"
    assert split.fingerprint == generic_split(digits.labels, 2, 4).fingerprint
    check_consistent(split_for(draw_shapes(300), 1), 300)
    check_consistent(split_for(ImageSet(pixels[:40]), 1), 40)


@pytest.mark.parametrize("name", ["cifar10", "nuswide"])
def test_split_for_a_folder_named_cifar10_is_generic(tmp_path, name):
    for number in range(4):
        file = tmp_path / name / "cat" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(file)
    images = load_folder(tmp_path / name, size=8)
    split = split_for(images, 1)
    assert (images.name, split.name) == (name, f"{name}/1")
    assert split.fingerprint == generic_split(images.labels, 1).fingerprint


def images_with(split, **about):
    return ImageSet(np.zeros((len(split), 1, 1, 3), np.uint8), split=split, **about)


@given(split=st.lists(st.sampled_from(["query", "train", "database"]), min_size=1, max_size=12))
def test_a_split_of_its_own_is_taken_as_it_is(split):
    images = images_with(split, name="mine")
    if not {"query", "train"} <= set(split):
        with pytest.raises(ValueError, match=r"mine: no image has the split (query|train); "):
            split_for(images, 1)
        return
    found = split_for(images, 1, seed=3)
    check_consistent(found, len(split))
    for row, part in enumerate(split):
        assert (row in found.queries) == (part == "query")
        assert (row in found.training) == (part == "train")
    assert found.fingerprint == split_for(images, 1, seed=4).fingerprint
    assert (found.name, found.seed) == ("mine/1", 3)
    everything = split_for(images, 2)
    assert everything.queries.tolist() == found.queries.tolist()
    assert everything.training.tolist() == everything.database.tolist() == found.database.tolist()


def test_map_at_5000_for_multi_label_sets():
    split = ["query", "train", "database"]
    assert own_split(images_with(split, labels=[0, 1, 1])).map_at is None
    assert own_split(images_with(split, labels=np.eye(3, dtype=int))).map_at == 5_000


def test_a_split_of_its_own_comes_before_the_protocol():
    images = images_with(["query", "train"], labels=[0, 0], protocol="cifar10")
    assert split_for(images, 1).training.tolist() == [1]
    with pytest.raises(ValueError, match="protocol must be 1 or 2"):
        split_for(images, 3)


def test_a_split_is_one_known_word_for_each_image():
    pixels = np.zeros((2, 1, 1, 3), np.uint8)
    with pytest.raises(ValueError, match=r"2 images but a split of shape \(1,\)"):
        ImageSet(pixels, split=["query"])
    with pytest.raises(ValueError, match="must be one of query, train, database, got 'test'"):
        ImageSet(pixels, split=["query", "test"])


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("several", [False, True])
def test_images_without_labels_do_not_change_the_queries(protocol, several):
    rng = np.random.default_rng(0)
    labels = np.eye(4, dtype=np.uint8)[rng.integers(0, 4, 300)]
    if several:
        labels |= rng.integers(0, 5, labels.shape) == 0
    labels[rng.permutation(300)[:200]] = 0
    images = ImageSet(np.zeros((300, 2, 2, 3), np.uint8), labels)
    some = images.labelled()
    assert some.labels.ndim == (2 if several else 1)
    with_all = images.ids[split_for(images, protocol).queries]
    assert some.ids[split_for(some, protocol).queries].tolist() == with_all.tolist()
