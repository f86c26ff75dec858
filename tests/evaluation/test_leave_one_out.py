"""Leave-one-out MAP against plain loops over ranked lists."""

from itertools import permutations

import numpy as np
import pytest

from bitprint import Codes, evaluate
from bitprint.evaluation import leave_one_out
from bitprint.evaluation.leave_one_out import leave_one_out_map
from bitprint.quantised import QuantisedCodes
from bitprint.weighted import WeightedCodes

RNG = np.random.default_rng(0)


def precision_of_list(relevant):
    """Average precision of one ranked list; None without relevant items."""
    hits, total = 0, 0.0
    for rank, hit in enumerate(relevant, start=1):
        if hit:
            hits += 1
            total += hits / rank
    return total / hits if hits else None


def orders(items, distance):
    """All ranked lists of the items, with every order of ties."""
    lists = [[]]
    for value in sorted({distance[item] for item in items}):
        tied = [item for item in items if distance[item] == value]
        lists = [before + list(order) for before in lists for order in permutations(tied)]
    return lists


def brute_force(distances, similar):
    """MAP with item i removed from list i, averaged over all orders of ties."""
    found = []
    for i in range(len(distances)):
        others = [j for j in range(len(distances)) if j != i]
        precisions = [
            precision_of_list([similar[i][j] for j in order])
            for order in orders(others, distances[i])
        ]
        if precisions[0] is not None:
            found.append(sum(precisions) / len(precisions))
    return sum(found) / len(found)


def share_a_label(labels):
    labels = np.asarray(labels)
    count = len(labels)
    if labels.ndim == 1:
        return [[labels[i] == labels[j] for j in range(count)] for i in range(count)]
    return [[any(labels[i] & labels[j]) for j in range(count)] for i in range(count)]


def differing_bits(some, others):
    return [[sum(a != b) for b in others] for a in some]


SIGNS = RNG.choice([-1, 1], (7, 3))
CLASSES = [0, 1, 0, 2, 1, 0, 3]  # classes 2 and 3 have one item each
MATRIX = RNG.integers(0, 2, (7, 3))
MATRIX[2] = 0  # an item without any label
ONE_MORE = RNG.choice([-1, 1], (7, 3))


@pytest.mark.parametrize("labels", [CLASSES, MATRIX], ids=["classes", "several labels"])
def test_map_of_codes_is_that_of_all_orders(labels):
    expected = brute_force(differing_bits(SIGNS, SIGNS), share_a_label(labels))
    assert leave_one_out_map(Codes.from_signs(SIGNS), labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("labels", [CLASSES, MATRIX], ids=["classes", "several labels"])
def test_map_of_other_query_codes_is_that_of_all_orders(labels):
    expected = brute_force(differing_bits(ONE_MORE, SIGNS), share_a_label(labels))
    queries = Codes.from_signs(ONE_MORE)
    found = leave_one_out_map(Codes.from_signs(SIGNS), labels, queries)
    assert found == pytest.approx(expected, abs=1e-12)


def test_map_of_weighted_codes_is_that_of_all_orders():
    weights = [2.0, 0.5, 0.5]
    distances = [[weights @ (a != b) for b in SIGNS] for a in SIGNS]
    codes = Codes.from_signs(SIGNS)
    found = leave_one_out_map(WeightedCodes(codes, weights), CLASSES, codes)
    assert found == pytest.approx(brute_force(distances, share_a_label(CLASSES)), abs=1e-12)


def test_map_of_quantised_codes_is_that_of_all_orders():
    codes = QuantisedCodes(RNG.integers(0, 2, (7, 2)), RNG.standard_normal((2, 2, 3)))
    queries = RNG.standard_normal((7, 6)).astype(np.float32)
    distances = codes.distances(queries)
    found = leave_one_out_map(codes, CLASSES, queries)
    assert found == pytest.approx(brute_force(distances, share_a_label(CLASSES)), abs=1e-12)


def test_map_in_blocks_is_that_of_one_evaluation_per_item(monkeypatch):
    signs = RNG.choice([-1, 1], (150, 16))
    labels = RNG.integers(0, 4, 150)
    codes = Codes.from_signs(signs)
    alone = []
    for i in range(150):
        others = np.delete(np.arange(150), i)
        report = evaluate(codes[i : i + 1], labels[i : i + 1], codes[others], labels[others])
        alone.append(report.map)
    monkeypatch.setattr(leave_one_out, "_QUERIES", 64)
    assert leave_one_out_map(codes, labels) == pytest.approx(np.mean(alone), abs=1e-12)
    # The same with real-valued distances.
    monkeypatch.setattr(leave_one_out, "_PAIRS", 1000)
    weighted = WeightedCodes(codes, np.ones(16))
    assert leave_one_out_map(weighted, labels, codes) == pytest.approx(np.mean(alone), abs=1e-12)


def test_map_with_names_of_classes_is_that_of_numbers():
    codes = Codes.from_signs(SIGNS)
    names = np.array(["cat", "dog", "eel", "fly"])[CLASSES]
    expected = leave_one_out_map(codes, CLASSES)
    for labels in (names, names.tolist(), names.astype(object)):
        assert leave_one_out_map(codes, labels) == expected


@pytest.mark.parametrize("labels", [[0], [0, 1, 2], [[1, 0], [0, 1], [0, 0]]])
def test_map_where_nothing_is_similar_is_refused(labels):
    codes = Codes.from_signs(SIGNS[: len(labels)])
    for same in (codes, WeightedCodes(codes, [1.0, 2.0, 3.0])):
        with pytest.raises(ValueError, match="no item shares a label with another item"):
            leave_one_out_map(same, labels, codes)


def test_map_with_too_few_labels_is_refused():
    with pytest.raises(ValueError, match="7 images but 6 labels"):
        leave_one_out_map(Codes.from_signs(SIGNS), CLASSES[:-1])
