"""The registry: methods by name, those of the package and those that users add."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TypeVar

from bitprint.methods._base import Hasher

METHODS: dict[str, type[Hasher]] = {}

_Class = TypeVar("_Class", bound=type[Hasher])


def list_methods() -> list[str]:
    """Names of all methods.

    Examples
    --------
    >>> "dsdh" in list_methods()
    True
    """
    return list(METHODS)


def method(name: str) -> type[Hasher]:
    """Return the class of a method.

    Examples
    --------
    >>> method("itq").reference
    'Gong and Lazebnik, CVPR 2011'
    """
    if name not in METHODS:
        near = get_close_matches(str(name).lower(), METHODS, n=1)
        meant = f" (is {near[0]} meant?)" if near else ""
        raise ValueError(f"unknown method {name!r}{meant}; there are {', '.join(METHODS)}")
    return METHODS[name]


def register_method(cls: _Class) -> _Class:
    """Make a method available by its name: to `create`, `load` and the command line.

    Use it as a decorator. The class sets `name`, without spaces or commas, and `supervision`, and
    may set `reference`. A class that is defined again, as when a cell of a notebook runs twice,
    replaces the earlier one; any other class of the same name is refused.

    Parameters
    ----------
    cls : subclass of FeatureHasher or DeepHasher

    Returns
    -------
    type
        The class itself.

    Examples
    --------
    >>> from bitprint.methods import FeatureHasher, create
    >>> @register_method
    ... class FirstColumns(FeatureHasher):
    ...     name, supervision = "first-columns", "none"
    ...
    ...     def __init__(self, bits):
    ...         self.bits = bits
    ...
    ...     def _fit(self, features, labels):
    ...         self.means_ = features[:, : self.bits].mean(axis=0)
    ...
    ...     def _project(self, features):
    ...         return features[:, : self.bits] - self.means_
    >>> create("first-columns", bits=2).fit([[0, 2], [4, 6]]).transform([[3, 3]]).tolist()
    [[1, -1]]
    """
    if not (isinstance(cls, type) and issubclass(cls, Hasher)):
        raise ValueError(f"a method is a subclass of FeatureHasher or DeepHasher, got {cls!r}")
    name, supervision = getattr(cls, "name", None), getattr(cls, "supervision", None)
    if not isinstance(name, str) or not re.fullmatch(r"[^\s,]+", name):
        raise ValueError(
            f"{cls.__name__} needs a name without spaces or commas, such as name = "
            f"{cls.__name__.lower()!r}, got {name!r}"
        )
    if supervision not in ("none", "labels"):
        raise ValueError(
            f"{cls.__name__} needs supervision = 'none' or supervision = 'labels', "
            f"got {supervision!r}"
        )
    known = METHODS.get(name)
    if known is not None and _origin(known) != _origin(cls):
        raise ValueError(
            f"{cls.__name__} needs another name: {name!r} is {known.__module__}.{known.__name__}"
        )
    METHODS[name] = cls
    return cls


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
