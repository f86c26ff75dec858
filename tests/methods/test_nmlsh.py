import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.exceptions import NotFittedError

from bitprint.methods._store import read_model
from bitprint.methods.nmlsh import NMLSH, cell_width

SIGNATURE = np.array([1, 1, 1, -1, -1.0])


def krein(rows, landmarks):
    """A similarity with two known negative directions."""
    return rows * SIGNATURE @ landmarks.T


def normal(samples=60, width=5, seed=0):
    return np.random.default_rng(seed).standard_normal((samples, width)).astype(np.float32)


def whitened(samples=100, width=5):
    """Centered, uncorrelated columns, so that positive and negative parts are columns."""
    rows = normal(samples, width).astype(np.float64)
    return 10 * np.linalg.qr(rows - rows.mean(axis=0)).Q


def angles(inner, lengths):
    return np.arccos(np.clip(inner / lengths[:, None] / lengths, -1, 1))


def centred_gram(hasher):
    rows = hasher.landmarks_.astype(np.float64)
    rows = rows - rows.mean(axis=0)
    if hasher.kernel == "sigmoid":
        gram = np.array([[np.tanh(x @ z / hasher.variance_) for z in rows] for x in rows])
    elif hasher.kernel == "rbf":
        gram = np.array(
            [[np.exp(-((x - z) ** 2).sum() / (2 * hasher.variance_)) for z in rows] for x in rows]
        )
    elif hasher.kernel == "linear":
        gram = rows @ rows.T
    else:
        gram = hasher.kernel(rows, rows)
    return gram - gram.mean(axis=0) - gram.mean(axis=1, keepdims=True) + gram.mean()


def shares(first, second):
    return first.hamming(second) / first.bits


@pytest.mark.parametrize("kernel", ["sigmoid", "rbf", "linear", krein])
def test_embedding_reproduces_the_similarity(kernel):
    hasher = NMLSH(4, kernel=kernel)
    values, vectors = hasher._fit_landmarks(normal(), tolerance=1e-6, rng=np.random.default_rng(0))
    gram = centred_gram(hasher)
    embedded = gram @ (vectors / np.sqrt(np.abs(values)))
    largest = np.abs(np.linalg.eigvalsh(gram)).max()
    # The omitted part is at most the tolerance.
    np.testing.assert_allclose(
        (embedded * np.sign(values)) @ embedded.T, gram, atol=1.01e-6 * largest
    )


@pytest.mark.parametrize("kernel", ["sigmoid", "rbf", krein])
def test_bits_of_query_and_database_follow_the_similarity(kernel):
    """P[differ] = arccos(k / (|x| |y|)) / pi, with the length of both parts together."""
    bits = 4096
    hasher = NMLSH(bits, kernel=kernel).fit(normal(100))
    gram = centred_gram(hasher)
    values, vectors = np.linalg.eigh(gram)
    lengths = np.sqrt(np.diag((vectors * np.abs(values)) @ vectors.T))
    expected = angles(gram, lengths) / np.pi
    queries, database = (
        hasher.encode_queries(hasher.landmarks_),
        hasher.encode(hasher.landmarks_),
    )
    share = shares(queries, database)
    assert np.abs(share - expected).max() < 5 * np.sqrt(0.25 / bits)
    pairs = np.triu_indices(100, k=1)
    assert spearmanr(share[pairs], expected[pairs]).statistic > 0.99


def test_only_database_codes_flip_the_similarity():
    bits = 4096
    features = whitened()
    hasher = NMLSH(bits, kernel=krein).fit(features)
    assert hasher.negative_ == 2
    lengths = np.linalg.norm(features, axis=1)
    flipped = angles(features @ features.T, lengths) / np.pi
    indefinite = angles(krein(features, features), lengths) / np.pi
    database, queries = hasher.encode(features), hasher.encode_queries(features)
    bound = 5 * np.sqrt(0.25 / bits)
    assert np.abs(shares(database, database) - flipped).max() < bound
    assert np.abs(shares(queries, queries) - flipped).max() < bound
    assert np.abs(shares(queries, database) - indefinite).max() < bound
    assert np.abs(flipped - indefinite).max() > 0.5


@pytest.mark.parametrize("rule", ["asymmetric", "p-stable"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_without_a_negative_part_queries_are_like_the_database(kernel, rule):
    features = normal(400, 3)
    hasher = NMLSH(64, kernel=kernel, rule=rule).fit(features)
    assert hasher.negative_ == 0
    assert hasher.encode_queries(features) == hasher.encode(features)


def test_sigmoid_is_indefinite_wherever_the_mean_is():
    features = normal(200, 6)
    hasher = NMLSH(64).fit(features)
    assert hasher.negative_ > 0
    assert hasher.encode_queries(features) != hasher.encode(features)
    moved = NMLSH(64).fit(features + 100)
    np.testing.assert_allclose(moved.project(features + 100), hasher.project(features), atol=0.01)


# ---- the p-stable rule


def parity_differs(distance):
    """P[floor(a x + b) and floor(a y + b) differ in parity] at |x - y| = distance, by quadrature.

    For a difference u, the probability of a boundary between them is a triangle wave, period 2.
    """
    gauss = np.linspace(0, 8, 1001)
    shift = np.multiply.outer(distance, gauss) % 2
    density = np.exp(-(gauss**2) / 2) * np.sqrt(2 / np.pi)
    return np.trapezoid(np.minimum(shift, 2 - shift) * density, gauss, axis=-1)


def test_p_stable_bits_measure_the_two_distances():
    bits = 4096
    features = whitened(40)
    hasher = NMLSH(bits, kernel=krein, rule="p-stable").fit(features)
    signs, asked = hasher.encode(features).signs(), hasher.encode_queries(features).signs()
    half = bits // 2
    np.testing.assert_array_equal(asked[:, :half], signs[:, :half])
    np.testing.assert_array_equal(asked[:, half:], -signs[:, half:])

    distances = np.linalg.norm(features[:, None] - features, axis=2)
    width = 4 * np.median(distances[np.triu_indices(40, k=1)])
    parts = {
        "positive": (slice(0, 3), slice(0, half)),
        "negative": (slice(3, 5), slice(half, bits)),
    }
    differing = {}
    for part, (columns, codes) in parts.items():
        gaps = np.linalg.norm(features[:, None, columns] - features[:, columns], axis=2)
        differing[part] = (signs[:, None, codes] != signs[:, codes]).sum(axis=2)
        deviation = np.abs(differing[part] / half - parity_differs(gaps / width))
        assert deviation.max() < 5 * np.sqrt(0.25 / half)
    distances = hasher.encode_queries(features).hamming(hasher.encode(features))
    np.testing.assert_array_equal(distances, differing["positive"] - differing["negative"] + half)


def test_p_stable_distance_grows_with_the_non_metric_distance():
    features = normal(100)
    hasher = NMLSH(4096, kernel=krein, rule="p-stable").fit(features)
    gram = centred_gram(hasher)
    squared = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    rows = hasher.landmarks_
    pairs = np.triu_indices(100, k=1)
    measured = hasher.encode_queries(rows).hamming(hasher.encode(rows))[pairs]
    order = np.argsort(squared[pairs])
    means = [measured[block].mean() for block in np.array_split(order, 10)]
    assert np.all(np.diff(means) > 0)


@pytest.mark.parametrize(("bits", "negative"), [(1, 0), (2, 1), (7, 3), (12, 6)])
def test_half_of_the_bits_are_of_the_negative_part(bits, negative):
    features = normal()
    hasher = NMLSH(bits, kernel=krein, rule="p-stable").fit(features)
    differ = hasher.encode_queries(features).signs() != hasher.encode(features).signs()
    np.testing.assert_array_equal(differ.all(axis=0), np.arange(bits) >= bits - negative)
    np.testing.assert_array_equal(differ.any(axis=0), differ.all(axis=0))


def test_a_negative_similarity_has_negative_bits_only():
    features = normal()
    hasher = NMLSH(8, kernel=lambda x, z: -x @ z.T, rule="p-stable").fit(features)
    assert np.all(hasher.encode_queries(features).signs() == -hasher.encode(features).signs())


def test_cell_width_is_four_median_distances():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    assert cell_width(points) == pytest.approx(4 * np.sqrt(18))  # of 1, sqrt(18) and 5
    assert cell_width(points[:1]) == 1
    assert cell_width(np.zeros((4, 2))) == 1


# ---- saving, options, unusual data


@pytest.mark.parametrize("rule", ["asymmetric", "p-stable"])
def test_both_roles_survive_saving(rule, tmp_path):
    features = normal()
    hasher = NMLSH(24, rule=rule).fit(features)
    hasher.save(tmp_path)
    document, arrays = read_model(tmp_path)
    twin = NMLSH(**document["options"])
    twin._restore(arrays, document["fitted"])
    assert twin.encode(features) == hasher.encode(features)
    assert twin.encode_queries(features) == hasher.encode_queries(features)


def test_kernel_function_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="cannot be saved; use one of sigmoid, rbf, linear"):
        NMLSH(4, kernel=krein).fit(normal()).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_queries_are_checked_like_the_database():
    with pytest.raises(NotFittedError):
        NMLSH(4).encode_queries(normal())
    hasher = NMLSH(4).fit(normal())
    with pytest.raises(ValueError, match=r"4 features.*expecting 5"):
        hasher.encode_queries(normal(width=4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "symmetric"}, "nmlsh: rule must be asymmetric or p-stable, got 'symmetric'"),
        ({"kernel": "cosine"}, "nmlsh: kernel must be sigmoid, rbf, linear or a function"),
        ({"variance": -1.0}, "variance must be positive"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        NMLSH(8, **options).fit(normal())


def test_longer_codes_begin_with_shorter_ones_and_seed_decides():
    features = normal()
    short, long, other = (
        NMLSH(bits, seed=seed).fit(features).encode_queries(features).signs()
        for bits, seed in ((12, 7), (64, 7), (12, 8))
    )
    np.testing.assert_array_equal(short, long[:, :12])
    assert np.any(short != other)


@pytest.mark.parametrize("rule", ["asymmetric", "p-stable"])
@pytest.mark.parametrize("kernel", ["sigmoid", "rbf", "linear"])
@pytest.mark.parametrize("samples", [1, 2, 40])
def test_constant_features_get_one_code(kernel, rule, samples):
    features = np.full((samples, 5), 0.1)
    hasher = NMLSH(128, kernel=kernel, rule=rule).fit(features)
    codes = hasher.encode(features)
    assert not codes.hamming(codes).any()
    assert hasher.encode_queries(features) == codes


def test_duplicates_and_fewer_samples_than_bits():
    features = np.repeat(normal(4, 6), 3, axis=0)
    hasher = NMLSH(128).fit(features)
    assert len(np.unique(hasher.encode(features).packed, axis=0)) == 4
    assert np.isfinite(hasher.project(normal(50, 6, seed=3))).all()
