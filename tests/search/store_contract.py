"""The contract of all indexes; the tests of each back-end inherit the class.

A back-end provides the fixture `places`: a function that returns a path or an address at which
`open_index` can create an index, another one at each call. Tests of a `Promise` run only for
back-ends that make it.
"""

import signal
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from bitprint.codes import Codes
from bitprint.search.promises import Promise
from bitprint.search.stores import open_index

LABELS = ["cat", "dog", "", "été", 'it\'s "one" \\ {two}, %s', "\udcff"]
ODD_NAMES = [
    "plain",
    "two words",
    "caf\u00e9",
    "\udcff\udcfe",
    "line\nbreak\ttab\r",
    "",
    "x" * 3000,
]
ODD_NAMES += ["\\N", "'; DROP TABLE meta; --", '{"a", NULL}', "NULL", "\x1a0000", "\U0001f600"]


def random_codes(count, bits, seed=0):
    return Codes.from_signs(np.random.default_rng(seed).random((count, bits)) < 0.5)


def codes_of(*seeds, bits=12):
    """Return one code per seed."""
    parts = [random_codes(1, bits, seed).packed for seed in seeds]
    return Codes(np.concatenate([np.empty((0, -(-bits // 8)), np.uint8), *parts]), bits)


def create(place, bits, **options):
    return open_index(place, bits=bits, create=True, **options)


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


def check_answers(index, naive, queries, k, label, radius):
    """Compare both kinds of search with the naive ranking."""
    ids, distances = index.search(queries, k, label)
    found_ids, found_distances = index.within(queries, radius, label)
    assert ids.shape == distances.shape == (len(queries), k)
    assert distances.dtype == np.int32
    assert len(found_ids) == len(found_distances) == len(queries)
    padding = None if ids.dtype == object else -1
    for row, query in enumerate(queries.signs()):
        expected = naive.ranking(query, label)
        near = [pair for pair in expected if pair[0] <= radius]
        assert list(zip(found_distances[row], found_ids[row], strict=True)) == near
        expected += [(-1, padding)] * k
        assert list(zip(distances[row], ids[row], strict=True)) == expected[:k]


few_ids = st.lists(st.integers(0, 12), max_size=6, unique=True)
item = st.tuples(
    st.one_of(st.none(), st.text(max_size=3)), st.lists(st.sampled_from(LABELS), max_size=3)
)


WRITER = """
import sys
import numpy as np
from bitprint.codes import Codes
from bitprint.search.stores import open_index

place, first, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open_index(place) as index:
    for number in range(first, 10_000, step):
        ids = [*range(-30, 0), *range(100 * number, 100 * number + 70)]  # as batch_ids
        codes = Codes(np.full((100, 2), number % 256, np.uint8), 16)
        index.add(ids, codes, paths=[str(number)] * 100)
        print(number, flush=True)
"""


def batch_ids(number):
    """Return the ids of a batch of a `Writer`: 30 ids that all batches replace, and 70 new ones."""
    return [*range(-30, 0), *range(100 * number, 100 * number + 70)]


class Writer:
    """A process that adds batches first, first + step, ... to an index of 16 bits until killed."""

    def __init__(self, place, first=0, step=1):
        arguments = [sys.executable, "-c", WRITER, place, str(first), str(step)]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self.acknowledged = []

    def wait(self, batches):
        """Wait for this number of finished calls."""
        for _ in range(batches):
            self.acknowledged.append(int(self._process.stdout.readline()))

    def kill(self):
        """Kill the process in the middle of a call."""
        self._process.send_signal(signal.SIGKILL)
        self.acknowledged += map(int, self._process.stdout.read().split())
        self._process.wait()
        self._process.stdout.close()


def batches_by_id(index):
    """Return the number of the batch that stored each id, after comparing code and path."""
    ids = index.ids().tolist()
    numbers = [int(item.path) for item in index.items(ids)]
    assert index.codes(ids).packed[:, 0].tolist() == [number % 256 for number in numbers]
    assert len(index) == len(ids) == len(set(ids))
    return dict(zip(ids, numbers, strict=True))


def expected_after(number):
    """Return what `batches_by_id` returns after batch `number` of one writer."""
    return {key: batch for batch in range(number + 1) for key in batch_ids(batch)}


def promised(promise):
    """Run a test only for back-ends that make a promise."""

    def mark(test):
        test.promise = promise
        return test

    return mark


KEYS = {
    "names": lambda number: f"img/{number}\udcff é",
    "decimal strings": str,
    "consecutive integers": lambda number: number - 5,
    "distant integers": lambda number: number * 2**55 - 7,
}
"""Functions that return ids for small numbers."""


class StoreMachine(RuleBasedStateMachine):
    """Random operations on an index that is open twice, compared with the naive index."""

    places = None

    @initialize(
        bits=st.one_of(st.integers(1, 12), st.sampled_from([48, 64, 65, 128, 200])),
        kind=st.sampled_from(list(KEYS)),
    )
    def create(self, bits, kind):
        self.place = self.places()
        self.bits = bits
        self.key = KEYS[kind]
        self.index = create(self.place, bits, model="itq")
        self.reader = open_index(self.place)
        self.naive = Naive()

    def draw_codes(self, data, count):
        # A few base codes give many duplicates and ties.
        seeds = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        return codes_of(*seeds, bits=self.bits)

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
        with pytest.raises(ValueError, match="contains no id"):
            self.index.remove([known, self.key(99)])

    @rule()
    def compact(self):
        self.index.compact()

    @rule()
    def reopen(self):
        self.index.close()
        self.index = open_index(self.place)

    @rule()
    def change_roles(self):
        self.index, self.reader = self.reader, self.index

    @rule(
        data=st.data(), k=st.integers(1, 20), label=st.sampled_from([None, None, "bird", *LABELS])
    )
    def search(self, data, k, label):
        queries = self.draw_codes(data, 3)
        for index in (self.index, self.reader):
            check_answers(index, self.naive, queries, k, label, self.bits // 2)

    @invariant()
    def holds_the_same(self):
        if not hasattr(self, "naive"):
            return
        held = list(self.naive.held)
        expected = [(path, tuple(labels)) for _, path, labels in self.naive.held.values()]
        for index in (self.index, self.reader):
            assert len(index) == len(held)
            assert index.ids().tolist() == held
            assert [tuple(item) for item in index.items(held)] == expected

    def teardown(self):
        if hasattr(self, "index"):
            self.index.close()
            self.reader.close()


def play_histories(places, examples, steps=15):
    """Run random operations on this number of indexes."""
    machine = type("Machine", (StoreMachine,), {"places": staticmethod(places)}).TestCase()
    machine.settings = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    machine.runTest()


class StoreContract:
    """The tests; subclasses give the fixture `places`."""

    promises = frozenset(Promise)
    examples = 10
    """Number of random histories."""
    smallest_id = -(2**63)

    @pytest.fixture(autouse=True)
    def _only_promised(self, request):
        promise = getattr(request.function, "promise", None)
        if promise not in {None, *self.promises}:
            pytest.skip(f"not promised: {promise.value}")

    @pytest.fixture
    def shared_places(self, places):
        """Like `places`, for indexes that other processes open."""
        return places

    def test_promises_are_those_of_the_class(self, places):
        with create(places(), 8) as index:
            assert index.promises == self.promises

    def test_behaves_like_the_naive_index(self, places):
        play_histories(places, self.examples)

    @promised(Promise.EXACT)
    @pytest.mark.parametrize("bits", [1, 12, 64, 100, 1024])
    @pytest.mark.parametrize("strings", [False, True])
    def test_search_and_within_are_exact_with_ties_in_insertion_order(self, places, bits, strings):
        rng = np.random.default_rng(bits)
        seeds = rng.integers(0, 8, 200)  # every code some 25 times
        codes = codes_of(*seeds, bits=bits)
        ids = [str(i) if strings else int(i) for i in rng.permutation(200)]
        labels = [[LABELS[i % 4]] for i in range(200)]
        naive = Naive()
        with create(places(), bits) as index:
            index.add(ids[:150], codes[:150], labels=labels[:150])
            index.add(ids[100:], codes[100:], labels=labels[100:])
            naive.add(ids[:150], codes[:150], [(None, names) for names in labels[:150]])
            naive.add(ids[100:], codes[100:], [(None, names) for names in labels[100:]])
            for k, label, radius in [(1, None, 0), (30, None, bits // 2), (300, "dog", bits)]:
                check_answers(index, naive, codes_of(1, 2, 99, bits=bits), k, label, radius)

    def test_many_queries_at_once(self, places):
        codes, queries = random_codes(300, 16), random_codes(1000, 16, seed=1)
        with create(places(), 16) as index:
            index.add(range(300), codes)
            ids, distances = index.search(queries, k=5)
            within = index.within(queries, radius=4)
        expected = queries.hamming(codes)
        order = np.argsort(expected, axis=1, kind="stable")
        np.testing.assert_array_equal(ids, order[:, :5])
        np.testing.assert_array_equal(distances, np.sort(expected, axis=1)[:, :5])
        for row in range(1000):
            near = [i for i in order[row] if expected[row, i] <= 4]
            assert within.ids[row].tolist() == near
            assert within.distances[row].tolist() == expected[row, near].tolist()

    @pytest.mark.parametrize("form", [np.asarray, torch.tensor, list])
    def test_signs_in_any_form_are_taken_as_codes(self, places, form):
        codes = random_codes(20, 12)
        signs = form(codes.signs().tolist())
        with create(places(), 12) as index:
            index.add(range(20), signs)
            assert index.codes(range(20)) == codes
            expected = index.search(codes, k=3)
            np.testing.assert_array_equal(index.search(signs, k=3).ids, expected.ids)
            expected = index.within(codes, radius=2)
            found = index.within(signs, radius=2)
            assert [some.tolist() for some in found.ids] == [some.tolist() for some in expected.ids]
            with pytest.raises(ValueError, match=r"Codes.from_signs\(outputs >= 0\)"):
                index.search(np.full((1, 12), 0.5))

    def test_add_without_ids_numbers_the_codes(self, places):
        codes = random_codes(6, 12)
        with create(places(), 12) as index:
            index.add(codes[:2], paths=["a", "b"], labels=[["x"], []])
            index.add(codes=codes[2:3].signs())
            index.add(["7", "cat"], codes[3:5])
            index.remove(["0"])
            index.add(codes[5])
            index.add(random_codes(0, 12))
            assert index.ids().tolist() == ["1", "2", "7", "cat", "8"]
            assert index.codes(["1", "2", "8"]) == codes[[1, 2, 5]]
            assert index.items(["1"]) == [("b", ())]

    def test_add_without_ids_follows_integer_ids(self, places):
        with create(places(), 12) as index:
            index.add([-4], random_codes(1, 12))
            index.add(random_codes(2, 12))
            index.add([9], random_codes(1, 12))
            index.add(random_codes(1, 12))
            assert index.ids().tolist() == [-4, 0, 1, 9, 10]

    def test_model_bits_and_content_are_kept(self, places):
        place = places()
        with create(place, 1024, model="dsdh/é\udcff", attachments={"a": b"\0\xff"}) as index:
            index.add(["x"], random_codes(1, 1024), ["p"], [["l"]])
        with open_index(place) as index:
            assert (index.bits, index.model, len(index)) == (1024, "dsdh/é\udcff", 1)
            assert repr(index).endswith("1024 bits)")
            assert index.codes(["x"]) == random_codes(1, 1024)
            assert index.items(["x"]) == [("p", ("l",))]
            assert index.attachments() == {"a": b"\0\xff"}
            assert type(index.path)(index.path) == index.path

    def test_an_empty_index_answers_with_padding(self, places):
        with create(places(), 9) as index:
            assert (len(index), index.model, index.labels()) == (0, None, [])
            assert index.ids().tolist() == []
            ids, distances = index.search(random_codes(2, 9), k=3)
            assert ids.tolist() == distances.tolist() == [[-1] * 3] * 2
            assert [found.tolist() for found in index.within(random_codes(2, 9)).ids] == [[], []]
            assert index.search(random_codes(0, 9), k=3).ids.shape == (0, 3)
            assert index.within(random_codes(0, 9)) == ([], [])
            assert index.items([]) == []
            assert len(index.codes([])) == 0
            index.add([], random_codes(0, 9))
            index.remove([])
            index.attach({})
            index.compact()
            assert len(index) == 0

    @pytest.mark.parametrize("bits", [1, 12, 64, 100])
    def test_ids_and_codes_come_back(self, places, bits):
        codes = random_codes(10, bits)
        with create(places(), bits) as index:
            index.add(range(6), codes[:6])
            index.add(np.arange(6, 10, dtype=np.int32), codes[6:])
            index.remove([0, 7, 7])
            index.add([3], codes[:1])
            assert index.ids().dtype == np.int64
            assert index.ids().tolist() == [1, 2, 4, 5, 6, 8, 9, 3]
            assert index.codes([9, 3, 1, 9]) == codes[[9, 0, 1, 9]]
            with pytest.raises(ValueError, match="contains no id 7"):
                index.codes([1, 7])
            index.compact()
            assert index.ids().tolist() == [1, 2, 4, 5, 6, 8, 9, 3]
            assert index.codes([9, 3, 1]) == codes[[9, 0, 1]]

    def test_the_largest_and_smallest_ids(self, places):
        ids = [self.smallest_id, 2**63 - 1, 0, -1]
        with create(places(), 12) as index:
            index.add(ids, random_codes(4, 12))
            assert index.ids().tolist() == ids
            found, distances = index.search(random_codes(4, 12)[3], k=4)
            assert sorted(found[0].tolist()) == sorted(ids)
            assert distances[0, found[0].tolist().index(-1)] == 0

    def test_strings_of_any_kind_come_back(self, places):
        codes = random_codes(len(ODD_NAMES), 12)
        labels = [[name, "all"] for name in ODD_NAMES]
        place = places()
        with create(place, 12) as index:
            index.add(ODD_NAMES, codes, [name + "\0" for name in ODD_NAMES], labels)
        with open_index(place) as index:
            assert index.ids().tolist() == ODD_NAMES
            expected = [(name + "\0", (name, "all")) for name in ODD_NAMES]
            assert index.items(ODD_NAMES) == expected
            assert index.labels() == sorted([*ODD_NAMES, "all"])
            for number, name in enumerate(ODD_NAMES):
                assert index.search(codes[number], k=2, label=name).ids.tolist() == [[name, None]]
            index.remove(ODD_NAMES[3:])
            assert index.ids().tolist() == ODD_NAMES[:3]

    def test_labels_in_use(self, places):
        with create(places(), 12) as index:
            index.add([1, 2, 3], random_codes(3, 12), labels=[["b", "a", "b"], ["c"], []])
            index.add([4], random_codes(1, 12))
            assert index.labels() == ["a", "b", "c"]
            assert index.items([1, 3, 4]) == [(None, ("b", "a", "b")), (None, ()), (None, ())]
            index.remove([2])
            assert index.labels() == ["a", "b"]
            index.add([1], random_codes(1, 12), labels=[["\udcff"]])
            assert index.labels() == ["\udcff"]

    def test_paths_and_labels_are_replaced_with_the_code(self, places):
        with create(places(), 12) as index:
            index.add(["a", "b"], codes_of(1, 2), ["p", "q"], [["x"], ["x"]])
            index.add(["a"], codes_of(3))
            assert index.items(["a", "b"]) == [(None, ()), ("q", ("x",))]
            assert index.search(codes_of(1), k=2, label="x").ids.tolist() == [["b", None]]

    def test_attachments_are_kept_replaced_and_deleted(self, places):
        place = places()
        contents = {name: name.encode("utf-8", "surrogatepass") * 2 for name in ODD_NAMES}
        with create(place, 12, attachments={"model": bytes(100_000)}) as index:
            assert index.attachments() == {"model": bytes(100_000)}
            index.attach({"model": None, **contents})
            assert index.attachments() == contents
            index.attach({"plain": b"other", "caf\u00e9": None, "never there": None})
            contents["plain"] = b"other"
            del contents["caf\u00e9"]
            assert index.attachments() == contents
            index.add([1], random_codes(1, 12))
            index.compact()
        with open_index(place) as index:
            assert index.attachments() == contents
            assert len(index) == 1

    def test_a_prefix_selects_attachments_in_order(self, places):
        names = ["b/1", "a", "a/2", "a0", "a/\U0010ffff", "a/%", "a/_", "a/1", "A/1"]
        with create(places(), 12) as index:
            index.attach(dict.fromkeys(names, b""))
            below = ["a/%", "a/1", "a/2", "a/_", "a/\U0010ffff"]
            assert list(index.attachments("a/")) == below
            assert list(index.attachments("a/%")) == ["a/%"]
            assert list(index.attachments("a/_")) == ["a/_"]
            assert list(index.attachments("c")) == []

    @promised(Promise.VISIBLE)
    def test_another_who_opened_it_sees_every_change(self, places):
        place = places()
        with create(place, 12) as index, open_index(place) as reader:
            index.add(["a", "b"], codes_of(1, 2), labels=[["x"], []])
            assert reader.ids().tolist() == ["a", "b"]
            assert reader.search(codes_of(1), k=1).ids.tolist() == [["a"]]
            index.remove(["a"])
            assert (len(reader), reader.labels()) == (1, [])
            reader.add(["c"], codes_of(3))
            assert index.codes(["c"]) == codes_of(3)
            index.attach({"n": b"1"})
            assert reader.attachments() == {"n": b"1"}

    @promised(Promise.TRANSACTIONS)
    def test_a_transaction_happens_whole_or_not_at_all(self, places):
        place = places()
        with create(place, 12) as index, open_index(place) as reader:
            index.add(["a", "b"], codes_of(1, 2), labels=[["x"], ["y"]])
            index.attach({"n": b"2"})

            def fail_half_way():
                with index.transaction():
                    index.add(["c", "a"], codes_of(3, 4), labels=[["z"], ["z"]])
                    index.attach({"n": b"3"})
                    index.remove(["b"])
                    index.remove(["z"])

            with pytest.raises(ValueError, match="contains no id 'z'"):
                fail_half_way()
            for view in (index, reader):
                assert view.ids().tolist() == ["a", "b"]
                assert view.codes(["a", "b"]) == codes_of(1, 2)
                assert view.labels() == ["x", "y"]
                assert view.attachments() == {"n": b"2"}
                assert len(view) == 2
            with index.transaction():
                index.remove(["b"])
                index.attach({"n": b"1"})
                assert reader.ids().tolist() == ["a", "b"]
                assert reader.attachments() == {"n": b"2"}
            for view in (index, reader):
                assert view.ids().tolist() == ["a"]
                assert view.attachments() == {"n": b"1"}

    @promised(Promise.TRANSACTIONS)
    def test_a_transaction_sees_its_own_changes(self, places):
        with create(places(), 12) as index:
            index.add(["a", "b"], codes_of(1, 2))
            with index.transaction():
                index.add(["c", "a"], codes_of(3, 4), labels=[["z"], []])
                index.remove(["b"])
                index.attach({"n": b"3"})
                assert index.ids().tolist() == ["c", "a"]
                assert index.codes(["a", "c"]) == codes_of(4, 3)
                assert (len(index), index.labels()) == (2, ["z"])
                assert index.items(["c"]) == [(None, ("z",))]
                assert index.search(codes_of(4), k=1).ids.tolist() == [["a"]]
                assert index.attachments() == {"n": b"3"}
                with index.transaction():
                    index.remove(["c"])
            assert index.ids().tolist() == ["a"]

    @promised(Promise.TRANSACTIONS)
    def test_an_inner_transaction_that_fails_undoes_the_outer_one(self, places):
        with create(places(), 12) as index:
            index.add([1], codes_of(1))

            def fail_inside():
                with index.transaction():
                    index.add([2], codes_of(2))
                    with index.transaction():
                        index.add([3], codes_of(3))
                        index.remove([99])

            with pytest.raises(ValueError, match="contains no id 99"):
                fail_inside()
            assert index.ids().tolist() == [1]

    @promised(Promise.TRANSACTIONS)
    def test_failed_call_in_a_transaction_is_undone_alone(self, places):
        place = places()
        with create(place, 12) as index, open_index(place) as reader:
            index.add(["a", "b"], codes_of(1, 2), labels=[["x"], ["y"]])
            index.attach({"k": b"0"})
            with index.transaction():
                index.add(["c"], codes_of(3), labels=[["z"]])
                with pytest.raises(ValueError, match="contains no id 'q'"):
                    index.remove(["a", "q"])
                with pytest.raises(TypeError):
                    index.attach({"n": b"1", "m": 2})
                index.remove(["b"])
            for view in (index, reader):
                assert view.ids().tolist() == ["a", "c"]
                assert view.codes(["a", "c"]) == codes_of(1, 3)
                assert view.labels() == ["x", "z"]
                assert view.attachments() == {"k": b"0"}

    @promised(Promise.TRANSACTIONS)
    def test_failed_inner_transaction_is_undone_alone(self, places):
        place = places()
        with create(place, 12) as index, open_index(place) as reader:
            index.add([1], codes_of(1))
            with index.transaction():
                index.add([2], codes_of(2))
                with suppress(KeyError), index.transaction():
                    index.add([3, 1], codes_of(3, 4))
                    index.attach({"n": b"1"})
                    raise KeyError
                assert index.ids().tolist() == [1, 2]
                index.add([5], codes_of(5))
            for view in (index, reader):
                assert view.ids().tolist() == [1, 2, 5]
                assert view.codes([1, 2, 5]) == codes_of(1, 2, 5)
                assert view.attachments() == {}

    @promised(Promise.TRANSACTIONS)
    def test_compact_in_a_transaction_is_refused(self, places):
        with create(places(), 12) as index:
            with index.transaction():
                index.add([1], codes_of(1))
                with pytest.raises(ValueError, match=r"inside a transaction"):
                    index.compact()
            assert index.ids().tolist() == [1]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"ids": [1, 2, 1]}, "duplicate id 1 in"),
            ({"ids": [1, 2]}, "2 ids for 3 codes"),
            ({"ids": ["a", "b", "c"]}, "integer ids, got string ids"),
            ({"ids": [1, "b", 2]}, "all integers or all strings"),
            ({"ids": [1, True, 2]}, "all integers or all strings"),
            ({"ids": [1, 2, 2**63]}, "between"),
            ({"ids": "abc"}, "a list of"),
            ({"ids": ["a", "b", "c\0"]}, "null character"),
            ({"codes": random_codes(3, 8)}, "7 bits, got 8"),
            ({"codes": [[1, 2, 3]]}, "got other numbers: for real-valued outputs pass"),
            ({"codes": {"a": 1}}, "expected Codes, got dict"),
            ({"ids": random_codes(3, 7)}, r"index.add\(ids, codes\)"),
            ({"codes": None}, r"index.add\(ids, codes\)"),
            ({"ids": None, "codes": None}, "expected Codes, got NoneType"),
            ({"paths": ["a", "b"]}, "2 paths for 3 codes"),
            ({"paths": ["a", "b", b"c"]}, "a path must be a string"),
            ({"labels": [[], []]}, "2 lists of labels for 3 codes"),
            ({"labels": ["cat", "dog", "cat"]}, "list of strings, got 'cat'"),
            ({"labels": [[1], [], []]}, "list of strings"),
        ],
    )
    def test_a_wrong_batch_is_refused_and_nothing_is_written(self, places, change, message):
        with create(places(), 7) as index:
            index.add([5], random_codes(1, 7), ["five"])
            with pytest.raises(ValueError, match=message):
                index.add(**{"ids": [1, 2, 3], "codes": random_codes(3, 7)} | change)
            assert index.ids().tolist() == [5]
            assert index.items([5]) == [("five", ())]

    def test_wrong_questions_are_refused(self, places):
        with create(places(), 7) as index:
            index.add(["x", "3"], random_codes(2, 7))
            for call, message in [
                (lambda: index.search(random_codes(1, 8)), "7 bits, got 8"),
                (lambda: index.within(random_codes(1, 6)), "7 bits, got 6"),
                (lambda: index.search(random_codes(1, 7), k=0), "k must be an integer"),
                (lambda: index.search(random_codes(1, 7), k=True), "k must be an integer"),
                (
                    lambda: index.within(random_codes(1, 7), radius=-1),
                    "radius must be an integer",
                ),
                (lambda: index.items(["x", "y"]), "no id 'y'"),
                (lambda: index.items([3]), "no id 3"),
                (lambda: index.remove([3]), "no id 3"),
                (lambda: index.codes(["x", "\udcff"]), "no id"),
            ]:
                with pytest.raises(ValueError, match=message):
                    call()
            assert len(index) == 2
        for call in (
            lambda: index.search(random_codes(1, 7)),
            lambda: len(index),
            lambda: index.add(["y"], random_codes(1, 7)),
            lambda: index.transaction().__enter__(),
        ):
            with pytest.raises(ValueError, match="the index is closed; open it again"):
                call()
        index.close()

    @pytest.mark.parametrize("bits", [0, -3, 1025, 2.5, True])
    def test_bits_are_1_to_1024(self, places, bits):
        place = places()
        with pytest.raises(ValueError, match="bits"):
            create(place, bits)
        with pytest.raises(FileNotFoundError):
            open_index(place)

    def test_only_what_is_there_opens_and_only_what_is_not_is_made(self, places):
        place = places()
        with pytest.raises(FileNotFoundError, match="no such index"):
            open_index(place)
        with pytest.raises(ValueError, match="number of bits of its codes; give bits="):
            open_index(place, create=True)
        with create(place, 12, model="itq") as index:
            index.add([1], random_codes(1, 12))
        with pytest.raises(FileExistsError, match="exists already"):
            create(place, 12)
        with pytest.raises(ValueError, match="has codes of 12 bits, not 16"):
            open_index(place, bits=16)
        with pytest.raises(ValueError, match="computed by itq and cannot be compared with"):
            open_index(place, model="dsdh")
        with open_index(place, bits=12, model="itq") as index:
            assert len(index) == 1

    def search_while_writing(self, places):
        """Return the ids that searches found while one thread added, replaced and removed."""
        codes = random_codes(10, 16)
        found, errors, done = [], [], threading.Event()

        def search(index):
            try:
                while True:
                    ids, distances = index.search(codes[:1], k=1000)
                    found.append(ids[0][distances[0] >= 0].tolist())
                    if done.is_set():
                        return
            except Exception as error:
                errors.append(error)

        with create(places(), 16) as index:
            threads = [threading.Thread(target=search, args=(index,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for start in range(0, 100, 10):
                index.add(range(start, start + 10), codes)
                if start % 50 == 40:
                    index.add(range(start, start + 10), codes)
                    index.remove(range(start - 10, start))
                    index.compact()
            done.set()
            for thread in threads:
                thread.join()
            assert errors == []
            assert len(index) == 80
        return found

    def test_threads_can_share_an_index(self, places):
        found = self.search_while_writing(places)
        assert found
        assert set().union(*found) <= set(range(100))

    @promised(Promise.ISOLATED)
    def test_search_sees_no_part_of_a_call(self, places):
        found = self.search_while_writing(places)
        assert found
        assert all(len(ids) % 10 == 0 and len(set(ids)) == len(ids) for ids in found)

    def killed_writer(self, place):
        """Create an index, and kill a process that writes to it; return the finished batches."""
        create(place, 16).close()
        writer = Writer(place)
        writer.wait(3)
        writer.kill()
        return writer.acknowledged

    @promised(Promise.DURABLE)
    def test_killed_writer_loses_no_finished_call(self, shared_places):
        place = shared_places()
        finished = self.killed_writer(place)
        with open_index(place) as index:
            stored = batches_by_id(index)
        for key, batch in expected_after(finished[-1]).items():
            assert stored[key] == batch if key >= 0 else stored[key] in (batch, batch + 1)

    @promised(Promise.ATOMIC)
    def test_killed_writer_leaves_no_partial_call(self, shared_places):
        place = shared_places()
        finished = self.killed_writer(place)
        with open_index(place) as index:
            stored = batches_by_id(index)
        assert stored in (expected_after(finished[-1]), expected_after(finished[-1] + 1))

    @promised(Promise.REPEATABLE)
    def test_repeated_add_completes_an_interrupted_one(self, shared_places):
        place = shared_places()
        number = self.killed_writer(place)[-1] + 1
        with open_index(place) as index:
            for _ in range(2):
                codes = Codes(np.full((100, 2), number % 256, np.uint8), 16)
                index.add(batch_ids(number), codes, [str(number)] * 100)
                assert batches_by_id(index) == expected_after(number)
                assert index.ids()[-100:].tolist() == batch_ids(number)

    @promised(Promise.SHARED)
    def test_two_processes_that_write_lose_nothing(self, shared_places):
        place = shared_places()
        create(place, 16).close()
        writers = [Writer(place, first=first, step=2) for first in (0, 1)]
        for writer in writers:
            writer.wait(5)
        for writer in writers:
            writer.kill()
        with open_index(place) as index:
            stored = batches_by_id(index)
        for writer in writers:
            for number in writer.acknowledged:
                assert all(stored[key] == number for key in batch_ids(number) if key >= 0)
        assert all(stored[key] >= 1 for key in range(-30, 0))
