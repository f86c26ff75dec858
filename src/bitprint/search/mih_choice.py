"""Choice between a scan and multi-index hashing by estimated cost.

Tables are faster if neighbors are near: for many codes, clustered codes or a small radius. Random
codes are far from each other; for a million of them, a scan is faster.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from bitprint.search import flat, mih
from bitprint.search.memory import Snapshot
from bitprint.search.mih import Distances, Offsets, Positions
from bitprint.search.mih_probes import PROBE
from bitprint.search.mih_tables import SubstringTables, build, count_agreements, cut
from bitprint.utils.parallel import thread_count
from bitprint.utils.words import Words

_FEWEST = 1 << 19  # codes; with fewer, the choice itself takes a large part of the scan time
_MOST = 1 << 32  # positions must fit 32 bits
_TAIL = 64  # tables are rebuilt once 1 code in 64 is not in them
_SAMPLE = 64  # recent queries used to predict the neighbor distances of the next ones
_KINDS = 64  # kinds of searches (k and label) to store statistics for
_PAIRS = 64, 2048  # sampled codes, compared with each other to estimate bucket sizes

# Nanoseconds on one core of an AMD EPYC, measured as processor time of searches in 10M codes of 64
# bits. Exceptions: _FOLLOW is from a loop over codes in the cache, _QUERY is a guess.
_SCAN = 0.04  # compare one word of a code with one query
_READ = 0.19  # load one word of a code from memory, for all queries
_FOLLOW = 1.5  # compare one word of a code that is not in the tables
_WORK = 18.0  # one unit of work: compare a code at a random position
_QUERY = 5_000.0  # fixed cost per query
_BUILD = 25.0  # add a code to one table


class MultiIndex:
    """Search a growing database by a scan or through tables, whichever is estimated to be faster.

    The estimate uses the neighbor distances of earlier searches and, from a sample of the codes,
    how often substrings are equal. Tables are built once the searches so far, including the current
    one, would have saved the build time. A query that would take longer than a scan is scanned
    instead.

    Tables take 4 to 8 bytes per code for each started log2(N) bits, for example 15 bytes per code
    for ten million codes of 64 bits.

    Parameters
    ----------
    bits : int
        Code length.

    Examples
    --------
    >>> from bitprint.utils.words import as_planes, as_words
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> codes = Snapshot(as_planes(packed), ids=np.arange(4), alive=None)
    >>> searcher = MultiIndex(bits=8)
    >>> positions, distances = searcher.nearest(as_words(packed[:1]), codes, k=3, label=None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    >>> offsets, positions, distances = searcher.within(as_words(packed[:1]), codes, radius=2)
    >>> positions.tolist(), searcher.nbytes  # no tables for so few codes
    ([0, 2], 0)
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._lock = threading.Lock()
        self._plan: _TablePlan | None = None
        self._last_distances: dict[Hashable, Distances] = {}

    def nearest(
        self, queries: Words, snapshot: Snapshot, k: int, label: str | None
    ) -> tuple[Positions, Distances]:
        """Find the k nearest codes, as `flat.nearest` does; `label` is that of the snapshot."""
        kind = k, label
        expected = self._last_distances.get(kind)
        plan = self._plan_for(snapshot)
        if plan and expected is None and len(queries) > _SAMPLE:
            first = self.nearest(queries[:_SAMPLE], snapshot, k, label)
            others = self.nearest(queries[_SAMPLE:], snapshot, k, label)
            return np.concatenate([first[0], others[0]]), np.concatenate([first[1], others[1]])
        tables = None
        if plan and expected is not None:
            # A missing neighbor has distance -1, which selects the work of all steps.
            tables = plan.tables_for(len(queries), snapshot, plan.work[expected])
        planes, count, alive = snapshot.planes, snapshot.count, snapshot.alive
        if plan and tables:
            budget = plan.budget(len(queries))
            found = mih.nearest(tables, queries, planes, count, k, alive, budget)
        else:
            found = flat.nearest(queries, planes, count, k, alive)
        if plan and len(queries):
            self._record(kind, found[1])
        return found

    def within(
        self, queries: Words, snapshot: Snapshot, radius: int
    ) -> tuple[Offsets, Positions, Distances]:
        """Find all codes within the radius, as `flat.within` does."""
        plan = self._plan_for(snapshot)
        planes, count, alive = snapshot.planes, snapshot.count, snapshot.alive
        if plan:
            work = plan.work[min(radius, len(plan.work) - 1) :][:1]
            tables = plan.tables_for(len(queries), snapshot, work)
            if tables:
                budget = plan.budget(len(queries))
                return mih.within(tables, queries, planes, count, radius, alive, budget)
        return flat.within(queries, planes, count, radius, alive)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables; 0 if there are none."""
        return 0 if self._plan is None else self._plan.nbytes

    def _plan_for(self, snapshot: Snapshot) -> _TablePlan | None:
        """Return the plan for this snapshot; make a new one if the database has grown much."""
        if not _FEWEST <= snapshot.count < _MOST:
            return None
        plan = self._plan
        if plan is None or not plan.fits(snapshot):
            plan = self._plan = _TablePlan(snapshot, self.bits)
        return plan

    def _record(self, kind: Hashable, distances: Distances) -> None:
        """Store the distance of the last neighbor for the latest queries of this kind."""
        with self._lock:
            earlier = self._last_distances.pop(kind, np.empty(0, np.int32))
            self._last_distances[kind] = np.concatenate([distances[:, -1], earlier])[:_SAMPLE]
            if len(self._last_distances) > _KINDS:
                del self._last_distances[next(iter(self._last_distances))]


class _TablePlan:
    """Estimated cost and gain of tables for a snapshot, and the tables once they are built.

    Attributes
    ----------
    work : ndarray of float64, shape (at least bits + 1,)
        Expected work until all codes within each distance are found.
    """

    def __init__(self, snapshot: Snapshot, bits: int) -> None:
        self._planes = weakref.ref(snapshot.planes)
        self._covered = snapshot.count
        self._words = len(snapshot.planes)
        self._starts = cut(bits, snapshot.count.bit_length() - 1)
        self._gained = 0.0
        self._building = threading.Lock()
        self._tables: SubstringTables | None = None
        self.work = _expected_work(snapshot, self._starts)

    def fits(self, snapshot: Snapshot) -> bool:
        """Return whether a snapshot has the same codes, fewer, or only a few more.

        An array of planes belongs to one database, and its codes never move.
        """
        tail = snapshot.count - self._covered
        return self._planes() is snapshot.planes and tail * _TAIL <= self._covered

    def budget(self, queries: int) -> int:
        """Return the work per query that takes as much core time as a scan."""
        return int(self._scan(queries) * thread_count() / queries / _WORK)

    def tables_for(
        self, queries: int, snapshot: Snapshot, work: NDArray[np.float64]
    ) -> SubstringTables | None:
        """Return tables if they are faster than a scan; build them if that saves time overall.

        `work`, of any length, is the expected work of sampled queries.
        """
        if not queries or snapshot.count < self._covered:
            return None
        scan, budget = self._scan(queries), self.budget(queries)
        tail = _FOLLOW * self._words * (snapshot.count - self._covered)
        each = _QUERY + tail + _WORK * np.minimum(work, budget).sum() / len(work)
        probing = each * -(-queries // thread_count())
        gain = scan * np.count_nonzero(work <= budget) / len(work) - probing
        if gain <= 0:
            return None
        if self._tables is None:
            self._gained += gain
            number = len(self._starts) - 1
            building = _BUILD * self._covered * -(-number // thread_count())
            # The lock is never released: one thread builds the tables once, others scan meanwhile.
            if self._gained >= building and self._building.acquire(blocking=False):
                self._tables = build(snapshot.planes, self._covered, self._starts)
        return self._tables

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return 0 if self._tables is None else sum(part.nbytes for part in self._tables)

    def _scan(self, queries: int) -> float:
        """Return the estimated time of a scan in nanoseconds."""
        words = self._covered * self._words / thread_count()
        return words * (_SCAN * queries + _READ)


def _expected_work(snapshot: Snapshot, starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the expected work of steps 0..n for each n, for queries distributed like the codes."""
    rng = np.random.default_rng(0)
    planes, count = snapshot.planes, snapshot.count
    rows, columns = (planes.take(rng.integers(0, count, n), axis=1) for n in _PAIRS)
    agreeing = count_agreements(rows, columns, starts) / np.prod(_PAIRS)  # (m, longest + 1)
    flips = np.arange(agreeing.shape[1])
    buckets = comb(np.diff(starts)[:, None], flips)
    return np.cumsum((PROBE * buckets + count * agreeing).T)
