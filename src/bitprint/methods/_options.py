"""Options of methods, checked before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import torch
from torch import nn

# What an annotation takes: NumPy's numbers too, and a whole number where any will do.
_TAKEN: dict[Any, Any] = {bool: (bool, np.bool_), int: Integral, float: Real}
_IN_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Callable: "a function",
    nn.Module: "a torch module",
    torch.device: "a torch device",
}


def check_names(method: str, options: Mapping[str, Any], known: set[str]) -> None:
    """Refuse an option that a method does not have, and name the one that may be meant."""
    for name in (name for name in options if name not in known):
        listed = sorted(known - {"training"})  # for programs, which know it
        near = get_close_matches(name, listed, n=1)
        meant = f" (is {near[0]} meant?)" if near else ""
        raise ValueError(
            f"{method}: there is no option {name!r}{meant}; its options are {', '.join(listed)}"
        )


def check_kinds(method: str, options: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
    """Refuse a value that is not of the kind which the annotation of its option says.

    Examples
    --------
    >>> check_kinds("dsdh", {"eta": 1, "mu": None}, {"eta": float, "mu": float | None})
    >>> check_kinds("itq", {"iterations": "x"}, {"iterations": int})
    Traceback (most recent call last):
    ValueError: itq: iterations must be a whole number, got 'x'
    """
    for name, value in options.items():
        alternatives = _alternatives(kinds[name])
        named = [kind for kind in alternatives if kind is not NoneType]
        if not all(kind in _IN_WORDS for kind in named):
            continue  # a method may take what is not known here
        if not any(_is_a(value, kind) for kind in alternatives):
            words = " or ".join(_IN_WORDS[kind] for kind in named)
            raise ValueError(f"{method}: {name} must be {words}, got {value!r}")


def _alternatives(annotation: Any) -> list[Any]:
    """The types that an annotation allows: of a choice, the type of its members."""
    several = get_origin(annotation) in (Union, UnionType)
    parts = get_args(annotation) if several else (annotation,)
    return [
        type(get_args(part)[0]) if get_origin(part) is Literal else get_origin(part) or part
        for part in parts
    ]


def _is_a(value: Any, kind: Any) -> bool:
    # To Python, true and false are numbers.
    if isinstance(value, bool) and kind is not bool:
        return False
    return isinstance(value, _TAKEN.get(kind, kind))
