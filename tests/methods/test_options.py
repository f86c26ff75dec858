from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

from bitprint.methods._options import check_kinds

Kernel = Callable[[float], float]


@pytest.mark.parametrize(
    ("kind", "right", "wrong", "words"),
    [
        (int, [3, -1, np.int64(3)], ["3", 3.0, True, None, np.float32(3)], "an integer"),
        (float, [3, 0.5, np.float32(3), np.int8(3)], ["3", False, None, [3], 1j], "a number"),
        (bool, [True, False, np.True_], [0, 1, "true", None], "true or false"),
        (str, ["", "a"], [1, b"a", None, True], "a string"),
        (int | None, [3, None], ["x", True, 0.5], "an integer"),
        (float | None, [3, 0.5, None], ["x", True, []], "a number"),
        (Literal["a", "b"], ["a", "else"], [1, ["a"], {}, None], "a string"),
        (str | Kernel, ["rbf", abs], [1, None, []], "a string or a function"),
    ],
)
def test_a_value_is_of_the_kind_that_is_annotated(kind, right, wrong, words):
    for value in right:
        check_kinds("mine", {"option": value}, {"option": kind})
    for value in wrong:
        with pytest.raises(ValueError, match=f"^mine: option must be {words}, got "):
            check_kinds("mine", {"option": value}, {"option": kind})


@pytest.mark.parametrize("kind", [object, Any, list[int], dict | None, "later", np.ndarray])
def test_other_kinds_are_left_to_the_method(kind):
    for value in (1, True, None, "x", [1]):
        check_kinds("mine", {"option": value}, {"option": kind})
