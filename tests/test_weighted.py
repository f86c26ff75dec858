"""WeightedCodes: distances compared with loops over bits."""

import numpy as np
import pytest

from bitprint import Codes, Index, evaluate
from bitprint.weighted import WeightedCodes


def random_codes(count, bits, seed=0):
    return Codes.from_signs(np.random.default_rng(seed).random((count, bits)) < 0.5)


@pytest.mark.parametrize("bits", [1, 7, 8, 12, 48, 65])
def test_distance_is_the_weight_of_the_bits_that_differ(bits):
    codes, queries = random_codes(15, bits), random_codes(4, bits, seed=1)
    weights = np.random.default_rng(2).random(bits)
    found = WeightedCodes(codes, weights).distances(queries)
    for q, i in np.ndindex(4, 15):
        one, other = queries.signs()[q], codes.signs()[i]
        expected = sum(weights[k] for k in range(bits) if one[k] != other[k])
        assert found[q, i] == pytest.approx(expected, abs=1e-9 * weights.sum())


def test_equal_weights_give_the_metrics_of_hamming_distance():
    codes, queries = random_codes(80, 12), random_codes(9, 12, seed=1)
    labels, query_labels = np.arange(80) % 3, np.arange(9) % 3
    plain = evaluate(queries, query_labels, codes, labels)
    weighted = evaluate(queries, query_labels, WeightedCodes(codes, np.full(12, 0.25)), labels)
    np.testing.assert_allclose(weighted.average_precision, plain.average_precision, rtol=1e-12)
    for mine, theirs in zip(weighted.pr_curve, plain.pr_curve, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("weight", [0.1, 1 / 3, 1e-300, 5e-324, 1e300])
def test_equal_weights_tie_what_hamming_distance_ties(weight):
    codes, queries = random_codes(2000, 24), random_codes(50, 24, seed=1)
    labels, query_labels = np.arange(2000) % 3, np.arange(50) % 3
    weighted = WeightedCodes(codes, np.full(24, weight))
    _, first = np.unique(queries.hamming(codes), return_inverse=True)
    _, second = np.unique(weighted.distances(queries), return_inverse=True)
    np.testing.assert_array_equal(first, second)
    plain = evaluate(queries, query_labels, codes, labels)
    assert evaluate(queries, query_labels, weighted, labels).map == pytest.approx(plain.map, 1e-12)


def test_sums_of_other_weights_tie_too():
    codes = Codes.from_signs([[-1, 1, 1, -1], [1, -1, -1, -1], [1, 1, 1, -1]])
    weighted = WeightedCodes(codes, [0.3, 0.1, 0.2, 0.7])
    near, same, far = weighted.distances(Codes.from_signs([[1, 1, 1, -1]]))[0]
    assert (near == same, far) == (True, 0)


def test_exact_sums_are_not_rounded():
    """The first bit has more weight than all others; the last bit still changes the distance."""
    codes = Codes.from_signs(1 - 2 * np.eye(52, dtype=int))
    weights = 2.0 ** np.arange(52)[::-1]
    found = WeightedCodes(codes, weights).distances(Codes.from_signs(np.ones((1, 52))))
    np.testing.assert_array_equal(found[0], weights)
    both = Codes.from_signs([[-1] + [1] * 51, [-1] + [1] * 50 + [-1]])
    one, other = WeightedCodes(both, weights).distances(both[:1])[0]
    assert (one, other) == (0, 1)


def test_weights_change_the_ranking():
    query = Codes.from_signs([[1, 1, 1]])
    codes = Codes.from_signs([[-1, 1, 1], [1, -1, -1]])
    assert evaluate(query, [1], codes, [0, 1]).map == 0.5
    assert evaluate(query, [1], WeightedCodes(codes, [3, 1, 1]), [0, 1]).map == 1


def test_invalid_weights_and_codes_are_refused(tmp_path):
    codes = random_codes(5, 4)
    for weights, message in [
        (np.ones(5), "codes of 4 bits need 4 weights"),
        ([1, 1, 1, -0.1], ">= 0"),
        ([1, 1, np.nan, 1], "finite"),
        ([1, 1, np.inf, 1], "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            WeightedCodes(codes, weights)
    weighted = WeightedCodes(codes, np.ones(4))
    assert (len(weighted), weighted.bits) == (5, 4)
    with pytest.raises(ValueError, match="codes of 6 bits with codes of 4 bits"):
        weighted.distances(random_codes(2, 6))
    with (
        Index.create(tmp_path / "photos.bp", bits=4) as index,
        pytest.raises(ValueError, match="expected Codes, got WeightedCodes"),
    ):
        index.add(range(5), weighted)
