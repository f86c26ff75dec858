import json

import numpy as np
import pytest
from ranking_reference import codes_at, hamming, random_task, ranked_average_precision
from ranking_reference import share_a_label as similar

from bitprint import Codes
from bitprint.evaluation import evaluate


@pytest.fixture
def task():
    return random_task(np.random.default_rng(4), 25, 260, bits=11, columns=6)


def test_multi_label_map_equals_plain_loops(task):
    query_codes, query_labels, codes, labels = task
    precisions = []
    for query, wanted in zip(query_codes.signs(), query_labels, strict=True):
        ranked = sorted(range(len(codes)), key=lambda i: hamming(query, codes[i].signs()[0]))
        flags = [similar(wanted, labels[i]) for i in ranked]
        if any(flags):
            precisions.append(ranked_average_precision(flags, sum(flags), len(flags), "total"))
    report = evaluate(*task, ties="stable")
    assert report.map == pytest.approx(np.mean(precisions), rel=1e-12)
    assert report.empty_queries == len(query_codes) - len(precisions)


def test_queries_without_a_relevant_item():
    query, database = codes_at([0, 1, 3], bits=3)
    queries = Codes.concatenate([query, query])
    skipped = evaluate(queries, [0, 7], database, [0, 1, 0])
    zeroed = evaluate(queries, [0, 7], database, [0, 1, 0], empty="zero")
    alone = evaluate(query, [0], database, [0, 1, 0])
    assert skipped.empty_queries == zeroed.empty_queries == 1
    assert skipped.map == alone.map == pytest.approx((1 + 2 / 3) / 2)
    assert np.isnan(skipped.average_precision[1])
    assert zeroed.map == pytest.approx(alone.map / 2)
    assert zeroed.average_precision[1] == 0
    with pytest.raises(ValueError, match="no query shares a label"):
        evaluate(query, [7], database, [0, 1, 0])


def with_empty_queries():
    """40 queries, 12 of them of a class that the database lacks."""
    query_codes, query_labels, codes, labels = random_task(
        np.random.default_rng(6), 40, 300, bits=16, classes=4
    )
    query_labels[::3][:12] = 9
    return query_codes, query_labels, codes, labels


def loops_over_balls(task, empty, radius):
    """Precision and recall of balls in each way, and empty ones, query by query."""
    query_codes, query_labels, codes, labels = task
    precisions, recalls, found, inside, relevant, empty_balls = [], [], 0, 0, 0, 0
    for distances, wanted in zip(query_codes.hamming(codes), query_labels, strict=True):
        total = sum(label == wanted for label in labels)
        if total == 0 and empty == "skip":
            continue
        ball = [label == wanted for d, label in zip(distances, labels, strict=True) if d <= radius]
        precisions.append(sum(ball) / len(ball) if ball else 0)
        if total:
            recalls.append(sum(ball) / total)
        found, inside, relevant = found + sum(ball), inside + len(ball), relevant + total
        empty_balls += not ball
    pooled = found / max(inside, 1), found / relevant
    return np.mean(precisions), np.mean(recalls), pooled, empty_balls


@pytest.mark.parametrize("empty", ["skip", "zero"])
def test_every_figure_is_over_the_same_queries(empty):
    task = query_codes, query_labels, codes, labels = with_empty_queries()
    report = evaluate(*task, empty=empty, cutoffs=(10, 40), radius=3)
    assert report.empty_queries == 12
    assert report.queries == 40
    kept = [q for q in range(40) if empty == "zero" or query_labels[q] in labels]
    assert report.map == pytest.approx(np.mean(report.average_precision[kept]), rel=1e-12)
    for n in (10, 40):
        precisions, recalls = [], []
        for q in kept:
            hits = expected_hits(query_codes[q].hamming(codes)[0], labels == query_labels[q], n)
            precisions.append(hits / n)
            if query_labels[q] in labels:
                recalls.append(hits / sum(labels == query_labels[q]))
        assert len(recalls) == 28
        assert report.precision_at[n] == pytest.approx(np.mean(precisions), rel=1e-12)
        assert report.recall_at[n] == pytest.approx(np.mean(recalls), rel=1e-12)
    along = evaluate(*task, empty=empty, cutoffs=report.pr_curve.at.tolist())
    assert list(along.precision_at.values()) == report.pr_curve.precision.tolist()
    assert list(along.recall_at.values()) == report.pr_curve.recall.tolist()
    for radius in (0, 2, 3, 16):
        precision, recall, pooled, empty_balls = loops_over_balls(task, empty, radius)
        assert report.pr_lookup.precision[radius] == pytest.approx(precision, rel=1e-12)
        assert report.pr_lookup.recall[radius] == pytest.approx(recall, rel=1e-12)
        assert report.pr_lookup_pooled.precision[radius] == pytest.approx(pooled[0], rel=1e-12)
        assert report.pr_lookup_pooled.recall[radius] == pytest.approx(pooled[1], rel=1e-12)
        if radius == 2:
            assert report.precision_radius2 == pytest.approx(precision, rel=1e-12)
        if radius == 3:
            assert report.precision_radius == pytest.approx(precision, rel=1e-12)
            assert report.empty_balls == empty_balls


def expected_hits(distances, relevance, n):
    """Relevant items among the first n; of the tie that n falls into, their share of its places."""
    hits, ranked = 0, 0
    for distance in sorted(set(distances)):
        tied = relevance[distances == distance]
        places = min(len(tied), n - ranked)
        hits += sum(tied) * places / len(tied)
        ranked += places
    return hits


def test_skipping_is_as_if_the_queries_had_not_been_given():
    query_codes, query_labels, codes, labels = with_empty_queries()
    kept = np.flatnonzero(query_labels != 9)
    whole = evaluate(query_codes, query_labels, codes, labels).as_dict()
    part = evaluate(query_codes[kept], query_labels[kept], codes, labels).as_dict()
    assert whole.pop("map") == pytest.approx(part.pop("map"), rel=1e-12)
    assert {name for name in whole if whole[name] != part[name]} == {"queries", "empty_queries"}


def test_without_empty_queries_both_are_the_same(task):
    query_codes, query_labels, codes, labels = task
    query_labels[:, 0] = 1
    skipped, zeroed = (
        evaluate(query_codes, query_labels, codes, labels, empty=empty).as_dict()
        for empty in ("skip", "zero")
    )
    assert skipped | {"empty": "zero"} == zeroed


def test_radius_and_empty_balls():
    query, database = codes_at([1, 2, 3, 3], bits=4)
    far = Codes.from_signs([[1, 1, 1, 1]])  # at distances 3, 2, 1, 1
    queries, labels = Codes.concatenate([query, far]), [0, 0, 1, 1]
    report = evaluate(queries, [0, 0], database, labels, radius=0)
    assert (report.precision_radius, report.empty_balls) == (0, 2)
    assert report.precision_radius2 == pytest.approx((1 + 1 / 3) / 2)
    report = evaluate(queries, [0, 0], database, labels, radius=1)
    assert (report.precision_radius, report.empty_balls) == (0.5, 0)
    report = evaluate(queries, [0, 0], database, labels, radius=9)
    assert report.precision_radius == 0.5


def test_radius_two_of_a_one_bit_code_is_everything():
    codes = Codes.from_signs([[1], [-1]])
    assert evaluate(codes, [0, 1], codes, [0, 1]).precision_radius2 == 0.5


def test_cutoffs_beyond_the_database_are_left_out(task):
    assert list(evaluate(*task).precision_at) == [100, 200]
    report = evaluate(*task, cutoffs=(260, 5, 5, 261))
    assert list(report.precision_at) == list(report.recall_at) == [5, 260]
    assert report.recall_at[260] == pytest.approx(1)
    assert evaluate(*task, cutoffs=()).precision_at == {}


def test_chunk_does_not_change_the_report(task):
    reports = [evaluate(*task, chunk=chunk).as_dict() for chunk in (None, 1, 7)]
    assert reports[0] == reports[1] == reports[2]


def test_report_goes_to_json_and_back(task):
    report = evaluate(*task, top=50, denominator="min")
    figures = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert figures["map"] == report.map
    assert figures["precision_radius2"] == report.precision_radius2
    assert figures["precision_at"] == {
        "100": report.precision_at[100],
        "200": report.precision_at[200],
    }
    assert figures["pr_lookup"]["at"] == list(range(12))
    assert (figures["top"], figures["denominator"], figures["queries"]) == (50, "min", 25)


def test_summary_names_the_convention(task):
    query_codes, query_labels, codes, labels = task
    query_labels[0] = 0
    report = evaluate(query_codes, query_labels, codes, labels, top=50, empty="zero")
    summary = report.summary()
    assert f"MAP@50 {report.map:.4f} (ties expected, divided by retrieved)" in summary
    assert f"{report.empty_queries} queries without a relevant item, counted as 0" in summary
    assert f"precision@100 {report.precision_at[100]:.4f}" in summary


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "random"}, "ties is one of expected, stable, optimistic, pessimistic"),
        ({"denominator": "v1"}, "denominator is one of retrieved, total, min; got 'v1'"),
        ({"empty": "ignore"}, "empty is one of skip, zero"),
        ({"top": 0}, "top must be a whole number of at least 1, got 0"),
        ({"top": -1}, "top must be a whole number of at least 1, got -1"),
        ({"chunk": 0}, "chunk must be a whole number of at least 1"),
        ({"radius": -1}, "radius must be a whole number of at least 0"),
        ({"cutoffs": (0, 5)}, "every cutoff must be a whole number of at least 1, got 0"),
        ({"cutoffs": [5, 2.5]}, "every cutoff must be a whole number of at least 1, got 2.5"),
        ({"cutoffs": [5, "all"]}, "every cutoff must be a whole number of at least 1, got 'all'"),
        ({"top": 2.5}, "top must be a whole number of at least 1, got 2.5"),
        ({"top": True}, "top must be a whole number of at least 1, got True"),
        ({"radius": 1.5}, "radius must be a whole number of at least 0, got 1.5"),
        ({"radius": None}, "radius must be a whole number of at least 0, got None"),
        ({"chunk": 1.5}, "chunk must be a whole number of at least 1, got 1.5"),
    ],
)
def test_options_are_checked(task, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*task, **options)


def test_whole_numbers_may_be_of_numpy(task):
    plain = evaluate(*task, top=50, radius=3, cutoffs=[5, 10], chunk=2)
    options = {"top": np.int64(50), "radius": np.uint8(3), "cutoffs": np.array([5, 10])}
    report = evaluate(*task, **options, chunk=np.int32(2))
    assert json.dumps(report.as_dict()) == json.dumps(plain.as_dict())
