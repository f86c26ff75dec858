"""The contract of all methods that learn from features, with regular and unusual data."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bitprint as bp
from bitprint.evaluation import evaluate
from bitprint.methods import FeatureHasher, method

RNG = np.random.default_rng(0)
LABELS = np.arange(90) % 3
CENTRES = RNG.standard_normal((3, 40))
FEATURES = (CENTRES[LABELS] + 0.7 * RNG.standard_normal((90, 40))).astype(np.float32)

LEARN_FROM_FEATURES = [
    name for name in bp.list_methods() if issubclass(method(name), FeatureHasher)
]
every_method = pytest.mark.parametrize("name", LEARN_FROM_FEATURES)


@every_method
def test_neighbors_are_mostly_of_the_same_class(name):
    hasher = bp.create(name, 24).fit(FEATURES[::2], LABELS[::2])
    queries = hasher.encode_queries(FEATURES[1::2])
    report = evaluate(queries, LABELS[1::2], hasher.encode(FEATURES[::2]), LABELS[::2])
    assert report.map > 0.5


@every_method
@pytest.mark.parametrize("bits", [1, 40, 128])
def test_any_number_of_bits_or_an_error(name, bits):
    hasher = bp.create(name, bits)
    if name in ("itq", "nested-itq", "pcah", "pca-rr") and bits > FEATURES.shape[1]:
        with pytest.raises(ValueError, match="bits must be at most the number of features"):
            hasher.fit(FEATURES, LABELS)
    else:
        assert hasher.fit(FEATURES, LABELS).encode(FEATURES).bits == bits


@every_method
def test_float32_and_float64_give_the_same_codes(name):
    double = bp.create(name, 12).fit(FEATURES.astype(np.float64), LABELS)
    assert double.encode(FEATURES) == bp.create(name, 12).fit(FEATURES, LABELS).encode(FEATURES)


@every_method
def test_several_labels_per_image(name):
    matrix = np.eye(3, dtype=int)[LABELS]
    matrix[::5, 0] = 1
    assert len(bp.create(name, 12).fit(FEATURES, matrix).encode(FEATURES)) == 90


@every_method
def test_class_names_are_learned_as_their_numbers(name):
    few, labels = FEATURES[:30], LABELS[:30]
    names = [["ant", "bee", "cat"][label] for label in labels]
    by_number, by_name = (bp.create(name, 4).fit(few, each) for each in (labels, names))
    assert by_name.encode(FEATURES) == by_number.encode(FEATURES)


@every_method
def test_equal_rows_get_equal_codes(name):
    twice = np.concatenate([FEATURES, FEATURES])
    codes = bp.create(name, 12).fit(twice, np.tile(LABELS, 2)).encode(twice)
    assert codes[:90] == codes[90:]


@every_method
def test_constant_features_are_refused_or_give_one_code(name):
    constant = np.ones((20, 30), np.float32)
    hasher = bp.create(name, 8)
    if name == "ksh":
        with pytest.raises(ValueError, match="all training rows have the same features"):
            hasher.fit(constant, LABELS[:20])
    else:
        codes = hasher.fit(constant, LABELS[:20]).encode(constant)
        assert len(np.unique(codes.packed, axis=0)) == 1
        assert np.isfinite(hasher.project(constant)).all()


@every_method
def test_fewer_rows_than_bits(name):
    hasher = bp.create(name, 32).fit(FEATURES[:9], LABELS[:9])
    outputs = hasher.project(FEATURES)
    assert outputs.shape == (90, 32)
    assert np.isfinite(outputs).all()


@every_method
def test_a_step_of_a_pipeline(name):
    pipeline = make_pipeline(StandardScaler(), bp.create(name, 12))
    signs = pipeline.fit(FEATURES, LABELS).transform(FEATURES)
    scaled = StandardScaler().fit_transform(FEATURES)
    expected = bp.create(name, 12).fit(scaled, LABELS).encode(scaled).signs()
    np.testing.assert_array_equal(signs, expected)
