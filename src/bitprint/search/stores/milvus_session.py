"""The connection of one index to Milvus: whose turn it is to write, and what readers see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bitprint.search.stores.milvus_connection import Address, disconnect
from bitprint.search.stores.milvus_rows import Rows
from bitprint.search.stores.milvus_states import States, View

_MOST_ATTEMPTS = 100

Answer = TypeVar("Answer")


class Session:
    """An open index: its state when last seen, and the draft of the thread that writes."""

    def __init__(self, rows: Rows, address: Address) -> None:
        self.rows = rows
        self.address = address
        self.states = States(rows)
        self._view = self.states.view()
        self._lock = threading.RLock()
        self._draft: View | None = None
        self._writer = 0  # the thread whose draft it is
        self._spoilt = False
        self._closed = False
        self.header = self._view.header

    def close(self) -> None:
        """Close the connection, once."""
        with self._lock:
            if not self._closed:
                self._closed = True
                disconnect(self.rows.client, self.address)

    def check_open(self) -> None:
        """Raise a ValueError if the index is closed."""
        if self._closed:
            raise ValueError(f"{self.address.shown}: the index is closed; open it again")

    @property
    def draft(self) -> View | None:
        """What this thread has written and not committed."""
        return self._draft if self._writer == threading.get_ident() else None

    def write(self, draft: View) -> None:
        """Go on with another draft; inside of `writing`."""
        self._draft = draft

    @contextmanager
    def writing(self) -> Iterator[View]:
        """Hold the index with a draft of its next state, and commit it; nested, be a part of it."""
        with self._lock:
            self.check_open()
            if self._draft is not None:
                try:
                    yield self._draft
                except BaseException:
                    self._spoilt = True
                    raise
                return
            self._draft, self._writer = self.states.begin(), threading.get_ident()
            self._spoilt = False
            try:
                yield self._draft
                if self._spoilt:
                    raise ValueError(
                        f"{self.address.shown}: a change inside of the transaction failed, so none "
                        "was made"
                    )
                self._view = self.states.commit(self._draft)
            finally:
                self._draft, self._writer = None, 0

    def read(self, question: Callable[[View], Answer]) -> Answer:
        """Ask about one state of the index: that of now, or that of this thread's draft.

        The state that was seen last is asked about first. The answer stands if the index still has
        that state afterwards, or if the state was new and no row has been deleted since.
        """
        self.check_open()
        if self.draft is not None:
            return question(self.draft)
        view, is_new = self._view, False
        for _ in range(_MOST_ATTEMPTS):
            answer = question(view)
            latest = self.states.view()
            known = view.header.generation
            if latest.header.generation == known or (is_new and latest.header.erased <= known):
                return answer
            view, is_new = latest, True
            self._view = latest
        raise ValueError(
            f"{self.address.shown}: the index changes faster than it can be read; try again"
        )
