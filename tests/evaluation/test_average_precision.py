from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranking_reference import (
    codes_at,
    random_task,
    ranked_average_precision,
    stable_order,
    tie_orders,
)

from bitprint import Codes
from bitprint.evaluation import evaluate, kernels

DENOMINATORS = ("retrieved", "total", "min")

items = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=8)


def average_precision(distances, relevance, **options):
    query, database = codes_at(distances, bits=max(3, *distances))
    labels = [0 if relevant else 1 for relevant in relevance]
    return evaluate(query, [0], database, labels, **options).map


@settings(max_examples=60, deadline=None)
@given(items.filter(lambda pairs: any(relevant for _, relevant in pairs)))
def test_every_convention_equals_enumeration_of_all_tie_orders(pairs):
    distances, relevance = (list(column) for column in zip(*pairs, strict=True))
    best_first = [(d, not relevant) for d, relevant in pairs]
    rankings = {
        "expected": tie_orders(distances, relevance),
        "stable": [stable_order(distances, relevance)],
        "optimistic": [[not irrelevant for _, irrelevant in sorted(best_first)]],
        "pessimistic": [[relevant for _, relevant in sorted(pairs)]],
    }
    for top in [None, *range(1, len(pairs) + 2)]:
        for denominator in DENOMINATORS:
            for ties, orders in rankings.items():
                wanted = np.mean(
                    [
                        ranked_average_precision(
                            flags, sum(relevance), top or len(pairs), denominator
                        )
                        for flags in orders
                    ]
                )
                found = average_precision(
                    distances, relevance, top=top, denominator=denominator, ties=ties
                )
                assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12), (
                    top,
                    denominator,
                    ties,
                )


@pytest.mark.parametrize("ties", ["expected", "stable", "optimistic", "pessimistic"])
def test_without_ties_every_mode_is_the_sorted_one(ties):
    rng = np.random.default_rng(3)
    distances = rng.permutation(41)
    relevance = rng.random(41) < 0.4
    flags = relevance[np.argsort(distances)]
    for top in (1, 7, 30, 41):
        for denominator in DENOMINATORS:
            wanted = ranked_average_precision(flags, relevance.sum(), top, denominator)
            found = average_precision(
                distances, relevance, ties=ties, top=top, denominator=denominator
            )
            assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("ties", ["expected", "stable", "optimistic", "pessimistic"])
def test_perfect_separation_is_one(ties):
    assert average_precision([0, 1, 1, 2, 3], [1, 1, 1, 0, 0], ties=ties) == pytest.approx(1)


def test_all_items_tied():
    size, relevant = 500, 90
    rho = (relevant - 1) / (size - 1)
    wanted = sum((1 + (j - 1) * rho) / j for j in range(1, size + 1)) / size
    found = average_precision([1] * size, [i < relevant for i in range(size)])
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("top", [None, 60])
def test_expected_is_the_mean_over_shuffled_databases(top):
    rng = np.random.default_rng(0)
    query_codes, query_labels, codes, labels = random_task(rng, 20, 300, bits=6, classes=4)
    shuffled = []
    for _ in range(300):
        order = rng.permutation(300)
        report = evaluate(
            query_codes, query_labels, codes[order], labels[order], ties="stable", top=top
        )
        shuffled.append(report.map)
    standard_error = np.std(shuffled, ddof=1) / np.sqrt(len(shuffled))
    expected = evaluate(query_codes, query_labels, codes, labels, top=top).map
    assert abs(expected - np.mean(shuffled)) < 4 * standard_error


@pytest.mark.parametrize("ties", ["expected", "stable", "optimistic", "pessimistic"])
def test_denominators_are_ordered(ties):
    task = random_task(np.random.default_rng(5), 50, 400, bits=7, classes=3)
    for top in (20, 133, 399):
        retrieved, least, total = (
            evaluate(*task, ties=ties, top=top, denominator=name).average_precision
            for name in ("retrieved", "min", "total")
        )
        assert np.all(retrieved >= least - 1e-12)
        assert np.all(least >= total - 1e-12)
        assert retrieved.mean() > total.mean()


def test_orders_bound_the_expectation_over_the_whole_database():
    task = random_task(np.random.default_rng(6), 50, 400, bits=7, classes=3)
    worst, expected, stable, best = (
        evaluate(*task, ties=ties).average_precision
        for ties in ("pessimistic", "expected", "stable", "optimistic")
    )
    assert np.all((worst < expected) & (expected < best))
    assert np.all((worst <= stable) & (stable <= best))


def test_top_beyond_the_database_is_the_whole_database():
    task = random_task(np.random.default_rng(8), 10, 90, bits=5, classes=3)
    for denominator in DENOMINATORS:
        beyond = evaluate(*task, top=1000, denominator=denominator)
        assert beyond.map == pytest.approx(evaluate(*task).map, rel=1e-12)


def cut_precision(m, before, found, start, drawn):
    """AP for a cut with m relevant items of a tie, computed rank by rank."""
    rho = (m - 1) / (drawn - 1)
    tied = sum(m / drawn * (found + 1 + (j - 1) * rho) / (start + j) for j in range(1, drawn + 1))
    return (before + tied) / (found + m) if found + m else 0.0


def expected_cut(before, found, start, size, relevant, drawn):
    harmonic = sum(1 / j for j in range(start + 1, start + drawn + 1))
    counts = [np.array([n]) for n in (found, start, size, relevant, drawn)]
    return kernels.expected_cut(np.array([before]), *counts, np.array([harmonic]))[0]


@pytest.mark.parametrize("found", [0, 30])
@pytest.mark.parametrize(
    ("size", "relevant", "drawn"), [(900, 300, 70), (400, 390, 60), (300, 2, 9)]
)
def test_cut_within_a_tie_equals_the_hypergeometric_sum(found, size, relevant, drawn):
    before, start = 0.6 * found, 2 * found
    wanted = sum(
        comb(relevant, m)
        * comb(size - relevant, drawn - m)
        / comb(size, drawn)
        * cut_precision(m, before, found, start, drawn)
        for m in range(max(0, drawn - size + relevant), min(relevant, drawn) + 1)
    )
    found_value = expected_cut(before, found, start, size, relevant, drawn)
    assert found_value == pytest.approx(wanted, rel=1e-12)


def test_cut_within_a_tie_of_two_hundred_thousand():
    # With nothing before the tie, AP given m hits is rho + (1 - rho) H_k / k with rho linear in m,
    # so the expectation needs only E[m] = k r / n; m = 0 is negligible.
    size, relevant, drawn = 200_000, 60_000, 50_000
    rho = (drawn * relevant / size - 1) / (drawn - 1)
    mean_inverse_rank = sum(1 / j for j in range(1, drawn + 1)) / drawn
    wanted = rho + (1 - rho) * mean_inverse_rank
    assert expected_cut(0.0, 0, 0, size, relevant, drawn) == pytest.approx(wanted, rel=1e-11)


def test_expected_mode_ignores_the_order_of_the_database_and_stable_does_not():
    rng = np.random.default_rng(7)
    query_codes, query_labels, codes, labels = random_task(rng, 30, 500, bits=8, classes=5)
    order = np.argsort(labels, kind="stable")
    for options in ({}, {"top": 77}, {"top": 77, "denominator": "min"}):
        before = evaluate(query_codes, query_labels, codes, labels, **options)
        after = evaluate(query_codes, query_labels, codes[order], labels[order], **options)
        np.testing.assert_array_equal(before.average_precision, after.average_precision)
    before = evaluate(query_codes, query_labels, codes, labels, ties="stable")
    after = evaluate(query_codes, query_labels, codes[order], labels[order], ties="stable")
    assert before.map != after.map


def test_stable_over_many_blocks_of_the_database():
    rng = np.random.default_rng(9)
    query_codes, query_labels, codes, labels = random_task(rng, 5, 5000, bits=10, columns=6)
    for top in (5000, 900):
        report = evaluate(
            query_codes,
            query_labels,
            codes,
            labels,
            ties="stable",
            top=top,
            denominator="min",
            empty="zero",
        )
        distances = query_codes.hamming(codes)
        relevance = query_labels @ labels.T > 0
        for q in range(5):
            flags = relevance[q][np.argsort(distances[q], kind="stable")]
            wanted = ranked_average_precision(flags, flags.sum(), top, "min")
            assert report.average_precision[q] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("size", [1, 3, 5, 8191, 8195, 20_001])
def test_stable_with_unequal_parts_of_the_database(size):
    """The database is counted in four parts; the rest belongs to the last one."""
    rng = np.random.default_rng(size)
    codes = Codes.from_signs(rng.random((size, 6)) < 0.5)
    labels = rng.integers(0, 3, size)
    labels[0] = 0
    queries, tops = Codes.from_signs(rng.random((2, 6)) < 0.5), [1, 2, 900, size]
    report = evaluate(queries, [0, 0], codes, labels, ties="stable", top=tops, denominator="total")
    orders = np.argsort(queries.hamming(codes), axis=1, kind="stable")
    for top in tops:
        wanted = [
            ranked_average_precision(labels[order] == 0, np.sum(labels == 0), top, "total")
            for order in orders
        ]
        assert report.map_at[top] == pytest.approx(np.mean(wanted), rel=1e-12)
    expected = evaluate(queries, [0, 0], codes, labels)
    np.testing.assert_array_equal(report.pr_lookup, expected.pr_lookup)
    np.testing.assert_array_equal(report.pr_curve, expected.pr_curve)


def test_a_query_whose_hits_lie_beyond_the_top_scores_zero():
    query, database = codes_at([0, 0, 2], bits=2)
    for ties in ("expected", "stable", "optimistic", "pessimistic"):
        for denominator in DENOMINATORS:
            report = evaluate(
                query, [0], database, [1, 1, 0], top=2, ties=ties, denominator=denominator
            )
            assert report.map == 0
            assert report.empty_queries == 0


def test_one_item():
    code = Codes.from_signs([[1]])
    assert evaluate(code, [4], code, [4]).map == 1
