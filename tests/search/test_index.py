import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bitprint.codes import Codes
from bitprint.search import chunks, details
from bitprint.search.ids import IntegerLookup
from bitprint.search.index import Index


def random_codes(count, bits, seed=0):
    return Codes.from_signs(np.random.default_rng(seed).random((count, bits)) < 0.5)


class Naive:
    """Ids in insertion order, each with its code, path and labels."""

    def __init__(self):
        self.held = {}

    def add(self, ids, codes, items):
        for number, (key, item) in enumerate(zip(ids, items, strict=True)):
            self.held.pop(key, None)
            self.held[key] = (codes.signs()[number], *item)

    def ranking(self, query, label):
        """Every (distance, id), nearest first; sorting is stable, so ties keep their order."""
        pairs = [
            (int((signs != query).sum()), key)
            for key, (signs, _, labels) in self.held.items()
            if label is None or label in labels
        ]
        return sorted(pairs, key=lambda pair: pair[0])


LABELS = ["cat", "dog", "", "été"]
few_ids = st.lists(st.integers(0, 12), max_size=6, unique=True)
item = st.tuples(
    st.one_of(st.none(), st.text(max_size=3)), st.lists(st.sampled_from(LABELS), max_size=3)
)


class IndexMachine(RuleBasedStateMachine):
    """Everything that may happen to an index, against the naive one."""

    folder = None

    @initialize(
        bits=st.one_of(st.integers(1, 12), st.sampled_from([48, 64, 65, 128, 200])),
        strings=st.booleans(),
    )
    def create(self, bits, strings):
        self.path = Path(tempfile.mkdtemp(dir=self.folder)) / "a.bp"
        self.bits = bits
        self.key = (lambda i: f"img/{i}\udcff é") if strings else (lambda i: i * 2**55 - 7)
        self.index = Index.create(self.path, bits, model="itq")
        self.reader = Index.open(self.path)
        self.naive = Naive()

    def draw_codes(self, data, count):
        # A few base codes give many duplicates and ties.
        seeds = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        parts = [random_codes(1, self.bits, seed).packed for seed in seeds]
        return Codes(
            np.concatenate([np.empty((0, -(-self.bits // 8)), np.uint8), *parts]), self.bits
        )

    @rule(data=st.data(), numbers=few_ids, described=st.sampled_from(["both", "neither", "paths"]))
    def add(self, data, numbers, described):
        ids = [self.key(number) for number in numbers]
        codes = self.draw_codes(data, len(ids))
        items = data.draw(st.lists(item, min_size=len(ids), max_size=len(ids)))
        if described == "neither":
            items = [(None, [])] * len(ids)
            self.index.add(ids, codes)
        elif described == "paths":
            items = [(path, []) for path, _ in items]
            self.index.add(ids, codes, paths=[path for path, _ in items])
        else:
            paths, labels = [path for path, _ in items], [names for _, names in items]
            self.index.add(ids, codes, paths, labels)
        self.naive.add(ids, codes, items)

    @precondition(lambda self: self.naive.held)
    @rule(data=st.data())
    def remove(self, data):
        held = list(self.naive.held)
        ids = data.draw(st.lists(st.sampled_from(held), max_size=5))
        self.index.remove(ids)
        for key in set(ids):
            del self.naive.held[key]

    @precondition(lambda self: self.naive.held)
    @rule(data=st.data())
    def remove_unknown(self, data):
        known = data.draw(st.sampled_from(list(self.naive.held)))
        with pytest.raises(ValueError, match="holds no id"):
            self.index.remove([known, self.key(99)])

    @rule()
    def compact(self):
        self.index.compact()

    @rule()
    def reopen(self):
        self.index.close()
        self.index = Index.open(self.path)

    @rule()
    def change_roles(self):
        self.index, self.reader = self.reader, self.index

    @rule(
        data=st.data(), k=st.integers(1, 20), label=st.sampled_from([None, None, "bird", *LABELS])
    )
    def search(self, data, k, label):
        queries = self.draw_codes(data, 3)
        for index in (self.index, self.reader):
            ids, distances = index.search(queries, k, label)
            found_ids, found_distances = index.within(queries, self.bits // 2, label)
            assert ids.shape == distances.shape == (3, k)
            for row, query in enumerate(queries.signs()):
                expected = self.naive.ranking(query, label)
                near = [pair for pair in expected if pair[0] <= self.bits // 2]
                assert list(zip(found_distances[row], found_ids[row], strict=True)) == near
                padding = None if ids.dtype == object else -1
                expected += [(-1, padding)] * k
                assert list(zip(distances[row], ids[row], strict=True)) == expected[:k]

    @invariant()
    def holds_the_same(self):
        if not hasattr(self, "naive"):
            return
        for index in (self.index, self.reader):
            assert len(index) == len(self.naive.held)
            items = index.items(list(self.naive.held))
            expected = [(path, tuple(labels)) for _, path, labels in self.naive.held.values()]
            assert [tuple(item) for item in items] == expected

    def teardown(self):
        if hasattr(self, "index"):
            self.index.close()
            self.reader.close()


@pytest.mark.parametrize("size", [2, 65_536])
def test_behaves_like_the_naive_index(tmp_path, monkeypatch, size):
    """Also with rows so small that every batch and every compaction spans several."""
    monkeypatch.setattr(chunks, "_CHUNK", size)
    monkeypatch.setattr(details, "_PAGE", max(1, size // 2))
    IndexMachine.folder = tmp_path
    machine = IndexMachine.TestCase()
    machine.settings = settings(
        max_examples=25,
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine.runTest()


@given(st.lists(st.lists(st.integers(-20, 20), max_size=12), max_size=12))
def test_the_lookup_finds_the_last_position_of_an_id(batches):
    lookup, positions, first = IntegerLookup(), {}, 0
    for batch in batches:
        lookup.extend(np.array(batch, np.int64), first)
        positions.update(zip(batch, range(first, first + len(batch)), strict=True))
        first += len(batch)
    wanted = np.arange(-25, 26)
    assert lookup.find(wanted).tolist() == [positions.get(key, -1) for key in wanted.tolist()]


def test_many_codes_in_several_chunks_survive_compaction(tmp_path):
    count = 150_000
    codes = random_codes(count, 32)
    ids = np.random.default_rng(1).permutation(count)
    with Index.create(tmp_path / "a.bp", 32) as index:
        index.add(ids, codes, labels=[[str(i % 7)] for i in ids])
        index.remove(ids[ids % 3 == 0])
    with Index.open(tmp_path / "a.bp") as index:
        before = index.search(codes[:20], 50), index.search(codes[:20], 50, "5")
        full = (tmp_path / "a.bp").stat().st_size
        index.compact()
        after = index.search(codes[:20], 50), index.search(codes[:20], 50, "5")
        assert (tmp_path / "a.bp").stat().st_size < 0.75 * full
        assert len(index) == np.count_nonzero(ids % 3)
    with Index.open(tmp_path / "a.bp") as index:
        again = index.search(codes[:20], 50), index.search(codes[:20], 50, "5")
    distances = codes[:20].hamming(codes)
    for number, eligible in enumerate([ids % 3 != 0, (ids % 3 != 0) & (ids % 7 == 5)]):
        positions = np.flatnonzero(eligible)
        order = np.argsort(distances[:, positions], axis=1, kind="stable")[:, :50]
        for matches in (before, after, again):
            np.testing.assert_array_equal(matches[number].ids, ids[positions][order])
            np.testing.assert_array_equal(
                matches[number].distances,
                np.take_along_axis(distances[:, positions], order, axis=1),
            )


def test_model_bits_and_path_are_kept(tmp_path):
    Index.create(tmp_path / "a.bp", 1024, model="dsdh/é").close()
    with Index.open(str(tmp_path / "a.bp")) as index:
        assert (index.bits, index.model, index.path) == (1024, "dsdh/é", tmp_path / "a.bp")
        assert repr(index).endswith("a.bp', 1024 bits)")
