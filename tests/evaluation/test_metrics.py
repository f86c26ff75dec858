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
        ({"top": 0}, "top must be at least 1, got 0"),
        ({"top": -1}, "top must be at least 1, got -1"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"radius": -1}, "radius must be at least 0"),
        ({"cutoffs": (0, 5)}, "every cutoff must be at least 1, got 0"),
    ],
)
def test_options_are_checked(task, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*task, **options)
