import threading
from itertools import pairwise

import numpy as np
import pytest
import torch
from code_cases import KINDS, random_codes, random_search
from hypothesis import given, settings
from hypothesis import strategies as st

from bitprint.codes import Codes
from bitprint.search import flat, mih, mih_choice, mih_probes
from bitprint.search.index import Index
from bitprint.search.memory import Snapshot
from bitprint.search.mih_choice import MultiIndex
from bitprint.search.mih_tables import build, count_agreements, cut
from bitprint.utils.words import as_planes, as_words


def bits_of(planes, position, start, stop):
    """Return the bits start..stop of a code as an integer."""
    bits = [int(planes[i // 64, position]) >> i % 64 & 1 for i in range(start, stop)]
    return sum(bit << i for i, bit in enumerate(bits))


def assert_same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def compare_with_scan(tables, words, planes, count, k, radius, alive, budget):
    assert_same(
        mih.nearest(tables, words, planes, count, k, alive, budget),
        flat.nearest(words, planes, count, k, alive),
    )
    assert_same(
        mih.within(tables, words, planes, count, radius, alive, budget),
        flat.within(words, planes, count, radius, alive),
    )


@settings(deadline=None, max_examples=200)
@given(
    bits=st.one_of(st.integers(1, 300), st.sampled_from([12, 48, 64, 128, 1024])),
    longest=st.integers(1, 11),
    size=st.one_of(st.integers(0, 60), st.integers(200, 1500)),
    tail=st.sampled_from([0, 0, 1, 3, 300]),
    count=st.integers(0, 4),
    k=st.one_of(st.integers(1, 12), st.integers(90, 260), st.just(2000)),
    kind=st.sampled_from(KINDS),
    removed=st.sampled_from([None, 0.0, 0.3, 0.98, 1.0]),
    budget=st.sampled_from([2**62, 2**62, 0, 50, 2000]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_probing_equals_the_scan(
    bits, longest, size, tail, count, k, kind, removed, budget, threads, seed
):
    rng = np.random.default_rng(seed)
    codes, queries, alive, radius = random_search(rng, bits, size, count, kind, removed)
    words = as_words(queries)
    # Codes in unused columns must not be found.
    planes = np.hstack([as_planes(codes), np.zeros((words.shape[1], 9), np.uint64)])
    tables = build(planes, max(0, size - tail), cut(bits, longest))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: threads)
        compare_with_scan(tables, words, planes, size, k, radius, alive, budget)


@given(
    bits=st.integers(1, 200),
    longest=st.integers(1, 10),
    size=st.integers(0, 40),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_tables_hold_every_code_once_per_substring(bits, longest, size, seed):
    planes = as_planes(random_codes(np.random.default_rng(seed), size, bits))
    starts = cut(bits, longest)
    assert starts[0] == 0
    assert bits <= starts[-1] < bits + 8
    assert max(np.diff(starts)) <= longest
    assert max(np.diff(starts)) - min(np.diff(starts)) <= 1
    tables = build(planes, size, starts)
    for t, (start, stop) in enumerate(pairwise(starts)):
        values = [bits_of(planes, i, start, stop) for i in range(size)]
        for value in range(2 ** (stop - start)):
            first, last = tables.offsets[tables.bases[t] + value :][:2]
            held = tables.positions[t, first:last].tolist()
            assert held == [i for i in range(size) if values[i] == value]


def test_agreements_equal_those_of_a_python_loop():
    rng = np.random.default_rng(0)
    rows, columns = (as_planes(random_codes(rng, size, 100)) for size in (5, 7))
    starts = cut(100, 30)
    expected = np.zeros((4, 27), int)
    for t in range(4):
        for i in range(5):
            for j in range(7):
                own, other = (
                    bits_of(planes, at, starts[t], starts[t + 1])
                    for planes, at in ((rows, i), (columns, j))
                )
                expected[t, (own ^ other).bit_count()] += 1
    np.testing.assert_array_equal(count_agreements(rows, columns, starts), expected)


def work_by_hand(query, planes, starts, farthest):
    """Return the work of all steps 0..farthest."""
    work = 0
    for step in range(farthest + 1):
        r, t = divmod(step, len(starts) - 1)
        start, stop = starts[t], starts[t + 1]
        own = bits_of(query, 0, start, stop)
        for flips in range(2 ** (stop - start)):
            work += mih_probes.PROBE * (flips.bit_count() == r)
        for i in range(planes.shape[1]):
            work += (own ^ bits_of(planes, i, start, stop)).bit_count() == r
    return work


@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_search_stops_after_all_ties(k):
    """Neither a step too early nor too late."""
    rng = np.random.default_rng(k)
    codes = random_codes(rng, 200, 24, kind="clustered")
    planes, words = as_planes(codes), as_words(codes[:1])
    starts = cut(24, 8)
    tables = build(planes, 200, starts)
    _, distances = flat.nearest(words, planes, 200, k, None)
    needed = work_by_hand(words.T, planes, starts, distances[0, -1])
    arrays = flat.check_arrays(words, planes, 200, None)
    _, work = mih_probes.probe_nearest(*arrays, 200, tables, k, 2**62)
    assert work.tolist() == [needed]
    radius = int(distances[0, -1])
    _, _, work = mih_probes.probe_within(*arrays, 200, tables, radius, 2**62)
    assert work.tolist() == [needed]


def test_a_query_stops_before_it_reads_a_large_bucket():
    codes = np.zeros((5000, 8), np.uint8)
    planes, words = as_planes(codes), as_words(codes[:1])
    tables = build(planes, 5000, cut(64, 12))
    arrays = flat.check_arrays(words, planes, 5000, None)
    keys, work = mih_probes.probe_nearest(*arrays, 5000, tables, 3, 100)
    assert work.tolist() == [mih_probes.PROBE + 5000]
    assert (keys == mih_probes.NO_KEY).all()
    compare_with_scan(tables, words, planes, 5000, 3, 0, None, 100)


def test_earlier_ties_come_first_although_found_last():
    """The query has a common substring with the last codes, but not with the first ones."""
    signs = np.zeros((40, 32), bool)
    signs[:20, [0, 8, 16, 24]] = True
    signs[20:, :4] = True
    codes = np.packbits(signs, axis=1)
    planes, words = as_planes(codes), np.zeros((1, 1), np.uint64)
    tables = build(planes, 40, cut(32, 8))
    positions, distances = mih.nearest(tables, words, planes, 40, 5, None)
    assert positions.tolist() == [[0, 1, 2, 3, 4]]
    assert distances.tolist() == [[4] * 5]


@pytest.fixture
def eager(monkeypatch):
    """Use tables for any number of codes immediately; return the list of searches that did."""
    monkeypatch.setattr(mih_choice, "_FEWEST", 8)
    monkeypatch.setattr(mih_choice, "_BUILD", 0.0)
    monkeypatch.setattr(mih_choice, "_QUERY", 0.0)
    monkeypatch.setattr(mih_choice, "_WORK", 1e-9)
    monkeypatch.setattr(mih_choice, "_FOLLOW", 1e-9)
    calls = []
    for name in ("nearest", "within"):
        path = getattr(mih, name)

        def noted(*arguments, path=path, name=name):
            calls.append(name)
            return path(*arguments)

        monkeypatch.setattr(mih, name, noted)
    return calls


def snapshot_of(planes, count, alive=None):
    return Snapshot(planes, np.arange(count), alive)


def test_tables_and_scan_return_the_same_results(eager, tmp_path, monkeypatch):
    """After additions, replacements, removals, and with labels."""
    rng = np.random.default_rng(0)

    def codes(count):
        return Codes(random_codes(rng, count, 40, kind="clustered"), 40)

    queries = codes(6)
    with Index.create(tmp_path / "a.bp", 40) as index:

        def check():
            for label in (None, "odd"):
                for k in (3, 50):
                    index.search(queries, k, label)  # the first search of a kind is a scan
                    eager.clear()
                    through_tables = index.search(queries, k, label)
                    assert eager == ["nearest"]
                    with monkeypatch.context() as patch:
                        patch.setattr(mih_choice, "_FEWEST", 10**9)
                        assert_same(through_tables, index.search(queries, k, label))
                eager.clear()
                through_tables = index.within(queries, 9, label)
                assert eager == ["within"]
                with monkeypatch.context() as patch:
                    patch.setattr(mih_choice, "_FEWEST", 10**9)
                    scanned = index.within(queries, 9, label)
                assert_same(through_tables.ids, scanned.ids)
                assert_same(through_tables.distances, scanned.distances)

        index.add(range(400), codes(400), labels=[["odd"] * (i % 2) for i in range(400)])
        check()
        index.add([1000], codes(1))
        check()
        index.remove(range(0, 400, 3))
        index.add(range(1, 40), codes(39), labels=[["odd"]] * 39)
        check()
        index.compact()
        check()
        index.add(range(2000, 3000), codes(1000))
        check()


def test_tables_are_rebuilt_when_the_tail_is_long(eager, monkeypatch):
    planes = as_planes(random_codes(np.random.default_rng(0), 700, 32, kind="clustered"))
    words = np.ascontiguousarray(planes.T[:3])
    built = []

    def noted(planes, count, starts):
        built.append(count)
        return build(planes, count, starts)

    monkeypatch.setattr(mih_choice, "build", noted)
    multi = MultiIndex(32)
    for count in (640, 641, 650, 639, 651, 651):  # 639: an older snapshot
        found = multi.within(words, snapshot_of(planes, count), 5)
        assert_same(found, flat.within(words, planes, count, 5, None))
    assert built == [640, 651]
    moved = planes.copy()
    moved[:, :100] = planes[:, 100:200]
    found = multi.within(words, snapshot_of(moved, 651), 5)
    assert_same(found, flat.within(words, moved, 651, 5, None))
    assert built == [640, 651, 651]


def test_tables_are_built_once_they_would_have_saved_time(eager, monkeypatch):
    planes = as_planes(random_codes(np.random.default_rng(0), 1000, 32))
    words = np.ascontiguousarray(planes.T[:1])
    scan = 1000 * (mih_choice._SCAN + mih_choice._READ)
    tables = len(cut(32, 9)) - 1
    monkeypatch.setattr(mih_choice, "_BUILD", 4.5 * scan / (1000 * tables))
    multi = MultiIndex(32)
    for _ in range(4):
        multi.within(words, snapshot_of(planes, 1000), 0)
    assert eager == []
    multi.within(words, snapshot_of(planes, 1000), 0)
    assert eager == ["within"]


def test_one_thread_builds_while_another_scans(eager, monkeypatch):
    planes = as_planes(random_codes(np.random.default_rng(0), 1000, 32))
    words = np.ascontiguousarray(planes.T[:1])
    building, answered = threading.Event(), threading.Event()

    def slow(*arguments):
        building.set()
        assert answered.wait(120)
        return build(*arguments)

    monkeypatch.setattr(mih_choice, "build", slow)
    multi = MultiIndex(32)
    builder = threading.Thread(target=multi.within, args=(words, snapshot_of(planes, 1000), 0))
    builder.start()
    assert building.wait(120)
    multi.within(words, snapshot_of(planes, 1000), 0)
    assert eager == []
    answered.set()
    builder.join()
    assert eager == ["within"]


def test_a_large_first_batch_uses_statistics_of_its_start(eager):
    planes = as_planes(random_codes(np.random.default_rng(0), 1000, 32))
    words = np.ascontiguousarray(planes.T[:100])
    found = MultiIndex(32).nearest(words, snapshot_of(planes, 1000), 4, None)
    assert eager == ["nearest"]
    assert_same(found, flat.nearest(words, planes, 1000, 4, None))


@pytest.mark.parametrize("queries", [0, 1])
def test_searches_without_matches_return_padding(eager, queries):
    """No queries or no live codes; repeated, because the first search is a scan."""
    planes = as_planes(random_codes(np.random.default_rng(0), 1000, 32))
    words = np.ascontiguousarray(planes.T[:queries])
    multi, snapshot = MultiIndex(32), snapshot_of(planes, 1000, np.zeros(1000, np.uint8))
    for _ in range(2):
        assert_same(
            multi.nearest(words, snapshot, 4, None),
            (np.full((queries, 4), -1), np.full((queries, 4), -1, np.int32)),
        )
        assert multi.within(words, snapshot, 3)[0].tolist() == [0] * (queries + 1)


def test_expected_work_is_the_mean_of_the_sampled_pairs(monkeypatch):
    """A sample with each code equally often has no randomness."""

    class Evenly:
        def integers(self, low, high, size):
            return low + np.arange(size) % (high - low)

    planes = as_planes(random_codes(np.random.default_rng(0), 16, 32, kind="clustered"))
    starts = cut(32, 8)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Evenly())
    expected = mih_choice._expected_work(snapshot_of(planes, 16), starts)
    assert len(expected) == 4 * 9
    for step in (0, 3, 4, 9, 35):
        measured = [work_by_hand(planes[:, [q]], planes, starts, step) for q in range(16)]
        assert expected[step] == pytest.approx(np.mean(measured))


def test_tables_are_chosen_for_clusters_and_not_for_noise(monkeypatch):
    """With the measured constants, for a size at which random codes are scanned."""
    rng = np.random.default_rng(0)
    centers = rng.integers(0, 2**64, 20_000, dtype=np.uint64)
    flips = np.uint64(1) << rng.integers(0, 64, (2, 600_000), dtype=np.uint64)
    clusters = (np.repeat(centers, 30) ^ flips[0] ^ flips[1])[None]
    noise = rng.integers(0, 2**64, (1, 600_000), dtype=np.uint64)
    monkeypatch.setattr(mih_choice, "_BUILD", 0.0)
    for planes, chosen in ((clusters, True), (noise, False)):
        words = np.ascontiguousarray(planes.T[:32])
        multi, snapshot = MultiIndex(64), snapshot_of(planes, 600_000)
        for _ in range(2):
            found = multi.nearest(words, snapshot, 10, None)
        assert (multi._plan._tables is not None) == chosen
        assert_same(found, flat.nearest(words, planes, 600_000, 10, None))


def test_few_codes_are_scanned(tmp_path):
    codes = Codes(random_codes(np.random.default_rng(0), 100, 64), 64)
    with Index.create(tmp_path / "a.bp", 64) as index:
        index.add(range(100), codes)
        index.search(codes)
        assert index._multi_index._plan is None


def test_nothing_compiles_after_the_warm_up():
    mih.warm_up()
    compiled = (mih_probes.probe_nearest, mih_probes.probe_within, count_agreements)
    before = [list(dispatcher.signatures) for dispatcher in compiled]
    assert [len(signatures) for signatures in before] == [1, 1, 1]
    rng = np.random.default_rng(0)
    for bits in (12, 64, 100):
        codes = random_codes(rng, 300, bits)
        words, planes = as_words(codes[::7]), as_planes(codes)
        tables = build(planes, 290, cut(bits, 8))
        mih_choice._expected_work(snapshot_of(planes, 300), tables.starts)
        for alive in (None, np.ones(300, np.uint8), np.ones(600, np.uint8)[::2]):
            mih.nearest(tables, words[::2], planes, 300, np.int64(5), alive, np.int64(9))
            mih.within(tables, words, planes.T.copy().T, 300, 3, alive)
    assert [list(dispatcher.signatures) for dispatcher in compiled] == before
