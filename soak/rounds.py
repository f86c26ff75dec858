"""Base class of all kinds of faults, and the result of one round."""

from __future__ import annotations

import random
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple


class Round(NamedTuple):
    """Result of one round without a violation; violations are raised as errors."""

    faults: int
    """Number of injected faults."""
    checked: int
    """Number of acknowledged items that were found after the faults."""
    unnoticed: Mapping[str, int] = MappingProxyType({})
    """Number of faults that silently changed the content read, by format without a checksum."""


class FaultKind:
    """One kind of fault.

    Parameters
    ----------
    folder : Path
        An empty folder for temporary files.
    rng : random.Random
        Source of all random choices, different in each round. The timing of the machine remains
        random.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Required modules; the kind is skipped without them."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.prepare()

    @classmethod
    def missing(cls) -> list[str]:
        """Return what is required and not installed."""
        return [name for name in cls.needs if find_spec(name) is None]

    def prepare(self) -> None:
        """Create the state shared by all rounds."""

    def inject(self) -> Round:
        """Inject faults and check the invariants; raise AssertionError if one is violated."""
        raise AssertionError(f"{self.name} has no faults")

    def close(self) -> None:
        """Stop what `prepare` started."""


def check(holds: bool, violation: str) -> None:
    """Raise AssertionError with the message `violation` unless the condition holds."""
    if not holds:
        raise AssertionError(violation)
