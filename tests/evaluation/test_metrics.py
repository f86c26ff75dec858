import json
from functools import partial

import numpy as np
import pytest
import torch
from ranking_reference import codes_at, hamming, random_task, ranked_average_precision
from ranking_reference import share_a_label as similar

from bitprint import Codes
from bitprint.evaluation import evaluate
from bitprint.evaluation.average_precision import DENOMINATORS, TIES
from bitprint.evaluation.histograms import Task
from bitprint.weighted import WeightedCodes


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
    """40 queries, 12 of them of a class that is not in the database."""
    query_codes, query_labels, codes, labels = random_task(
        np.random.default_rng(6), 40, 300, bits=16, classes=4
    )
    query_labels[::3][:12] = 9
    return query_codes, query_labels, codes, labels


def loops_over_balls(task, empty, radius):
    """Precision and recall of Hamming balls, per query and pooled, with plain loops."""
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
def test_every_metric_is_over_the_same_queries(empty):
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
    """Expected number of relevant items among the first n; a tie at n contributes its share."""
    hits, ranked = 0, 0
    for distance in sorted(set(distances)):
        tied = relevance[distances == distance]
        places = min(len(tied), n - ranked)
        hits += sum(tied) * places / len(tied)
        ranked += places
    return hits


def test_skipping_equals_removing_the_queries():
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


def test_report_prints_a_short_table(task):
    query_codes, query_labels, codes, labels = task
    query_labels[0] = 0
    options = {"top": [20, 50], "empty": "zero", "graded": True, "cutoffs": range(10, 251, 10)}
    report = evaluate(query_codes, query_labels, codes, labels, **options)
    lines = str(report).splitlines()
    assert report.summary() == str(report)
    assert [line.split() for line in lines[:4]] == [
        ["25", "queries,", "260", "database", "items,", "11", "bits"],
        ["MAP", f"{report.map:.4f}", "ties:", "expected"],
        ["MAP@20", f"{report.map_at[20]:.4f}", "divided", "by:", "retrieved"],
        ["MAP@50", f"{report.map_at[50]:.4f}", "divided", "by:", "retrieved"],
    ]
    assert lines[4].startswith(f"precision, radius 2     {report.precision_radius:.4f}  ")
    assert lines[5].split() == ["@10", "@90", "@170", "@250"]
    rows = [("precision", "precision_at"), ("recall", "recall_at")]
    rows += [("NDCG", "ndcg_at"), ("ACG", "acg_at")]
    for line, (name, attribute) in zip(lines[6:10], rows, strict=True):
        values = getattr(report, attribute)
        assert line.split() == [name, *(f"{values[n]:.4f}" for n in (10, 90, 170, 250))]
    assert lines[10] == f"{report.empty_queries} queries without a relevant item, counted as 0"
    assert len(lines) == 11
    assert max(map(len, lines)) < 80


def test_report_of_one_cutoff_names_it(task):
    report = evaluate(*task, top=50, cutoffs=())
    assert (
        repr(report) == f"Report(MAP@50 {report.map:.4f}, 25 queries, 260 database items, 11 bits)"
    )
    line = str(report).splitlines()[1]
    assert line.split("  ")[-1] == "ties: expected, divided by: retrieved"
    assert "@" not in str(report).replace("MAP@50", "")


# Several cutoffs


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_several_tops_equal_one_call_for_each(task, ties, denominator):
    options = {"ties": ties, "denominator": denominator}
    report = evaluate(*task, top=(60, 7, 1000, 7), **options)
    whole = evaluate(*task, **options)
    assert (report.map, report.top) == (whole.map, None)
    np.testing.assert_allclose(report.average_precision, whole.average_precision, rtol=1e-12)
    assert list(report.map_at) == [7, 60, 1000]
    for n, value in report.map_at.items():
        single = evaluate(*task, top=n, **options)
        assert value == pytest.approx(single.map, rel=1e-12)
        assert single.map_at == {n: single.map}
        assert (single.top, type(single.map)) == (n, float)
    assert whole.map_at == {}


def test_several_tops_rank_and_count_once(task, monkeypatch):
    counted = []
    for name in ("count", "count_in_order"):
        count = getattr(Task, name)
        record = partial(lambda count, *given: counted.append(1) or count(*given), count)
        monkeypatch.setattr(Task, name, lambda *given, record=record: record(*given))
    for ties in ("expected", "stable"):
        evaluate(*task, top=[10, 20, 30], ties=ties)
    assert counted == [1, 1]


def test_several_tops_go_to_json(task):
    figures = json.loads(json.dumps(evaluate(*task, top=[5, 9], graded=True).as_dict()))
    assert list(figures["map_at"]) == ["5", "9"]
    assert list(figures["ndcg_at"]) == list(figures["acg_at"]) == ["100", "200"]


# Input types


@pytest.mark.parametrize(
    "form",
    [
        np.asarray,
        lambda codes: codes.signs().astype(np.float32),
        lambda codes: codes.signs().tolist(),
        lambda codes: codes.signs() > 0,
        lambda codes: torch.tensor(codes.signs(), dtype=torch.float32, requires_grad=True),
    ],
    ids=["int8", "float", "list", "bool", "torch"],
)
def test_arrays_of_signs_are_codes(task, form):
    query_codes, query_labels, codes, labels = task
    wanted = evaluate(*task).as_dict()
    assert evaluate(form(query_codes), query_labels, form(codes), labels).as_dict() == wanted
    assert evaluate(query_codes, query_labels, form(codes), labels).as_dict() == wanted
    weighted = WeightedCodes(codes, np.arange(11))
    wanted = evaluate(query_codes, query_labels, weighted, labels).as_dict()
    assert evaluate(form(query_codes), query_labels, weighted, labels).as_dict() == wanted


def test_class_names_are_labels():
    query_codes, query_labels, codes, labels = random_task(
        np.random.default_rng(7), 20, 150, bits=8, classes=4
    )
    wanted = evaluate(query_codes, query_labels, codes, labels).as_dict()
    names = np.array(["owl", "cat", "emu", "ant"])
    for form in (list, np.asarray):
        given = form(names[query_labels]), form(names[labels])
        assert evaluate(query_codes, given[0], codes, given[1]).as_dict() == wanted
    only = query_labels == 2  # without the database, queries would be numbered from 0
    found = evaluate(query_codes[only], names[query_labels[only]], codes, names[labels])
    assert found.map == evaluate(query_codes[only], query_labels[only], codes, labels).map


def test_lists_of_class_names_are_labels(task):
    query_codes, query_labels, codes, labels = task
    names = np.array(["owl", "cat", "emu", "ant", "bee", "fox"])
    given = [[set(names[row > 0]) for row in each] for each in (query_labels, labels)]
    found = evaluate(query_codes, given[0], codes, given[1], graded=True)
    assert found.as_dict() == evaluate(*task, graded=True).as_dict()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1, 0]], [0], [[1, -1]], [0]), "query codes: .*got 0 and 1: pass Codes.from_signs"),
        (([[1, -1]], [0], [[0.3, -2]], [0]), "database codes: .*Codes.from_signs.outputs >= 0"),
        (([[1, -1]], [0], [[1, -1, 1]], [0]), "2 bits and a database of 3 bits"),
        (([[1, -1]], [0, 1], [[1, -1]], [0]), "1 query codes but 2 query labels"),
        (([[1, -1]], [0], [[1, -1]], ["cat", "dog"]), "names but query labels are numbers"),
        (([[1, -1]], ["cat"], [[1, -1]], ["cat", "dog"]), "1 database codes but 2 database label"),
        (([[1, -1]], ["cat"], [[1, -1]], ["dog"]), "no query shares a label"),
        (([[1, -1]], None, [[1, -1]], ["dog"]), "labels are None; pass one label per image"),
        ((np.empty((0, 2)), [], [[1, -1]], [0]), "there are no query codes"),
        (([], [], [[1, -1]], [0]), r"query codes: codes must have shape \(N, K\)"),
        ((3, [0], [[1, -1]], [0]), "query codes must be Codes or an array of -1 and .1, got int"),
        (("codes.npy", [0], [[1, -1]], [0]), "query codes must be Codes or .*got str"),
    ],
)
def test_wrong_input_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "random"}, "ties must be one of expected, stable, optimistic, pessimistic"),
        ({"denominator": "v1"}, "denominator must be one of retrieved, total, min, got 'v1'"),
        ({"empty": "ignore"}, "empty must be one of skip, zero"),
        ({"top": 0}, "top must be an integer >= 1, got 0"),
        ({"top": -1}, "top must be an integer >= 1, got -1"),
        ({"chunk": 0}, "chunk must be an integer >= 1"),
        ({"radius": -1}, "radius must be an integer >= 0"),
        ({"cutoffs": (0, 5)}, "every cutoff must be an integer >= 1, got 0"),
        ({"cutoffs": [5, 2.5]}, "every cutoff must be an integer >= 1, got 2.5"),
        ({"cutoffs": [5, "all"]}, "every cutoff must be an integer >= 1, got 'all'"),
        ({"top": 2.5}, "top must be an integer >= 1, got 2.5"),
        ({"top": []}, "top is empty; pass one or more integers, or None"),
        ({"top": [5, 0]}, "every cutoff of top must be an integer >= 1, got 0"),
        ({"top": "5"}, "top must be an integer >= 1, got '5'"),
        ({"top": True}, "top must be an integer >= 1, got True"),
        ({"radius": 1.5}, "radius must be an integer >= 0, got 1.5"),
        ({"radius": None}, "radius must be an integer >= 0, got None"),
        ({"chunk": 1.5}, "chunk must be an integer >= 1, got 1.5"),
    ],
)
def test_options_are_checked(task, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*task, **options)


def test_integers_of_numpy_are_accepted(task):
    plain = evaluate(*task, top=50, radius=3, cutoffs=[5, 10], chunk=2)
    options = {"top": np.int64(50), "radius": np.uint8(3), "cutoffs": np.array([5, 10])}
    report = evaluate(*task, **options, chunk=np.int32(2))
    assert json.dumps(report.as_dict()) == json.dumps(plain.as_dict())
