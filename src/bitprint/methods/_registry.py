"""The registry: built-in and user-defined methods by name."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TypeVar

from bitprint.methods._base import Hasher

METHODS: dict[str, type[Hasher]] = {}

GROUPS = ("data-independent", "unsupervised", "supervised", "deep", "baseline")
"""Values of `Hasher.group` in the order of `list_methods`."""

_Class = TypeVar("_Class", bound=type[Hasher])


def list_methods() -> list[str]:
    """Return the names of all methods.

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
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"unknown method {name!r}{meant}; choose from {', '.join(METHODS)}")
    return METHODS[name]


def register_method(cls: _Class) -> _Class:
    """Register a method, so that `create`, `load` and the command line find it by name.

    Use it as a class decorator. The class must set `name`, without spaces or commas, and
    `supervision`; it may set `reference`, `title` and `group`. Running the definition of a class
    again, for example a notebook cell, replaces the registered class. A different class with the
    same name raises a ValueError.

    A built-in method needs no other registration: Bitprint finds the modules of `bitprint/methods`
    that contain this decorator directly above a `class` line.

    Parameters
    ----------
    cls : subclass of FeatureHasher or DeepHasher

    Returns
    -------
    type
        The same class.

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
        raise ValueError(f"a method must be a subclass of FeatureHasher or DeepHasher, got {cls!r}")
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
            f"{cls.__name__} needs another name: {name!r} is registered for "
            f"{known.__module__}.{known.__name__}"
        )
    _complete(cls)
    METHODS[name] = cls
    return cls


def sort_methods() -> None:
    """Sort the registered methods by group, year and title."""
    ordered = sorted(METHODS.values(), key=lambda c: (GROUPS.index(c.group), c.year, c.title))
    METHODS.clear()
    METHODS.update({cls.name: cls for cls in ordered})


def _complete(cls: type[Hasher]) -> None:
    """Set the title, group and year of a class where it has none."""
    if "title" not in vars(cls):
        cls.title = cls.__name__
    if not cls.group:
        cls.group = "supervised" if cls.supervision == "labels" else "unsupervised"
    if "year" not in vars(cls):
        found = re.search(r"\b\d{4}\b", cls.reference)
        cls.year = int(found.group()) if found else None


def _origin(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__
