"""Rankings by real-valued distances against Hamming histograms and plain loops."""

import json
import math

import numpy as np
import pytest
from ranking_reference import (
    codes_at,
    random_task,
    ranked_average_precision,
    share_a_label,
    stable_order,
    tie_orders,
)

from bitprint.evaluation import evaluate, rankings
from bitprint.evaluation.average_precision import DENOMINATORS, TIES
from bitprint.evaluation.plots import plot_reports


class Scaled:
    """Hamming distances as floats; records the number of queries per call."""

    def __init__(self, codes, scale=0.37):
        self.codes, self.scale, self.asked = codes, scale, []
        self.bits = codes.bits

    def __len__(self):
        return len(self.codes)

    def distances(self, queries):
        self.asked.append(len(queries))
        return self.scale * queries.hamming(self.codes)


class Given:
    """A matrix of distances; queries are row numbers."""

    bits = 24

    def __init__(self, distances):
        self.matrix = np.asarray(distances, float)

    def __len__(self):
        return self.matrix.shape[1]

    def distances(self, queries):
        return self.matrix[queries]


def rank(distances, query_labels, labels, **options):
    return evaluate(np.arange(len(distances)), query_labels, Given(distances), labels, **options)


# ---- against histograms


@pytest.mark.parametrize("kind", [{"classes": 4}, {"columns": 5}], ids=["classes", "matrix"])
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("top", [None, 1, 37, 120, 1000])
def test_integer_distances_equal_histograms(kind, ties, top):
    queries, query_labels, codes, labels = random_task(
        np.random.default_rng(0), 11, 120, bits=6, **kind
    )
    for denominator in DENOMINATORS:
        options = {"ties": ties, "top": top, "denominator": denominator, "cutoffs": (1, 7, 60)}
        counted = evaluate(queries, query_labels, codes, labels, **options)
        ranked = evaluate(queries, query_labels, Scaled(codes), labels, **options)
        # There are no empty buckets here, so sums can round differently.
        np.testing.assert_allclose(
            ranked.average_precision, counted.average_precision, rtol=1e-13, atol=0
        )
        assert ranked.precision_at == counted.precision_at
        assert ranked.recall_at == counted.recall_at
        for mine, theirs in zip(ranked.pr_curve, counted.pr_curve, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert ranked.empty_queries == counted.empty_queries
        assert (ranked.bits, ranked.queries, ranked.database) == (6, 11, 120)


# ---- against plain loops


def test_without_ties_by_loops():
    rng = np.random.default_rng(1)
    distances = rng.standard_normal((6, 50))
    query_labels, labels = rng.integers(0, 3, 6), rng.integers(0, 3, 50)
    for top, denominator in ((50, "total"), (20, "min"), (20, "retrieved")):
        expected = []
        for row, wanted in zip(distances, query_labels, strict=True):
            flags = [wanted == labels[i] for i in sorted(range(50), key=lambda i: row[i])]
            expected.append(ranked_average_precision(flags, sum(flags), top, denominator))
        for ties in TIES:  # no ties
            options = {"top": top, "denominator": denominator, "ties": ties}
            found = rank(distances, query_labels, labels, **options)
            np.testing.assert_allclose(found.average_precision, expected, rtol=1e-12)
    hits = [
        sum(query_labels[q] == labels[i] for i in np.argsort(distances[q])[:10]) for q in range(6)
    ]
    found = rank(distances, query_labels, labels, cutoffs=(10,))
    assert found.precision_at[10] == pytest.approx(np.mean(hits) / 10, rel=1e-12)


@pytest.mark.parametrize("top", [1, 2, 4, 7])
def test_ties_are_expectations_over_all_orders(top):
    distances = [0.25, -1.5, 0.25, 0.25, -1.5, math.pi, 0.25]
    relevance = [1, 0, 0, 1, 1, 1, 0]
    orders = tie_orders(distances, relevance)
    for denominator in DENOMINATORS:
        expected = np.mean(
            [ranked_average_precision(flags, 4, top, denominator) for flags in orders]
        )
        found = rank([distances], [1], relevance, top=top, denominator=denominator)
        assert found.map == pytest.approx(expected, rel=1e-12)
        stable = ranked_average_precision(stable_order(distances, relevance), 4, top, denominator)
        found = rank([distances], [1], relevance, top=top, denominator=denominator, ties="stable")
        assert found.map == pytest.approx(stable, rel=1e-12)


def test_several_labels_and_queries_without_any_relevant_item():
    rng = np.random.default_rng(2)
    distances = rng.standard_normal((9, 40))
    query_labels, labels = rng.random((9, 4)) < 0.3, rng.random((40, 4)) < 0.3
    query_labels[3] = 0
    expected = []
    for row, wanted in zip(distances, query_labels, strict=True):
        flags = [share_a_label(wanted, labels[i]) for i in np.argsort(row)]
        if any(flags):
            expected.append(ranked_average_precision(flags, sum(flags), 40, "total"))
    found = rank(distances, query_labels, labels)
    assert found.map == pytest.approx(np.mean(expected), rel=1e-12)
    assert found.empty_queries == 9 - len(expected) > 0
    assert math.isnan(found.average_precision[3])
    assert rank(distances, query_labels, labels, empty="zero").average_precision[3] == 0


def test_queries_without_any_relevant_item_in_precision_and_recall():
    distances = [[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]
    skipped = rank(distances, [1, 7], [1, 0, 1, 0], cutoffs=(1, 3))
    zeroed = rank(distances, [1, 7], [1, 0, 1, 0], cutoffs=(1, 3), empty="zero")
    assert skipped.precision_at == {1: 1, 3: 2 / 3}
    assert zeroed.precision_at == {1: 1 / 2, 3: 1 / 3}
    assert skipped.recall_at == zeroed.recall_at == {1: 1 / 2, 3: 1}
    assert skipped.pr_curve.precision.tolist() == [1, 1 / 2, 2 / 3, 1 / 2]
    assert zeroed.pr_curve.precision.tolist() == [1 / 2, 1 / 4, 1 / 3, 1 / 4]
    assert skipped.pr_curve.recall.tolist() == zeroed.pr_curve.recall.tolist()


def test_infinitely_far_items_come_last():
    found = rank([[math.inf, 2.0, -math.inf]], [1], [1, 0, 1])
    assert found.map == pytest.approx((1 + 2 / 3) / 2, rel=1e-12)


# ---- memory


def test_chunks_bound_memory_and_change_nothing():
    task = random_task(np.random.default_rng(3), 23, 90, bits=5, classes=3)
    reports = {}
    for chunk in (None, 1, 4, 100):
        database = Scaled(task[2])
        reports[chunk] = evaluate(*task[:2], database, task[3], chunk=chunk)
        assert sum(database.asked) == 23
        assert max(database.asked) <= (chunk or 23)
    for report in reports.values():
        assert report.as_dict() == reports[None].as_dict()


def test_a_large_database_is_ranked_for_few_queries_at_a_time(monkeypatch):
    monkeypatch.setattr(rankings, "_PAIRS", 300)
    task = random_task(np.random.default_rng(3), 23, 90, bits=5, classes=3)
    database = Scaled(task[2])
    evaluate(*task[:2], database, task[3])
    assert max(database.asked) == 3


# ---- the report


@pytest.fixture
def report():
    rng = np.random.default_rng(4)
    return rank(rng.random((5, 150)), [0, 1, 0, 1, 0], rng.integers(0, 2, 150))


def test_there_are_no_hamming_balls(report):
    assert report.radius is None
    assert math.isnan(report.precision_radius)
    assert math.isnan(report.precision_radius2)
    assert len(report.pr_lookup.at) == len(report.pr_lookup_pooled.recall) == 0
    figures = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert figures["precision_radius"] is figures["precision_radius2"] is figures["radius"] is None
    assert figures["map"] == report.map
    assert "radius" not in str(report)
    assert str(report).startswith("5 queries, 150 database items, 24 bits\nMAP ")


def test_it_can_be_plotted_beside_others(report, tmp_path):
    hamming = evaluate(*random_task(np.random.default_rng(0), 5, 150, bits=24, classes=3))
    paths = plot_reports({"dqn": report, "lsh": hamming}, tmp_path)
    assert [path.name for path in paths] == [
        "precision_radius2.png",
        "precision_at_24.png",
        "precision_recall_24.png",
    ]


# ---- errors


def test_what_cannot_be_ranked_is_refused():
    query, database = codes_at([0, 1, 3], bits=3)
    for arguments, message in [
        ((query, [0], np.ones((3, 8)), [0, 1, 0]), "3 bits and a database of 8 bits"),
        ((Scaled(query), [0], database, [0, 1, 0]), "query codes must be .*got Scaled; encode"),
        ((query, [0], object(), [0, 1, 0]), "database codes must be .*with a method `distances`"),
        (([0], [0], Given([[math.nan, 1.0]]), [0, 1]), "distances contain NaN"),
        (([0], [0], Given([[1.0, 2.0]]), [0, 1, 1]), "2 database codes but 3 database labels"),
        (([0], [0, 1], Given([[1.0, 2.0]]), [0, 1]), "1 query codes but 2 query labels"),
        (([0], [0], Given([[1.0, 2.0]]), np.eye(2)), "both be class numbers"),
        (([0], [5], Given([[1.0, 2.0]]), [0, 1]), "no query shares a label"),
        (([0], [0], Given(np.ones((1, 0))), []), "no database codes"),
    ]:
        with pytest.raises(ValueError, match=message):
            evaluate(*arguments)


def test_distances_of_another_shape_are_refused():
    database = Given([[1.0, 2.0], [3.0, 4.0]])
    database.distances = lambda queries: database.matrix[:1]
    with pytest.raises(ValueError, match=r"shape \(1, 2\), expected \(2, 2\)"):
        evaluate(np.arange(2), [0, 1], database, [0, 1])
