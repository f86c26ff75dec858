"""Hashers in scikit-learn: pipelines, grid search, score, data frames, feature names."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import bitprint as bp
from bitprint.methods import FeatureHasher, method

RNG = np.random.default_rng(0)
CLASSES = np.arange(60) % 3
FEATURES = RNG.standard_normal((3, 20))[CLASSES] + 0.7 * RNG.standard_normal((60, 20))
NAMES = np.array(["cat", "ant", "bee"])[CLASSES]
SHALLOW = [name for name in bp.list_methods() if issubclass(method(name), FeatureHasher)]

QUICK = {"oph": {"epochs": 2}, "vdsh": {"iterations": 2}, "fasth": {"trees": 5}}
every_shallow = pytest.mark.parametrize("name", SHALLOW)


def create(name):
    return bp.create(name, 8, **QUICK.get(name, {}))


# ---- fit


@every_shallow
def test_fit_by_any_name_of_labels_is_the_same(name):
    expected = create(name).fit(FEATURES, CLASSES).encode(FEATURES)
    assert create(name).fit(X=FEATURES, y=CLASSES).encode(FEATURES) == expected
    with pytest.warns(DeprecationWarning, match="pass the labels as y") as caught:
        assert create(name).fit(FEATURES, labels=CLASSES).encode(FEATURES) == expected
    assert caught[0].filename == __file__


@every_shallow
def test_fit_transform_gives_the_codes(name):
    signs = create(name).fit_transform(FEATURES, CLASSES)
    expected = create(name).fit(FEATURES, CLASSES).encode(FEATURES).signs()
    np.testing.assert_array_equal(signs, expected)


def test_fit_with_labels_twice_is_refused():
    with pytest.raises(ValueError, match="labels are given twice, as y and as labels"):
        bp.create("sdh", 8).fit(FEATURES, CLASSES, labels=CLASSES)


@pytest.mark.parametrize("labels", [NAMES, NAMES.tolist(), NAMES.astype(object)])
def test_fit_with_names_is_fit_with_their_numbers(labels):
    numbers = np.array([2, 0, 1])[CLASSES]  # alphabetical: ant, bee, cat
    expected = bp.create("sdh", 8).fit(FEATURES, numbers).encode(FEATURES)
    assert bp.create("sdh", 8).fit(FEATURES, labels).encode(FEATURES) == expected


def test_fit_with_numbers_as_objects_is_fit_with_numbers():
    expected = bp.create("sdh", 8).fit(FEATURES, CLASSES).encode(FEATURES)
    hasher = bp.create("sdh", 8).fit(FEATURES.astype(object), CLASSES.astype(object))
    assert hasher.encode(FEATURES) == expected


@pytest.mark.parametrize("missing", [None, np.nan, 3])
def test_fit_with_names_and_something_else_is_refused(missing):
    labels = NAMES.astype(object)
    labels[5] = missing
    with pytest.raises(ValueError, match="label 5 is"):
        bp.create("sdh", 8).fit(FEATURES, labels)


def test_fit_with_words_as_features_is_refused():
    with pytest.raises(ValueError, match=r"features must be numbers: could not convert .*'red'"):
        bp.create("itq", 2).fit(np.array([[1.0, "red"], [2.0, "blue"]], object))


# ---- score


def loops(queries, codes, labels):
    """Return the leave-one-out MAP, averaged over many random orders of ties."""
    rng = np.random.default_rng(1)
    found = []
    for i in range(len(labels)):
        others = np.delete(np.arange(len(labels)), i)
        distances = (queries[i] != codes[others]).sum(axis=1)
        for _ in range(100):
            order = np.lexsort([rng.random(len(others)), distances])
            relevant = labels[others[order]] == labels[i]
            ranks = np.flatnonzero(relevant) + 1
            found.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    return np.mean(found)


@pytest.mark.parametrize("name", ["itq", "nmlsh"])
def test_score_is_map_without_the_item_itself(name):
    hasher = bp.create(name, 12).fit(FEATURES)
    codes = hasher.encode(FEATURES).signs()
    queries = hasher.encode_queries(FEATURES).signs()
    assert np.any(queries != codes) == (name == "nmlsh")
    expected = loops(queries, codes, CLASSES)
    assert hasher.score(FEATURES, CLASSES) == pytest.approx(expected, abs=2e-3)
    assert hasher.score(FEATURES, NAMES) == hasher.score(FEATURES, CLASSES)


def test_score_of_quantised_codes_is_by_their_distances():
    hasher = bp.create("dqn", 8, epochs=1).fit(FEATURES, CLASSES)
    found = []
    for i in range(60):
        others = np.delete(np.arange(60), i)
        report = bp.evaluate(
            hasher.encode_queries(FEATURES[i : i + 1]),
            CLASSES[i : i + 1],
            hasher.encode(FEATURES[others]),
            CLASSES[others],
        )
        found.append(report.map)
    assert hasher.score(FEATURES, CLASSES) == pytest.approx(np.mean(found), abs=1e-9)


def test_score_of_an_image_set_uses_its_labels():
    pixels = RNG.integers(0, 256, (30, 4, 4, 3), np.uint8)
    labels = np.arange(30) % 3
    hasher = bp.create("lsh", 8).fit(bp.ImageSet(pixels))
    score = hasher.score(bp.ImageSet(pixels, labels=labels))
    assert score == hasher.score(pixels.reshape(30, -1) / 255, labels)
    assert hasher.score(bp.ImageSet(pixels, labels=labels), np.sort(labels)) != score


def test_score_without_labels_is_refused():
    hasher = bp.create("lsh", 8).fit(FEATURES)
    with pytest.raises(ValueError, match="score needs labels; pass them as y"):
        hasher.score(FEATURES)
    with pytest.raises(ValueError, match="60 images but 59 labels"):
        hasher.score(FEATURES, CLASSES[:-1])


# ---- pipelines and search


def test_grid_search_chooses_the_option_with_the_best_score():
    search = GridSearchCV(bp.create("itq", bits=8), {"iterations": [5, 50]}, cv=3).fit(
        FEATURES, CLASSES
    )
    parts = np.split(np.arange(60), 3)  # in order, each with all classes
    for at, iterations in enumerate([5, 50]):
        scores = []
        for part in parts:
            rest = np.setdiff1d(np.arange(60), part)
            hasher = bp.create("itq", bits=8, iterations=iterations).fit(FEATURES[rest])
            scores.append(hasher.score(FEATURES[part], CLASSES[part]))
        assert search.cv_results_["mean_test_score"][at] == pytest.approx(np.mean(scores))
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()


def test_grid_search_over_a_pipeline_takes_names_as_labels():
    pipeline = Pipeline([("scale", StandardScaler()), ("hash", bp.create("sdh", bits=4))])
    options = {"hash__bits": [1, 16], "scale__with_mean": [True, False]}
    folds = StratifiedKFold(3)
    search = GridSearchCV(pipeline, options, cv=folds, error_score="raise").fit(FEATURES, NAMES)
    assert search.best_params_["hash__bits"] == 16
    scaled = search.best_estimator_["scale"].transform(FEATURES)
    expected = search.best_estimator_["hash"].score(scaled, CLASSES)
    assert search.score(FEATURES, NAMES) == expected


@every_shallow
def test_clone_has_the_options_and_nothing_learned(name):
    hasher = create(name).set_params(bits=5).fit(FEATURES, CLASSES)
    twin = clone(hasher)
    assert twin.get_params() == hasher.get_params()
    assert twin.bits == 5
    assert not [each for each in vars(twin) if each.endswith("_")]


# ---- data frames


@pytest.fixture
def frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(FEATURES, columns=[f"f{column}" for column in range(20)])


def test_names_of_columns_are_saved_and_compared(frame, tmp_path):
    hasher = bp.create("itq", 8).fit(frame)
    hasher.save(tmp_path)
    for fitted in (hasher, bp.load(tmp_path)):
        assert fitted.feature_names_in_.tolist() == frame.columns.tolist()
        assert fitted.encode(frame) == hasher.encode(frame)
        with pytest.raises(ValueError, match="feature names should match"):
            fitted.encode(frame[frame.columns[::-1]])
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            fitted.encode(FEATURES)
    assert not hasattr(hasher.fit(FEATURES), "feature_names_in_")


def test_output_as_a_frame_names_the_bits(frame):
    hasher = bp.create("itq", 3).fit(frame).set_output(transform="pandas")
    signs = hasher.transform(frame)
    assert signs.columns.tolist() == ["itq0", "itq1", "itq2"]
    np.testing.assert_array_equal(signs.to_numpy(), hasher.encode(frame).signs())


def test_a_failed_fit_leaves_the_learned_columns(frame):
    hasher = bp.create("itq", 8).fit(frame)
    codes = hasher.encode(frame)
    with pytest.raises(ValueError, match="bits must be at most the number of features"):
        hasher.fit(FEATURES[:, :5])
    assert hasher.encode(frame) == codes


def test_transform_to_codes_that_are_no_signs_is_refused():
    hasher = bp.create("dqn", 8, epochs=1).fit(FEATURES, CLASSES)
    with pytest.raises(ValueError, match="codes of dqn are not binary; use encode or project"):
        hasher.transform(FEATURES)
