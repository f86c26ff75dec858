import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
import traceback

import numpy as np
import pytest
from store_contract import Naive, StoreContract, check_answers, codes_of, create, random_codes

from bitprint.codes import Codes
from bitprint.search.stores import open_index

pytest.importorskip("pymilvus", reason="Milvus needs pip install .[milvus]")
pytest.importorskip("milvus_lite", reason="Milvus needs pip install .[milvus]")

from milvus_lite.server_manager import server_manager_instance

from bitprint.search.stores import (
    milvus_codes,
    milvus_pieces,
    milvus_rows,
    milvus_search,
    milvus_states,
    milvus_values,
)
from bitprint.search.stores.milvus_address import parse_address
from bitprint.search.stores.milvus_rows import Rows

SERVER = os.environ.get("BITPRINT_TEST_MILVUS")  # milvus://host:19530, to test a server too
needs_server = pytest.mark.skipif(SERVER is None, reason="needs a server in BITPRINT_TEST_MILVUS")


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """A file of Milvus Lite, kept open so that its engine starts once."""
    file = tmp_path_factory.mktemp("milvus") / "a.db"
    with open_index(f"milvus://{file}?index=kept", bits=8, create=True):
        yield file


@pytest.fixture(scope="module")
def lite_places(lite):
    numbers = itertools.count()
    return lambda: f"milvus://{lite}?index=n{next(numbers)}"


class TestMilvusLite(StoreContract):
    examples = 4

    @pytest.fixture
    def places(self, lite_places):
        return lite_places


@needs_server
class TestMilvusServer(StoreContract):
    examples = 1

    @pytest.fixture
    def places(self):
        made = []

        def place():
            made.append(f"{SERVER}?index=test_{time.time_ns()}")
            return made[-1]

        yield place
        for uri in made:
            drop(uri)


def drop(uri):
    from pymilvus import MilvusClient

    address = parse_address(uri)
    client = MilvusClient(address.server, token=address.token, db_name=address.database)
    client.drop_collection(address.index)
    client.close()


def stored_ordinals(index):
    """Every row there is, whatever it means."""
    return sorted(row["ordinal"] for row in index._rows.query("ordinal >= -1000", []))


class Killed(BaseException):
    """Stands for the end of the process: nobody catches it."""


def write_until(monkeypatch, step):
    """Let so many writes through, and then none; a row that was to be replaced is gone already."""
    left, delete, replace = iter(range(step)), Rows.delete, Rows.replace

    for name in ("insert", "replace", "delete"):
        original = getattr(Rows, name)

        def guarded(self, *arguments, original=original):
            if next(left, None) is None:
                if original is replace:
                    delete(self, f"ordinal == {arguments[0]}")
                raise Killed
            return original(self, *arguments)

        monkeypatch.setattr(Rows, name, guarded)


def everything(index):
    ids = index.ids().tolist()
    found = index.within(codes_of(0), radius=12)
    assert sorted(found.ids[0].tolist()) == sorted(ids)
    assert len(index) == len(ids)
    return ids, index.codes(ids).packed.tolist(), index.items(ids), index.attachments()


def change(index):
    with index.transaction():
        index.add(["c", "a"], codes_of(3, 4), labels=[["x"], []])
        index.remove(["b"])
        index.attach({"n": b"new", "m": b"more"})


def test_whoever_is_cut_short_at_any_step_leaves_the_old_state_or_the_new(lite_places):
    states, steps = [], itertools.count()
    done = False
    while not done:
        place = lite_places()
        with create(place, 12, attachments={"n": b"old"}) as index, open_index(place) as reader:
            index.add(["a", "b"], codes_of(1, 2), ["p", "q"])
            old = everything(reader)
            with pytest.MonkeyPatch.context() as patch:
                write_until(patch, next(steps))
                with contextlib.suppress(Killed):
                    change(index)
                    done = True
            with open_index(place) as fresh:
                states.append(everything(fresh))
            assert everything(reader) == everything(index) == states[-1]
            index.add(["d"], codes_of(5))
            ids, _, _, attachments = everything(reader)
            assert ids == [*states[-1][0], "d"]
            # Of what did not count, nothing is left but, at most, the list of what was deleted.
            header = reader._session.states.view().header
            ordinals = stored_ordinals(reader)
            codes = [ordinal for ordinal in ordinals if ordinal >= 0]
            assert len(codes) == 3
            assert max(codes) == header.total - 1
            assert len(ordinals) - len(codes) in (3 + len(attachments), 4 + len(attachments))
    new = states[-1]
    assert new[0] == ["c", "a"]
    assert new[3] == {"m": b"more", "n": b"new"}
    turn = states.index(new)
    assert states == [old] * turn + [new] * (len(states) - turn)
    assert 3 <= turn < len(states) - 1


def test_creation_that_is_cut_short_made_no_index(lite_places):
    place = lite_places()
    for step in (0, 1):
        with pytest.MonkeyPatch.context() as patch:
            write_until(patch, step)
            with pytest.raises(Killed):
                create(place, 12, attachments={"a": b"1"})
        with pytest.raises(FileNotFoundError, match="no such index"):
            open_index(place)
    with create(place, 16, attachments={"b": b"2"}) as index:
        assert (index.bits, index.attachments()) == (16, {"b": b"2"})


KILLED = """
import sys
import numpy as np
from bitprint.codes import Codes
from bitprint.search.stores import milvus_rows, open_index

milvus_rows._BATCH_ROWS = 10
with open_index(sys.argv[1]) as index:
    for number in range(10_000):
        ids = [*range(-30, 0), *range(100 * number, 100 * number + 70)]  # as `ids_of` below
        codes = Codes(np.full((100, 2), number % 256, np.uint8), 16)
        index.add(ids, codes, paths=[str(number)] * 100)
        print(number, flush=True)
"""


def ids_of(number):
    return [*range(-30, 0), *range(100 * number, 100 * number + 70)]


def test_a_process_killed_while_it_adds_leaves_whole_batches(tmp_path):
    place = f"milvus://{tmp_path}/b.db"
    create(place, 16).close()
    worker = subprocess.Popen(
        [sys.executable, "-c", KILLED, place], stdout=subprocess.PIPE, text=True
    )
    acknowledged = [int(worker.stdout.readline()) for _ in range(3)]
    time.sleep(0.03)
    worker.send_signal(signal.SIGKILL)
    acknowledged += map(int, worker.stdout.read().split())
    worker.wait()
    with open_index(place) as index:
        ids = index.ids().tolist()
        batches = [int(item.path) for item in index.items(ids)]
        assert index.codes(ids).packed[:, 0].tolist() == batches
        newest = max(batches)
        assert newest in (acknowledged[-1], acknowledged[-1] + 1)
        expected = {i: batch for batch in range(newest + 1) for i in ids_of(batch)}
        assert dict(zip(ids, batches, strict=True)) == expected
        index.remove(ids)
        assert (len(index), [i for i in stored_ordinals(index) if i >= 0]) == (0, [])


def test_a_lost_connection_leaves_nothing_half_done(tmp_path):
    place = f"milvus://{tmp_path}/c.db"
    index = open_index(place, bits=12, create=True, timeout=1.0)
    index.add([1], codes_of(1))

    def lose_the_connection():
        with index.transaction():
            index.add([2], codes_of(2))
            engine = server_manager_instance._servers[f"{tmp_path.resolve()}/c.db"]._p
            engine.kill()
            engine.wait()
            index.add([3], codes_of(3))

    with pytest.raises(ConnectionError, match=r"c\.db: the connection was lost .*try again"):
        lose_the_connection()
    with pytest.raises(ConnectionError):
        index.search(codes_of(1))
    index.close()
    with open_index(place) as index:
        assert index.ids().tolist() == [1]
        index.add([2], codes_of(2))
        assert index.codes([1, 2]) == codes_of(1, 2)


def test_a_server_that_is_not_there():
    start = time.monotonic()
    with pytest.raises(ConnectionError, match="cannot reach the server") as caught:
        open_index("milvus://me:hush@127.0.0.1:9/photos", timeout=1.0)
    assert time.monotonic() - start < 10
    assert str(caught.value).startswith("milvus://127.0.0.1:9/photos: ")
    assert "hush" not in str(caught.value)


def test_a_file_is_for_one_process_and_closing_frees_it(tmp_path):
    place = f"milvus://{tmp_path}/d.db"
    with create(place, 12), open_index(place) as other:
        pass
    with pytest.raises(ValueError, match="closed"):
        len(other)
    holder = "import fcntl, sys\nfile = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
    holder += "print(flush=True)\nsys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", holder, tmp_path / ".d.db.lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.stdout.readline()
    with pytest.raises(OSError, match=r"d\.db: .*which one process at a time may use"):
        open_index(place)
    process.communicate()
    open_index(place).close()


def test_a_file_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "e.db").write_bytes(b"no database" * 1000)
    with pytest.raises(OSError, match=r"e\.db: .*or it is no file of Milvus"):
        open_index(f"milvus://{tmp_path}/e.db")
    assert (tmp_path / "e.db").read_bytes() == b"no database" * 1000


@pytest.mark.parametrize("most", [4, 50])
def test_answers_are_exact_beyond_what_milvus_returns_at_once(lite_places, monkeypatch, most):
    monkeypatch.setattr(milvus_search, "MOST_HITS", most)
    monkeypatch.setattr(milvus_search, "_FIRST_WITHIN", 3)
    monkeypatch.setattr(milvus_search, "_SPARE", 0)
    codes = codes_of(*np.random.default_rng(0).integers(0, 5, 150), bits=10)
    naive = Naive()
    with create(lite_places(), 10) as index:
        index.add(range(150), codes, labels=[["x"] if i % 3 else [] for i in range(150)])
        index.remove(range(20, 60))
        kept = [*range(20), *range(60, 150)]
        naive.add(kept, codes[kept], [(None, ["x"] if i % 3 else []) for i in kept])
        for k, label, radius in [(1, None, 0), (7, "x", 4), (60, None, 6), (200, "x", 10)]:
            check_answers(index, naive, codes_of(1, 77, bits=10), k, label, radius)


def test_small_pages_and_batches(lite_places, monkeypatch):
    monkeypatch.setattr(milvus_rows, "_BATCH_ROWS", 7)
    for module in (milvus_rows, milvus_codes, milvus_pieces):
        monkeypatch.setattr(module, "PAGE", 5)
    monkeypatch.setattr(milvus_pieces, "_PIECES_PAGE", 3)
    monkeypatch.setattr(milvus_pieces, "_PIECE", 4)
    monkeypatch.setattr(milvus_values, "_NAMES_AT_ONCE", 4)
    contents = {str(i): bytes(range(i)) for i in range(12)}
    codes = random_codes(30, 12)
    with create(lite_places(), 12, attachments=contents) as index:
        index.add(range(30), codes, labels=[[str(i)] for i in range(30)])
        index.add(range(0, 30, 2), codes[::2])
        index.attach({"3": None, "11": b"other bytes"})
        assert index.ids().tolist() == [*range(1, 30, 2), *range(0, 30, 2)]
        assert index.labels() == sorted(str(i) for i in range(1, 30, 2))
        del contents["3"]
        assert index.attachments() == dict(sorted((contents | {"11": b"other bytes"}).items()))


def test_batches_stay_below_the_size_of_a_message(lite_places, monkeypatch):
    sizes = []
    original = Rows._insert
    monkeypatch.setattr(milvus_rows, "_BATCH_BYTES", 10_000)
    monkeypatch.setattr(
        Rows, "_insert", lambda self, batch: (sizes.append(len(batch)), original(self, batch))
    )
    with create(lite_places(), 12) as index:
        index.add(range(20), random_codes(20, 12), ["x" * 3000] * 20)
        assert sizes == [4, 4, 4, 4, 4]
        assert [item.path for item in index.items(range(20))] == ["x" * 3000] * 20


def test_a_name_that_is_too_long_is_refused_and_nothing_is_written(lite_places):
    with create(lite_places(), 12) as index:
        for arguments in (
            {"ids": ["a", "é" * 33_000]},
            {"ids": ["a", "b"], "paths": [None, "p" * 66_000]},
            {"ids": ["a", "b"], "labels": [[], ["l" * 40_000, "m" * 40_000]]},
        ):
            with pytest.raises(ValueError, match=r"bytes with its path and labels; Milvus stores"):
                index.add(codes=codes_of(1, 2), **arguments)
            assert index.ids().tolist() == []
        with pytest.raises(ValueError, match="takes 80"):  # as JSON, where a quote takes two
            index.add(["a"], codes_of(1), ['"' * 40_000])
        index.add(["é" * 20_000], codes_of(1), ["p" * 20_000])
        assert index.items(["é" * 20_000]) == [("p" * 20_000, ())]


def while_searching(monkeypatch, happens):
    """Let things happen, one at a time, after a search has been asked and before it is answered."""
    original, pending = Rows.search, iter(happens)

    def search(self, *arguments):
        next(pending, lambda: None)()
        return original(self, *arguments)

    monkeypatch.setattr(Rows, "search", search)


def test_a_search_sees_one_state_whatever_happens_meanwhile(lite_places, monkeypatch):
    place = lite_places()
    with create(place, 12) as index, open_index(place) as reader:
        index.add(["a", "b"], codes_of(1, 2))
        len(reader)
        happens = [
            lambda: index.add(["a", "b"], codes_of(2, 1)),  # the state that was known is over
            lambda: index.add(["a"], codes_of(3)),  # so is the next
            lambda: index.add(["c"], codes_of(1)),  # the next is whole still
        ]
        while_searching(monkeypatch, happens)
        ids, distances = reader.search(codes_of(1), k=3)
        assert ids.tolist() == [["b", "a", None]]
        assert distances.tolist() == [[0, codes_of(1).hamming(codes_of(3))[0, 0], -1]]
        assert reader.search(codes_of(1), k=3).ids.tolist() == [["b", "c", "a"]]


def test_an_index_that_is_closed_during_a_search_says_so(lite_places, monkeypatch):
    with create(lite_places(), 12) as index:
        index.add([1], codes_of(1))
        while_searching(monkeypatch, [index.close])
        with pytest.raises(ValueError, match="the index is closed; open it again"):
            index.search(codes_of(1))


@pytest.mark.parametrize("failing", ["delete", "replace"])
def test_what_is_stored_is_not_called_lost_when_the_rest_cannot_be_erased(lite_places, failing):
    """Of the writes of a change, the second that replaces a row is that of the header."""
    place = lite_places()
    with create(place, 12) as index, open_index(place) as reader:
        index.add(["a", "b"], codes_of(1, 2), ["p", "q"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(milvus_pieces, "_PIECE", 3)  # the list of one row takes two pages
            patch.setattr(milvus_pieces, "_PIECES_PAGE", 2)
            left = iter(range({"delete": 0, "replace": 2}[failing]))
            original = getattr(Rows, failing)

            def fail(self, *arguments):
                if next(left, None) is None:
                    raise OSError("the server failed, so nothing of this call was stored")
                return original(self, *arguments)

            patch.setattr(Rows, failing, fail)
            index.add(["a"], codes_of(3))
            assert everything(index) == everything(reader)
        assert everything(index)[:2] == (["b", "a"], codes_of(2, 3).packed.tolist())
        index.add(["c"], codes_of(4))  # erases what is left
        assert [i for i in stored_ordinals(reader) if i >= 0] == [1, 2, 3]
        assert everything(reader)[:2] == (["b", "a", "c"], codes_of(2, 3, 4).packed.tolist())


def test_of_two_who_write_one_is_told(lite_places):
    place = lite_places()
    with create(place, 12) as index, open_index(place) as other:
        index.add([1], codes_of(1))

        def write_both(meanwhile):
            with index.transaction():
                index.add([2], codes_of(2))
                meanwhile()

        with pytest.raises(ValueError, match="somebody else writes to this index, so nothing was"):
            write_both(lambda: other.add([3], codes_of(3)))
        assert index.ids().tolist() == [1, 3]
        with pytest.raises(ValueError, match="somebody else writes"):  # or has begun to
            write_both(other._session.states.begin)
        index.add([2], codes_of(2))
        assert other.ids().tolist() == [1, 3, 2]
        assert other.codes([1, 2, 3]) == codes_of(1, 2, 3)


def test_a_transaction_with_a_failed_change_is_not_made(lite_places):
    with create(lite_places(), 12) as index:

        def go_on_after_failing():
            with index.transaction():
                index.add([1], codes_of(1))
                with pytest.raises(ValueError, match="holds no id 9"):
                    index.remove([9])

        with pytest.raises(ValueError, match="a change inside of the transaction failed"):
            go_on_after_failing()
        assert len(index) == 0
        with index.transaction(), pytest.raises(ValueError, match="not for use inside"):
            index.compact()


def test_a_collection_of_somebody_else_is_refused(lite):
    from pymilvus import MilvusClient

    client = MilvusClient(str(lite))
    client.create_collection("theirs", dimension=8)
    for create_it in (True, False):
        with pytest.raises(ValueError, match=r"theirs was not made by bitprint; give another"):
            open_index(f"milvus://{lite}?index=theirs", bits=8, create=create_it)
    assert client.has_collection("theirs")
    client.close()


def test_an_index_of_a_newer_version_is_refused(lite_places, monkeypatch):
    place = lite_places()
    with monkeypatch.context() as patch:
        patch.setattr(milvus_states, "_VERSION", 2)
        create(place, 12).close()
    with pytest.raises(ValueError, match="an index of version 2, this is version 1; upgrade"):
        open_index(place)


def test_milvus_lite_has_no_approximate_search(lite_places, monkeypatch):
    with create(lite_places(), 12) as index:
        index.add([1, 2], codes_of(1, 2))
        with pytest.raises(ValueError, match="Milvus Lite has no index for approximate searches"):
            index.build_ivf()
        with pytest.raises(ValueError, match="call build_ivf, or search exactly"):
            index.search(codes_of(1), approximate=True)
        monkeypatch.setattr(Rows, "index_type", lambda self: "BIN_IVF_FLAT")
        asked = []
        original = index._rows.client.search
        monkeypatch.setattr(
            index._rows.client,
            "search",
            lambda **options: (asked.append(options), original(**options))[1],
        )
        found = index.search(codes_of(2), k=3, approximate=True, nprobe=5)
        assert found.ids.tolist() == [[2, 1, -1]]
        assert asked[0]["search_params"]["params"] == {"nprobe": 5}
        with pytest.raises(ValueError, match="nprobe is at most"):
            index.search(codes_of(1), approximate=True, nprobe=65_537)
        with pytest.raises(ValueError, match="finds at most 16384"):
            index.search(codes_of(1), k=16_385, approximate=True)


@needs_server
def test_approximate_searches_on_a_server():
    place = f"{SERVER}?index=test_{time.time_ns()}"
    codes = random_codes(3000, 64)
    expected = np.argsort(codes[:20].hamming(codes), axis=1, kind="stable")[:, :10]
    try:
        with create(place, 64) as index:
            index.add(range(3000), codes)
            index.build_ivf(lists=16)
            np.testing.assert_array_equal(index.search(codes[:20], k=10).ids, expected)
            few = index.search(codes[:20], k=10, approximate=True, nprobe=1).ids
            many = index.search(codes[:20], k=10, approximate=True, nprobe=16).distances
            assert few[:, 0].tolist() == list(range(20))
            assert not np.array_equal(few, expected)
            np.testing.assert_array_equal(many, np.sort(codes[:20].hamming(codes))[:, :10])
            index.compact()
    finally:
        drop(place)


def test_addresses():
    address = parse_address("milvus://root:a%40b@db.example:1234/photos?index=cats&tls=true")
    assert address.server == "https://db.example:1234"
    assert (address.database, address.token, address.index) == ("photos", "root:a@b", "cats")
    assert address.shown == "milvus://db.example:1234/photos?index=cats&tls=true"
    assert "a@b" not in repr(address)
    token = parse_address("milvus://secrettoken@[::1]")
    assert (token.server, token.token) == ("http://[::1]:19530", "secrettoken")
    assert (token.index, token.database, token.shown) == ("bitprint", "", "milvus://[::1]")
    assert token.file is None


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("milvus://host?index=a-b", "letters, digits and underscores, got 'a-b'"),
        ("milvus://host?index=", "letters, digits and underscores, got ''"),
        ("milvus://host?idx=a", "has no option idx"),
        ("milvus:///photos", "ends in .db"),
        ("milvus:///a/é.db", "ends in .db"),
        ("milvus://me:hush@host:port", "is not milvus://user:password@host"),
        ("milvus://me:12?hush@host", "is not milvus://user:password@host"),
        ("milvus://me:12/hush@host", "is not milvus://user:password@host"),
        ("milvus://me:12#hush@host", "is not milvus://user:password@host"),
        ("milvus://me:[hush]@host", "is not milvus://user:password@host"),
        ("milvus://me:hush\u2100@host", "is not milvus://user:password@host"),
        ("milvus://host#photos", "is not milvus://user:password@host"),
        ("milvus://me:hush@host?tls=yes", "is true or false, got 'yes'"),
    ],
)
def test_wrong_addresses(uri, message):
    with pytest.raises(ValueError, match=message) as caught:
        open_index(uri, timeout=0.5)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_what_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "milvus_lite.server_manager", None)
    with pytest.raises(ValueError, match=r"needs milvus_lite.*: pip install .* milvus-lite=="):
        create(f"milvus://{tmp_path}/e.db", 12)
    for name in [name for name in sys.modules if name.startswith("bitprint.search.stores.milvus")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(ValueError, match=r"milvus:// needs pymilvus: pip install 'pymilvus<2\.7'"):
        open_index(f"milvus://{tmp_path}/e.db")


def test_nothing_is_printed(lite_places, capfd):
    with create(lite_places(), 12) as index:
        index.add([1], codes_of(1))
    for wrong in (lite_places(), "milvus://127.0.0.1:9"):
        with pytest.raises(OSError, match=r"no such index|cannot reach"):
            open_index(wrong, timeout=0.5)
    assert capfd.readouterr() == ("", "")


def test_codes_are_stored_as_they_are_packed(lite_places):
    codes = Codes(np.array([[0b10110000, 0b11110000]], np.uint8), 12)
    with create(lite_places(), 12) as index:
        index.add(["a"], codes, labels=[['say "hi"']])
        (row,) = index._rows.query("ordinal == 0", ["name", "code", "details"])
    assert row["code"] == [bytes([0b10110000, 0b11110000])]
    assert row["details"] == {"path": None, "labels": ["say ~0022hi~0022"]}
