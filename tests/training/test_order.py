"""Order of an epoch: balanced classes and repeated batches, alone and in the training loop."""

from typing import ClassVar

import numpy as np
import pytest
import torch

from bitprint.methods.dpsh import DPSH
from bitprint.training.order import balanced_order, repeat_batches
from bitprint.training.plan import Training


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def shuffled_labels(counts, seed=0):
    labels = np.repeat(np.arange(len(counts)), counts)
    return torch.from_numpy(np.random.default_rng(seed).permutation(labels))


def groups_of(labels, order, per_class):
    return [labels[rows].tolist() for rows in order.split(per_class)]


def test_ten_classes_of_ten_images_in_every_batch():
    labels = shuffled_labels([60] * 10)
    order = balanced_order(labels, 10, generator())
    for batch in order.split(100):
        groups = groups_of(labels, batch, 10)
        assert all(len(set(group)) == 1 for group in groups)
        assert sorted(group[0] for group in groups) == list(range(10))


def test_with_more_classes_than_fit_each_batch_has_others():
    labels = shuffled_labels([8] * 12)
    order = balanced_order(labels, 4, generator())
    for batch in order.split(16):
        groups = groups_of(labels, batch, 4)
        assert all(len(set(group)) == 1 for group in groups)
        assert len({group[0] for group in groups}) == 4


@pytest.mark.parametrize("per_class", [1, 3, 7, 50])
def test_every_image_comes_once_whatever_the_sizes(per_class):
    labels = shuffled_labels([1, 20, 7, 0, 13])
    order = balanced_order(labels, per_class, generator())
    assert sorted(order.tolist()) == list(range(41))
    # No class has a second turn before all others had a first.
    firsts = {kind: min(per_class, count) for kind, count in enumerate([1, 20, 7, 0, 13]) if count}
    seen = labels[order[: sum(firsts.values())]].tolist()
    assert {kind: seen.count(kind) for kind in set(seen)} == firsts


def test_classes_take_turns_until_they_run_out():
    labels = shuffled_labels([6, 3])
    turns = [len(group) for group in _runs(labels[balanced_order(labels, 2, generator(1))])]
    assert turns in ([2, 2, 2, 1, 2], [2, 2, 1, 4])  # depending on which class is first


def _runs(values):
    runs = [[values[0].item()]]
    for value in values[1:].tolist():
        if value == runs[-1][-1]:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def test_images_and_classes_are_shuffled_by_the_generator_alone():
    labels = shuffled_labels([10] * 5)
    torch.manual_seed(0)
    one = balanced_order(labels, 5, generator(3))
    torch.manual_seed(1)
    assert torch.equal(one, balanced_order(labels, 5, generator(3)))
    orders = [balanced_order(labels, 5, generator(seed)) for seed in range(20)]
    assert len({tuple(order.tolist()) for order in orders}) == 20
    assert len({labels[order[0]].item() for order in orders}) > 2
    members = {tuple(sorted(order[:5].tolist())) for order in orders if labels[order[0]] == 0}
    assert len(members) > 1


def test_images_of_several_labels_go_with_one_of_them():
    rng = np.random.default_rng(0)
    labels = torch.from_numpy((rng.random((90, 4)) < 0.4).astype(np.float32))
    labels[:12] = 0
    chosen = set()
    for seed in range(5):
        order = balanced_order(labels, 3, generator(seed))
        assert sorted(order.tolist()) == list(range(90))
        for rows in order[:12].split(3):  # the first turn of at least four of the five kinds
            shared = labels[rows].prod(dim=0).any()
            none = not labels[rows].any()
            assert shared or none
            chosen |= {tuple(rows.tolist())}
    assert len(chosen) == 20


# ---- the loop


class Watched(DPSH):
    """DPSH that records the classes of its batches."""

    batches: ClassVar = []

    def loss(self, outputs, rows, state):
        self.batches.append(state.labels[rows].tolist())
        return super().loss(outputs, rows, state)


FEATURES = np.random.default_rng(0).standard_normal((48, 6))
LABELS = np.arange(48) % 6


@pytest.mark.parametrize("per_class", [4, None])
def test_the_loop_trains_on_balanced_batches(per_class):
    training = Training(epochs=2, batch_size=12, per_class=per_class)
    Watched.batches.clear()
    hasher = Watched(5, training=training).fit(FEATURES, LABELS)
    assert len(hasher.batches) == 8
    counts = [sorted(np.unique(batch, return_counts=True)[1]) for batch in hasher.batches]
    assert all(count == [4, 4, 4] for count in counts) == (per_class == 4)
    assert sorted(np.concatenate(hasher.batches[:4])) == sorted(LABELS)


class Stops(DPSH):
    stop_after = 3

    def after_epoch(self, state):
        if self.stop_after == 0:
            raise KeyboardInterrupt
        self.stop_after -= 1
        return super().after_epoch(state)


def test_a_killed_run_resumes_with_the_same_batches(tmp_path):
    training = Training(epochs=5, batch_size=12, per_class=4, lr=1e-3, schedule="constant")
    expected = DPSH(5, training=training).fit(FEATURES, LABELS).project(FEATURES)
    with pytest.raises(KeyboardInterrupt):
        Stops(5, training=training).fit(FEATURES, LABELS, run=tmp_path / "run")
    resumed = DPSH(5, training=training).fit(FEATURES, LABELS, run=tmp_path / "run")
    np.testing.assert_array_equal(resumed.project(FEATURES), expected)


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True])
def test_per_class_is_a_whole_number(value):
    with pytest.raises(ValueError, match="per_class must be an integer >= 1"):
        Training(per_class=value)


@pytest.mark.parametrize(("count", "size", "views"), [(10, 4, 2), (9, 3, 3), (1, 8, 2), (5, 1, 2)])
def test_repeated_batches_have_every_image_once_per_view(count, size, views):
    order = torch.randperm(count, generator=generator())
    batches = repeat_batches(order, size, views).split(views * size)
    assert len(batches) == -(-count // size)
    for repeated, once in zip(batches, order.split(size), strict=True):
        assert torch.equal(repeated.view(views, -1), once.expand(views, -1))


def test_one_view_keeps_the_order():
    order = torch.randperm(9, generator=generator())
    assert repeat_batches(order, 4, 1) is order
