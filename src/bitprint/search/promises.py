"""What an index promises: each back-end lists its promises, and one contract test checks them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Protocol


class Promise(Enum):
    """A promise of an index; its value is the row of the table in `docs/scale.md`.

    Examples
    --------
    >>> import bitprint as bp
    >>> Promise.TRANSACTIONS in bp.Index.promises
    True
    """

    EXACT = "results are exact, and ties are in insertion order"
    DURABLE = "a finished call survives a killed process"
    VISIBLE = "every later call sees a finished call"
    REPEATABLE = "repeating an interrupted `add` completes it"
    ATOMIC = "a killed process leaves no part of an unfinished call"
    ISOLATED = "a search sees no part of an unfinished call"
    TRANSACTIONS = "`transaction()` groups several calls"
    SHARED = "several processes can use it at the same time"


class Grouping(Protocol):
    """An index, as far as `grouped` uses it."""

    @property
    def promises(self) -> frozenset[Promise]:
        """What the index promises."""

    def transaction(self) -> AbstractContextManager[None]:
        """Group calls."""


def grouped(index: Grouping) -> AbstractContextManager[None]:
    """Group calls in a `with` statement, but only if the index has transactions.

    Without transactions, an error or an interruption leaves the effects of the earlier calls. Use
    it only for calls that can be repeated.
    """
    return index.transaction() if Promise.TRANSACTIONS in index.promises else nullcontext()
