"""Validate the options of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import torch
from torch import nn

# Accepted types per annotation, including NumPy scalars.
_ACCEPTED: dict[Any, Any] = {bool: (bool, np.bool_), int: Integral, float: Real}
_IN_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Callable: "a function",
    nn.Module: "a torch module",
    torch.device: "a torch device",
}


def check_names(method: str, options: Mapping[str, Any], known: set[str]) -> None:
    """Raise a ValueError for an unknown option, with a suggestion."""
    for name in (name for name in options if name not in known):
        listed = sorted(known - {"training"})  # for programs only
        near = get_close_matches(name, listed, n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(
            f"{method}: unknown option {name!r}{meant}; choose from {', '.join(listed)}"
        )


def check_kinds(method: str, options: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Raise a ValueError for a value whose type does not match the annotation of its option.

    Examples
    --------
    >>> check_kinds("dsdh", {"eta": 1, "mu": None}, {"eta": float, "mu": float | None})
    >>> check_kinds("itq", {"iterations": "x"}, {"iterations": int})
    Traceback (most recent call last):
    ValueError: itq: iterations must be an integer, got 'x'
    """
    for name, value in options.items():
        alternatives = _alternatives(kinds[name])
        named = [kind for kind in alternatives if kind is not NoneType]
        if not all(kind in _IN_WORDS for kind in named):
            continue  # the method checks other types
        if not any(_is_a(value, kind) for kind in alternatives):
            words = " or ".join(_IN_WORDS[kind] for kind in named)
            raise ValueError(f"{method}: {name} must be {words}, got {value!r}")


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types that an annotation allows; for a Literal, the type of its values."""
    several = get_origin(annotation) in (Union, UnionType)
    parts = get_args(annotation) if several else (annotation,)
    return [
        type(get_args(part)[0]) if get_origin(part) is Literal else get_origin(part) or part
        for part in parts
    ]


def _is_a(value: Any, kind: Any) -> bool:
    # bool is a subclass of int.
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, _ACCEPTED.get(kind, kind))
