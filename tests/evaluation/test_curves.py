import numpy as np
import pytest
from ranking_reference import codes_at, random_task, tie_orders

from bitprint.evaluation import curves
from bitprint.evaluation.histograms import Histograms, Task


@pytest.fixture
def task():
    """A few multi-label queries; one has no label and no relevant item."""
    query_codes, query_labels, codes, labels = random_task(
        np.random.default_rng(2), 12, 150, bits=9, columns=5
    )
    query_labels[4] = 0
    return query_codes, query_labels, codes, labels


def per_query(task):
    query_codes, query_labels, codes, labels = task
    return query_codes.hamming(codes), query_labels @ labels.T > 0


@pytest.mark.parametrize("radius", range(10))
def test_precision_within_a_radius(task, radius):
    found = curves.precision_within(Task(*task).count(), radius)
    for q, (distances, relevance) in enumerate(zip(*per_query(task), strict=True)):
        inside = relevance[distances <= radius]
        assert found[q] == (inside.mean() if len(inside) else 0)


def test_expected_precision_and_recall_equal_enumeration_of_tie_orders():
    distances, relevance = [0, 1, 1, 1, 3, 3, 4], [False, True, False, True, True, False, True]
    query, database = codes_at(distances, bits=5)
    histograms = Task(query, [1], database, np.array(relevance, int)).count()
    found = curves.at_ranks(histograms, range(1, 8))
    orders = np.array(tie_orders(distances, relevance))
    for n, precision, recall in zip(found.at, found.precision, found.recall, strict=True):
        hits = orders[:, :n].sum(axis=1).mean()
        assert precision == pytest.approx(hits / n, rel=1e-12)
        assert recall == pytest.approx(hits / sum(relevance), rel=1e-12)


def test_ranks_are_averaged_over_queries(task):
    ranks = [1, 10, 40, 150]
    found = curves.at_ranks(Task(*task).count(), reversed(ranks))
    rng = np.random.default_rng(0)
    assert found.at.tolist() == ranks
    precisions, recalls = [], []
    for _ in range(400):
        shuffled = rng.permutation(150)
        distances, relevance = (table[:, shuffled] for table in per_query(task))
        ranked = np.take_along_axis(relevance, np.argsort(distances, kind="stable"), axis=1)
        hits = np.stack([ranked[:, :n].sum(axis=1) for n in ranks], axis=1)
        total = relevance.sum(axis=1)
        precisions.append(np.mean(hits, axis=0) / ranks)
        recalls.append(np.mean(hits[total > 0] / total[total > 0, None], axis=0))
    for values, mean in ((precisions, found.precision), (recalls, found.recall)):
        standard_error = np.std(values, axis=0, ddof=1) / np.sqrt(len(values))
        assert np.all(np.abs(np.mean(values, axis=0) - mean) <= 4 * standard_error + 1e-12)


def test_ranking_curve_runs_from_the_first_item_to_the_last(task):
    histograms = Task(*task).count()
    recall, precision, at = curves.by_ranking(histograms)
    assert at[0] == 1
    assert at[-1] == 150
    assert np.all(np.diff(at) > 0)
    assert np.all(np.diff(recall) >= 0)
    assert recall[-1] == pytest.approx(1)
    assert precision[-1] == pytest.approx(per_query(task)[1].mean())
    again = curves.at_ranks(histograms, at)
    np.testing.assert_array_equal(precision, again.precision)


def test_ranking_curve_of_a_large_database_stays_small():
    items = np.array([[10**6, 10**6]])
    curve = curves.by_ranking(Histograms(items, items // 2))
    assert len(curve.at) <= 128
    np.testing.assert_allclose(curve.precision, 0.5)


def test_lookup_curves_equal_plain_loops(task):
    histograms = Task(*task).count()
    averaged, pooled = curves.by_lookup(histograms), curves.by_pooled_lookup(histograms)
    distances, relevance = per_query(task)
    for radius in range(10):
        precisions, recalls, all_items, all_relevant = [], [], 0, 0
        for d, relevant in zip(distances, relevance, strict=True):
            inside = d <= radius
            hits = (relevant & inside).sum()
            precisions.append(hits / inside.sum() if inside.any() else 0)
            if relevant.any():
                recalls.append(hits / relevant.sum())
            all_items += inside.sum()
            all_relevant += hits
        assert averaged.at[radius] == pooled.at[radius] == radius
        assert averaged.precision[radius] == pytest.approx(np.mean(precisions), rel=1e-12)
        assert averaged.recall[radius] == pytest.approx(np.mean(recalls), rel=1e-12)
        assert pooled.precision[radius] == pytest.approx(all_relevant / max(all_items, 1))
        assert pooled.recall[radius] == pytest.approx(all_relevant / relevance.sum())
