"""What every kind of fault has in common: rounds of faults, and what they were found to do."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, NamedTuple


class Round(NamedTuple):
    """What one round of a kind of fault did; what was violated is raised as an error instead."""

    faults: int
    """How many faults were injected."""
    checked: int
    """How many things that had been acknowledged were looked for afterwards, and found."""
    unnoticed: Mapping[str, int] = MappingProxyType({})
    """How many faults changed what is read without a word, by format without a checksum."""


class Kind:
    """One kind of fault.

    Parameters
    ----------
    folder : Path
        An empty folder to work in.
    rng : random.Random
        Decides everything that is left to chance, but for what the machine's timing adds; each
        round has its own.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    """Modules without which there are no rounds."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.rng = rng
        self.prepare()

    def prepare(self) -> None:
        """Make what all rounds share."""

    def strike(self) -> Round:
        """Inject faults and check what must hold; raises an error where it does not."""
        raise AssertionError(f"{self.name} has no faults")

    def close(self) -> None:
        """Stop what `prepare` started."""


def check(holds: bool, violation: str) -> None:
    """Raise an AssertionError that says what was violated, unless it holds."""
    if not holds:
        raise AssertionError(violation)
