"""Postpone the import of modules until they are used."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any

_LOCK = RLock()


def import_on_use(*names: str) -> None:
    """Import modules only when one of their attributes is used for the first time.

    For commands, not for the library: it applies to all packages of the process. Modules that are
    imported already, or are not installed, are left alone.

    Examples
    --------
    >>> import_on_use("xml.dom.pulldom")
    >>> import xml.dom.pulldom  # reads nothing yet
    >>> xml.dom.pulldom.START_ELEMENT
    'START_ELEMENT'
    """
    for name in names:
        if name not in sys.modules and find_spec(name) is not None:
            sys.modules[name] = _Postponed(name)


class _Postponed(ModuleType):
    def __getattr__(self, attribute: str) -> Any:
        name = self.__name__
        if attribute.startswith("__") and attribute != "__path__":
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        with _LOCK:
            if sys.modules.get(name) is self:
                del sys.modules[name]
            return getattr(import_module(name), attribute)
