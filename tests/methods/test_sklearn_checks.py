"""scikit-learn's own checks of an estimator, on the methods that learn from features."""

import pytest
from sklearn.utils.estimator_checks import check_estimator

import bitprint as bp

# Those that take long on the many tiny sets of the checks are left out: fasth, oph, vdsh.
METHODS = ["lsh", "sblsh", "klsh", "nmlsh", "sh", "itq", "bre", "ksh", "splh", "lfh", "sdh"]

WORDING = "refused, in a sentence of our own"
NOT_OURS = {
    "check_fit_score_takes_y": "labels are called labels, as in all of Bitprint",
    "check_transformer_preserve_dtypes": "codes are -1 and +1 in int8, whatever the features are",
    "check_dtype_object": "features are numbers",
    "check_n_features_in_after_fitting": WORDING,
    "check_complex_data": WORDING,
    "check_estimators_empty_data_messages": WORDING,
    "check_fit2d_predict1d": WORDING,
    "check_fit2d_1sample": WORDING,
    "check_fit2d_1feature": WORDING,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", METHODS)
def test_the_checks_of_scikit_learn(name):
    results = check_estimator(bp.create(name, bits=2), on_fail=None, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed <= set(NOT_OURS)
    assert len(results) - len(failed) > 35
