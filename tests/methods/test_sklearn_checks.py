"""scikit-learn's own checks of an estimator, on the methods that learn from features."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import bitprint as bp
from bitprint.methods import FeatureHasher, method

NAMES = [name for name in bp.list_methods() if issubclass(method(name), FeatureHasher)]
QUICK = {"fasth": {}, "oph": {}, "vdsh": {}}
EXPECTED = {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [bp.create(name, bits=2, **QUICK.get(name, {})) for name in NAMES],
    expected_failed_checks=lambda hasher: EXPECTED,
    xfail_strict=True,
)
def test_check_of_scikit_learn_passes(estimator, check):
    check(estimator)
