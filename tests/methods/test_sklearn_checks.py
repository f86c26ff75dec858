"""scikit-learn's estimator checks for the methods that learn from features."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import bitprint as bp
from bitprint.methods import FeatureHasher, method

NAMES = [name for name in bp.list_methods() if issubclass(method(name), FeatureHasher)]
QUICK = {
    "fasth": {"trees": 5},
    "oph": {"epochs": 2, "partners": 20},
    "vdsh": {"iterations": 2, "width": 16},
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([bp.create(name, bits=2, **QUICK.get(name, {})) for name in NAMES])
def test_check_of_scikit_learn_passes(estimator, check):
    check(estimator)
