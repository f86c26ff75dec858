"""The choice between a scan and multi-index hashing, by what each is going to cost.

Tables pay where neighbours are near: many codes, in clusters, or a small radius. Codes without
structure are far from each other: of a million of them, a scan finds the nearest sooner.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb

from bitprint.parallel import thread_count
from bitprint.search import flat, mih
from bitprint.search.memory import View
from bitprint.search.mih import Distances, Offsets, Positions
from bitprint.search.mih_probes import PROBE
from bitprint.search.mih_tables import Tables, build, count_agreements, cut
from bitprint.words import Words

_FEWEST = 1 << 19  # codes; with fewer, choosing takes a good part of the time of a scan
_MOST = 1 << 32  # codes whose positions fit the tables
_TAIL = 64  # tables serve until one code in so many is not in them
_SAMPLE = 64  # queries by whose neighbours the next searches are judged
_KINDS = 64  # of searches that are remembered
_PAIRS = 64, 2048  # codes compared with each other to see how often substrings agree

# Nanoseconds on one core of an AMD EPYC: processor time of searches of 10M codes of 64 bits, but
# _FOLLOW from a loop over codes in the cache, and _QUERY a guess.
_SCAN = 0.09  # compare a word of a code with one more query
_READ = 0.18  # bring a word of a code from memory, for all queries
_FOLLOW = 1.5  # compare a word of a code that is not in the tables
_WORK = 18.0  # a unit of work: compare a code that lies anywhere
_QUERY = 5_000.0  # begin a query
_BUILD = 25.0  # put a code into one table


class MultiIndex:
    """Searches views of a growing database, by scans or through tables: by what will be faster.

    Whether tables pay depends on how far away neighbours are, which earlier searches tell, and on
    how often codes agree in a substring, which a sample of the codes tells. Tables are built once
    the searches so far, the present one included, would have gained the time that building takes.
    A query that turns out to take longer than a scan is scanned after all.

    Tables take 4 to 8 bytes per code for each log2(N) bits begun: for 64 bits and ten million
    codes 15 bytes.

    Parameters
    ----------
    bits : int
        The length of the codes.

    Examples
    --------
    >>> from bitprint.words import as_planes, as_words
    >>> packed = np.array([[0b1111], [0b0001], [0b0011], [0b0001]], np.uint8)
    >>> view = View(as_planes(packed), ids=np.arange(4), alive=None)
    >>> searcher = MultiIndex(bits=8)
    >>> positions, distances = searcher.nearest(as_words(packed[:1]), view, k=3, label=None)
    >>> positions.tolist(), distances.tolist()
    ([[0, 2, 1]], [[0, 2, 3]])
    >>> offsets, positions, distances = searcher.within(as_words(packed[:1]), view, radius=2)
    >>> positions.tolist(), searcher.nbytes  # so few codes need no tables
    ([0, 2], 0)
    """

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._lock = threading.Lock()
        self._prospect: _Prospect | None = None
        self._reaches: dict[Hashable, Distances] = {}

    def nearest(
        self, queries: Words, view: View, k: int, label: str | None
    ) -> tuple[Positions, Distances]:
        """Find the k nearest codes, as `flat.nearest` does; the label is that of the view."""
        kind = k, label
        reaches = self._reaches.get(kind)
        prospect = self._prospect_of(view)
        if prospect and reaches is None and len(queries) > _SAMPLE:
            first = self.nearest(queries[:_SAMPLE], view, k, label)
            others = self.nearest(queries[_SAMPLE:], view, k, label)
            return np.concatenate([first[0], others[0]]), np.concatenate([first[1], others[1]])
        tables = None
        if prospect and reaches is not None:
            # A neighbour that there is not has distance -1: all work is to be done.
            tables = prospect.tables_for(len(queries), view, prospect.work[reaches])
        if prospect and tables:
            budget = prospect.budget(len(queries))
            found = mih.nearest(tables, queries, view.planes, view.count, k, view.alive, budget)
        else:
            found = flat.nearest(queries, view.planes, view.count, k, view.alive)
        if prospect and len(queries):
            self._remember(kind, found[1])
        return found

    def within(
        self, queries: Words, view: View, radius: int
    ) -> tuple[Offsets, Positions, Distances]:
        """Find every code within the radius, as `flat.within` does."""
        prospect = self._prospect_of(view)
        if prospect:
            work = prospect.work[min(radius, len(prospect.work) - 1) :][:1]
            # A scan for everything within a radius passes over the codes twice.
            tables = prospect.tables_for(len(queries), view, work, passes=2)
            if tables:
                budget = prospect.budget(len(queries), passes=2)
                return mih.within(
                    tables, queries, view.planes, view.count, radius, view.alive, budget
                )
        return flat.within(queries, view.planes, view.count, radius, view.alive)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, if there are any."""
        return 0 if self._prospect is None else self._prospect.nbytes

    def _prospect_of(self, view: View) -> _Prospect | None:
        """Return what tables promise for this view; codes that grew much are judged anew."""
        if not _FEWEST <= view.count < _MOST:
            return None
        prospect = self._prospect
        if prospect is None or not prospect.fits(view):
            prospect = self._prospect = _Prospect(view, self.bits)
        return prospect

    def _remember(self, kind: Hashable, distances: Distances) -> None:
        """Note how far away the last neighbour of the latest queries of this kind was."""
        with self._lock:
            earlier = self._reaches.pop(kind, np.empty(0, np.int32))
            self._reaches[kind] = np.concatenate([distances[:, -1], earlier])[:_SAMPLE]
            if len(self._reaches) > _KINDS:
                del self._reaches[next(iter(self._reaches))]


class _Prospect:
    """What tables of the codes of a view would cost and gain, and the tables once they exist.

    work : (at least bits + 1,) expected until every code within each distance was met.
    """

    def __init__(self, view: View, bits: int) -> None:
        self._planes = weakref.ref(view.planes)
        self._covered = view.count
        self._words = len(view.planes)
        self._starts = cut(bits, view.count.bit_length() - 1)
        self._gained = 0.0
        self._building = threading.Lock()
        self._tables: Tables | None = None
        self.work = _expected_work(view, self._starts)

    def fits(self, view: View) -> bool:
        """Whether a view has the same codes, or a few more, or was taken before the last ones.

        An array of planes belongs to one database, whose codes never change places.
        """
        tail = view.count - self._covered
        return self._planes() is view.planes and tail * _TAIL <= self._covered

    def budget(self, queries: int, passes: int = 1) -> int:
        """Work of a query that takes a core as long as a scan takes it for this query."""
        return int(self._scan(queries, passes) * thread_count() / queries / _WORK)

    def tables_for(
        self, queries: int, view: View, work: NDArray[np.float64], passes: int = 1
    ) -> Tables | None:
        """Return tables if a search with them beats a scan, and they exist or are worth building.

        work : (any,) what queries like these are expected to take.
        """
        if not queries or view.count < self._covered:
            return None
        scan, budget = self._scan(queries, passes), self.budget(queries, passes)
        tail = _FOLLOW * self._words * (view.count - self._covered)
        each = _QUERY + tail + _WORK * np.minimum(work, budget).sum() / len(work)
        probing = each * -(-queries // thread_count())
        gain = scan * np.count_nonzero(work <= budget) / len(work) - probing
        if gain <= 0:
            return None
        if self._tables is None:
            self._gained += gain
            number = len(self._starts) - 1
            building = _BUILD * self._covered * -(-number // thread_count())
            # The lock is never released: one thread builds, once, while others scan.
            if self._gained >= building and self._building.acquire(blocking=False):
                self._tables = build(view.planes, self._covered, self._starts)
        return self._tables

    @property
    def nbytes(self) -> int:
        """Bytes of the tables."""
        return 0 if self._tables is None else sum(part.nbytes for part in self._tables)

    def _scan(self, queries: int, passes: int) -> float:
        """Nanoseconds that a scan takes."""
        words = passes * self._covered * self._words / thread_count()
        return words * (_SCAN * queries + _READ)


def _expected_work(view: View, starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Work of steps 0..n for each n, if queries are like the codes."""
    rng = np.random.default_rng(0)
    rows, columns = (view.planes.take(rng.integers(0, view.count, n), axis=1) for n in _PAIRS)
    agreeing = count_agreements(rows, columns, starts) / np.prod(_PAIRS)  # (m, longest + 1)
    flips = np.arange(agreeing.shape[1])
    buckets = comb(np.diff(starts)[:, None], flips)
    return np.cumsum((PROBE * buckets + view.count * agreeing).T)
