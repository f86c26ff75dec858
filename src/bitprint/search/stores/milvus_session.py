"""The connection of one index to Milvus: whose turn it is to write, and what readers see."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TypeVar

from bitprint.search.closing import on_error
from bitprint.search.errors import is_closed, no_such_index
from bitprint.search.stores.milvus_address import Address
from bitprint.search.stores.milvus_connection import connect, disconnect
from bitprint.search.stores.milvus_rows import Rows
from bitprint.search.stores.milvus_states import States
from bitprint.search.stores.milvus_views import Header, View

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

    @classmethod
    def create(
        cls, address: Address, timeout: float, header: Header, attachments: Mapping[str, bytes]
    ) -> Session:
        """Connect, and make an index where none is yet."""
        with _connected(address, timeout) as rows:
            if rows.exists():
                if _is_finished(rows):
                    raise FileExistsError(
                        f"{address.shown}: a collection {address.index} exists already; open it, "
                        "or create the index under another name"
                    )
                rows.drop()
            rows.make(header.bits)
            States(rows).first(header, attachments)
            return cls(rows, address)

    @classmethod
    def open(cls, address: Address, timeout: float) -> Session:
        """Connect to an index that exists."""
        if address.file is not None and not address.file.exists():
            raise no_such_index(address.shown)
        with _connected(address, timeout) as rows:
            if not rows.exists():
                raise no_such_index(address.shown)
            rows.load()
            return cls(rows, address)

    def close(self) -> None:
        """Close the connection, once."""
        with self._lock:
            if not self._closed:
                self._closed = True
                disconnect(self.rows.client, self.address)

    def check_open(self) -> None:
        """Raise a ValueError if the index is closed."""
        if self._closed:
            raise is_closed(self.address.shown)

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
            with suppress(OSError):  # everything is stored; the next writer erases what is left
                self._view = self.states.erase(self._view)

    def read(self, question: Callable[[View], Answer]) -> Answer:
        """Ask about one state of the index: that of now, or that of this thread's draft."""
        self.check_open()
        try:
            return self._read(question) if self.draft is None else question(self.draft)
        except OSError:
            self.check_open()  # another thread may have closed it meanwhile
            raise

    def _read(self, question: Callable[[View], Answer]) -> Answer:
        """Ask about the state that was seen last, and about later ones until an answer stands.

        It does if the index still has that state afterwards, or if the state was new and no row
        has been deleted since.
        """
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


@contextmanager
def _connected(address: Address, timeout: float) -> Iterator[Rows]:
    """Connect, and close the connection if anything is raised."""
    client = connect(address, timeout)
    with on_error(lambda: disconnect(client, address)):
        yield Rows(client, address, timeout)


def _is_finished(rows: Rows) -> bool:
    """Whether a collection has become an index; otherwise who made it was cut short."""
    rows.load()
    try:
        States(rows).view()
    except FileNotFoundError:
        return False
    return True
