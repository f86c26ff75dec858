import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
import traceback
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from store_contract import (
    Naive,
    StoreContract,
    Writer,
    batches_by_id,
    check_answers,
    codes_of,
    create,
    expected_after,
    random_codes,
)

from bitprint.codes import Codes
from bitprint.data import draw_shapes
from bitprint.methods import create as create_method
from bitprint.photos import Photos
from bitprint.photos.encoder import Encoder
from bitprint.search.stores import open_index

pytest.importorskip("pymilvus", reason="Milvus needs pip install .[milvus]")
pytest.importorskip("milvus_lite", reason="Milvus needs pip install .[milvus]")

from milvus_lite.server_manager import server_manager_instance
from pymilvus import MilvusClient

from bitprint.search.stores import milvus, milvus_collections, milvus_connection
from bitprint.search.stores.milvus_collections import CodeRows
from bitprint.search.stores.milvus_connection import MilvusConnection, parse_address

SERVER = os.environ.get("BITPRINT_TEST_MILVUS")  # milvus://host:19530, to test a server too
needs_server = pytest.mark.skipif(SERVER is None, reason="needs a server in BITPRINT_TEST_MILVUS")


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """On a busy machine, the engine of a killed process may need more than five seconds to end."""
    monkeypatch.setattr(milvus_connection, "_LONGEST_ENDING", 120.0)


@pytest.fixture(scope="module")
def lite(tmp_path_factory):
    """A file of Milvus Lite that stays open, so that its engine starts only once."""
    file = tmp_path_factory.mktemp("milvus") / "a.db"
    with open_index(f"milvus://{file}?index=kept", bits=8, create=True):
        yield file


@pytest.fixture(scope="module")
def lite_places(lite):
    numbers = itertools.count()
    return lambda: f"milvus://{lite}?index=n{next(numbers)}"


class TestMilvusLite(StoreContract):
    promises = milvus.LITE_PROMISES
    examples = 4
    smallest_id = -(2**63) + 1

    @pytest.fixture
    def places(self, lite_places):
        return lite_places

    @pytest.fixture
    def shared_places(self, tmp_path):
        numbers = itertools.count()
        return lambda: f"milvus://{tmp_path}/{next(numbers)}.db"


@needs_server
class TestMilvusServer(StoreContract):
    promises = milvus.SERVER_PROMISES
    examples = 1
    smallest_id = -(2**63) + 1

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
    address = parse_address(uri)
    client = MilvusClient(address.server, token=address.token, db_name=address.database)
    for name in (address.index, f"{address.index}_attachments"):
        client.drop_collection(name)
    client.close()


class Killed(BaseException):
    """Stands for the end of the process: no code catches it."""


WRITES = {"create_collection", "create_index", "load_collection", "upsert", "delete"}


@contextlib.contextmanager
def killed_at(step):
    """Raise Killed instead of write number `step`, and at all later ones."""
    call, steps = MilvusConnection.call, itertools.count()

    def guarded(self, method, **arguments):
        if method in WRITES and next(steps) >= step:
            raise Killed
        return call(self, method, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MilvusConnection, "call", guarded)
        yield


def test_create_interrupted_at_any_write_makes_no_index(lite_places):
    place = lite_places()
    for step in itertools.count():
        try:
            with killed_at(step), create(place, 12, attachments={"a": b"1", "b": b"2"}):
                break
        except Killed:
            with pytest.raises(FileNotFoundError, match="no such index"):
                open_index(place)
    assert step >= 5
    with open_index(place) as index:
        assert (index.bits, index.attachments()) == (12, {"a": b"1", "b": b"2"})


def test_first_add_interrupted_at_any_write_can_be_repeated(lite_places, monkeypatch):
    monkeypatch.setattr(milvus_collections, "_BATCH_ROWS", 2)
    place = lite_places()
    create(place, 12).close()
    for step in itertools.count():
        with open_index(place) as index, contextlib.suppress(Killed), killed_at(step):
            index.add(range(5), codes_of(*range(5)))
            break
        with open_index(place) as index:
            assert index.ids().tolist() == list(range(5))[: len(index)]
    assert step == 4
    with open_index(place) as index:
        assert index.ids().tolist() == list(range(5))
        assert index.codes(range(5)) == codes_of(*range(5))


def test_interrupted_calls_leave_other_codes_and_can_be_repeated(lite_places, monkeypatch):
    monkeypatch.setattr(milvus_collections, "_BATCH_ROWS", 2)
    monkeypatch.setattr(milvus_collections, "_NAMES_AT_ONCE", 2)
    with create(lite_places(), 12) as index:
        index.add(["a", "b"], codes_of(1, 2), ["p", "q"], [["x"], []])
        for step in range(3):
            with pytest.raises(Killed), killed_at(step):
                index.add(["c", "d", "e", "f", "g"], codes_of(3, 4, 5, 6, 7))
            assert index.ids().tolist() == ["a", "b", "c", "d", "e", "f", "g"][: 2 + 2 * step]
        index.add(["c", "d", "e", "f", "g"], codes_of(3, 4, 5, 6, 7))
        assert index.codes(["g", "f", "e", "d", "c"]) == codes_of(7, 6, 5, 4, 3)
        with pytest.raises(Killed), killed_at(1):
            index.remove(["c", "d", "e", "f", "g"])
        assert index.ids().tolist() == ["a", "b", "e", "f", "g"]
        index.remove(["e", "f", "g"])
        assert index.codes(["a", "b"]) == codes_of(1, 2)
        assert index.items(["a", "b"]) == [("p", ("x",)), ("q", ())]


@pytest.mark.parametrize("old", [bytes(100), b"a" * 55, b"short"], ids=len)
def test_interrupted_attachment_is_noticed_and_can_be_repeated(lite_places, monkeypatch, old):
    monkeypatch.setattr(milvus_collections, "_CHUNK", 10)
    monkeypatch.setattr(milvus_collections, "_BATCH_ROWS", 2)
    new = bytes(range(30))
    with create(lite_places(), 12, attachments={"model": old, "other": b"kept"}) as index:
        with pytest.raises(Killed), killed_at(1):
            index.attach({"model": new})
        with pytest.raises(ValueError, match=r"model is incomplete .* attach it again"):
            index.attachments()
        assert index.attachments("other") == {"other": b"kept"}
        index.attach({"model": new})
        assert index.attachments() == {"model": new, "other": b"kept"}
        index.attach({"model": b"", "other": None})
        assert index.attachments() == {"model": b""}


def test_photos_interrupted_at_any_write_are_completed(lite_places, tmp_path):
    """Each round changes, renames, deletes and adds an image, then interrupts `sync` once."""
    scenes = draw_shapes(100, size=16)
    encoder = Encoder(create_method("itq", bits=2).fit(scenes))
    folder = tmp_path.resolve() / "album"
    (folder / "dogs").mkdir(parents=True)
    images = iter(scenes.pixels)

    def draw(name):
        Image.fromarray(next(images)).save(folder / name)

    for number in range(4):
        draw(f"{number}.png")
    with Photos.create(lite_places(), encoder) as photos:
        for step in itertools.count():
            finished = False
            run = photos.sync if step else partial(photos.add, folder)
            with contextlib.suppress(Killed), killed_at(step):
                run()
                finished = True
            run()
            paths = sorted(path.as_posix() for path in folder.rglob("*.png"))
            assert sorted(photos.index.ids()) == sorted(photos._ledger.facts()) == paths
            pictures = [np.asarray(Image.open(path)) for path in paths]
            assert photos.index.codes(paths) == encoder.encode(pictures)
            labels = [item.labels for item in photos.index.items(paths)]
            assert labels == [("dogs",) if "/dogs/" in path else () for path in paths]
            if finished:
                break
            gone, changed, moved = sorted(folder.glob("*.png"))[:3]
            gone.unlink()
            draw(changed.name)
            moved.rename(folder / "dogs" / moved.name)
            draw(f"{10 + 2 * step}.png")
            draw(f"{11 + 2 * step}.png")
    assert step >= 10


def test_second_process_is_refused_and_nothing_is_lost(tmp_path):
    """Milvus Lite alone refuses only the first attempt."""
    place = f"milvus://{tmp_path}/b.db"
    create(place, 16).close()
    writer = Writer(place)
    writer.wait(2)
    for _ in range(3):
        with pytest.raises(OSError, match=r"b\.db: another process is using .* close it there"):
            open_index(place)
        writer.wait(1)
    writer.kill()
    with open_index(place) as index:
        stored = batches_by_id(index)
    finished = writer.acknowledged[-1]
    assert {key: batch for key, batch in stored.items() if 0 <= key < 100 * (finished + 1)} == {
        key: batch for key, batch in expected_after(finished).items() if key >= 0
    }


def test_file_that_another_program_uses_is_refused(tmp_path, monkeypatch):
    """Programs without Bitprint use only the lock of Milvus Lite, which must stay intact."""
    place, lock = f"milvus://{tmp_path}/f.db", tmp_path / ".f.db.lock"
    create(place, 12).close()
    program = "import fcntl, sys\nfile = open(sys.argv[1], 'a')\nfcntl.lockf(file, fcntl.LOCK_EX)\n"
    program += "print(flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        with monkeypatch.context() as patch:
            patch.setattr(milvus_connection, "_LONGEST_ENDING", 0.1)
            for _ in range(2):
                with pytest.raises(OSError, match=r"f\.db: another process is using"):
                    open_index(place)
        assert lock.exists()
        threading.Timer(0.3, process.stdin.close).start()
        open_index(place).close()  # waits for the end of the other process


def test_file_is_freed_when_its_last_index_is_closed(tmp_path):
    place = f"milvus://{tmp_path}/d.db"
    (tmp_path / "link.db").symlink_to("d.db")
    with create(place, 16) as index, open_index(f"milvus://{tmp_path}/link.db") as other:
        other.add([1], codes_of(1, bits=16))
        index.close()
        index.close()
        assert other.ids().tolist() == [1]
        with pytest.raises(ValueError, match="the index is closed; open it again"):
            len(index)
    writer = Writer(place)
    writer.wait(1)
    writer.kill()


def test_killed_engine_is_a_lost_connection(tmp_path):
    place = f"milvus://{tmp_path}/c.db"
    index = open_index(place, bits=12, create=True)
    index.add([1], codes_of(1))
    engine = server_manager_instance._servers[f"{tmp_path.resolve()}/c.db"]._p
    engine.kill()
    engine.wait()
    for call in (lambda: index.add([2], codes_of(2)), lambda: index.search(codes_of(1))):
        with pytest.raises(ConnectionError, match=r"c\.db: the connection was lost .*repeat the"):
            call()
    index.close()
    with open_index(place) as index:
        index.add([2], codes_of(2))
        assert index.ids().tolist() == [1, 2]
        assert index.codes([1, 2]) == codes_of(1, 2)


def test_a_server_that_is_not_there():
    start = time.monotonic()
    with pytest.raises(ConnectionError, match="cannot reach the server") as caught:
        open_index("milvus://me:hush@127.0.0.1:9/photos", timeout=1.0)
    assert time.monotonic() - start < 60
    assert str(caught.value).startswith("milvus://127.0.0.1:9/photos: ")
    assert "hush" not in str(caught.value)


def test_file_of_another_program_is_refused(tmp_path):
    (tmp_path / "e.db").write_bytes(b"no database" * 1000)
    for _ in range(2):
        with pytest.raises(OSError, match=r"e\.db: Milvus Lite cannot open this file; give a"):
            open_index(f"milvus://{tmp_path}/e.db")
    assert (tmp_path / "e.db").read_bytes() == b"no database" * 1000


@pytest.mark.parametrize("most", [4, 50])
def test_answers_are_exact_beyond_what_milvus_returns_at_once(lite_places, monkeypatch, most):
    monkeypatch.setattr(milvus, "MOST_HITS", most)
    monkeypatch.setattr(milvus, "_FIRST_WITHIN", 3)
    monkeypatch.setattr(milvus, "_SPARE", 0)
    codes = codes_of(*np.random.default_rng(0).integers(0, 5, 150), bits=10)
    naive = Naive()
    with create(lite_places(), 10) as index:
        index.add(range(150), codes, labels=[["x"] if i % 3 else [] for i in range(150)])
        index.remove(range(20, 60))
        kept = [*range(20), *range(60, 150)]
        naive.add(kept, codes[kept], [(None, ["x"] if i % 3 else []) for i in kept])
        for k, label, radius in [(1, None, 0), (7, "x", 4), (60, None, 6), (200, "x", 10)]:
            check_answers(index, naive, codes_of(1, 77, bits=10), k, label, radius)


def test_insertion_order_survives_a_clock_that_goes_back(lite_places, monkeypatch):
    times = iter([1_000, 500, 400, 2_000])
    monkeypatch.setattr(milvus_collections, "time", SimpleNamespace(time_ns=lambda: next(times)))
    with create(lite_places(), 12) as index:
        for start in range(0, 40, 10):
            index.add(range(start, start + 10), codes_of(*[1] * 10))
        assert index.ids().tolist() == list(range(40))
        assert index.search(codes_of(1), k=40).ids[0].tolist() == list(range(40))


def test_small_pages_and_batches(lite_places, monkeypatch):
    for name, value in [
        ("_BATCH_ROWS", 7),
        ("_PAGE", 5),
        ("_CHUNKS_PAGE", 3),
        ("_CHUNK", 4),
        ("_NAMES_AT_ONCE", 4),
    ]:
        monkeypatch.setattr(milvus_collections, name, value)
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


def test_requests_stay_below_the_size_of_a_message(lite_places, monkeypatch):
    sizes = []
    call = MilvusConnection.call

    def note(self, method, **arguments):
        if method == "upsert":
            sizes.append(len(arguments["data"]))
        return call(self, method, **arguments)

    monkeypatch.setattr(milvus_collections, "_BATCH_BYTES", 10_000)
    with create(lite_places(), 12) as index:
        monkeypatch.setattr(MilvusConnection, "call", note)
        index.add(range(20), random_codes(20, 12), ["x" * 3000] * 20)
        assert sizes == [4, 4, 4, 4, 4]
        assert [item.path for item in index.items(range(20))] == ["x" * 3000] * 20


def test_what_milvus_cannot_store_is_refused(lite_places):
    with create(lite_places(), 12) as index:
        for arguments, what in (
            ({"ids": ["a", "é" * 33_000]}, "id of 'é"),
            ({"ids": ["a", "b"], "paths": [None, "p" * 66_000]}, "path of 'b' has 66000"),
            ({"ids": ["a", "b"], "labels": [[], ["l" * 40_000, "m" * 40_000]]}, "labels of 'b'"),
        ):
            with pytest.raises(ValueError, match=f"the {what}.* bytes; Milvus stores at most"):
                index.add(codes=codes_of(1, 2), **arguments)
            assert index.ids().tolist() == []
        index.add(["é" * 20_000], codes_of(1), ["p" * 60_000])
        assert index.items(["é" * 20_000]) == [("p" * 60_000, ())]
    with create(lite_places(), 12) as index:
        with pytest.raises(ValueError, match="Milvus cannot store the id -9223372036854775808"):
            index.add([-(2**63)], codes_of(1))
        index.add([-(2**63) + 1], codes_of(1))
        with pytest.raises(ValueError, match="contains no id -9223372036854775808"):
            index.remove([-(2**63)])
        assert len(index) == 1


def test_first_codes_can_be_added_by_two_writers(lite_places, monkeypatch):
    place = lite_places()
    with create(place, 12) as index, open_index(place) as other:
        create_codes = CodeRows._create

        def create_after_the_other(self, *arguments):
            monkeypatch.undo()
            other.add([1], codes_of(1))
            create_codes(self, *arguments)

        monkeypatch.setattr(CodeRows, "_create", create_after_the_other)
        index.add([2], codes_of(2))
        assert index.ids().tolist() == other.ids().tolist() == [1, 2]


def test_index_closed_during_a_search_is_explained(lite_places, monkeypatch):
    with create(lite_places(), 12) as index:
        index.add([1], codes_of(1))
        search = index._connection.client.search

        def close_first(**arguments):
            index.close()
            return search(**arguments)

        monkeypatch.setattr(index._connection.client, "search", close_first)
        with pytest.raises(ValueError, match="the index is closed; open it again"):
            index.search(codes_of(1))


def test_transaction_is_refused(lite_places):
    with create(lite_places(), 12) as index, pytest.raises(ValueError, match="has no transactions"):
        index.transaction()


def test_collection_of_another_program_is_refused(lite):
    client = MilvusClient(str(lite))
    client.create_collection("theirs", dimension=8)
    for create_it in (True, False):
        with pytest.raises(ValueError, match=r"theirs does not belong to this index; give another"):
            open_index(f"milvus://{lite}?index=theirs", bits=8, create=create_it)
    assert client.has_collection("theirs")
    client.close()


def test_collection_of_an_earlier_layout_is_refused(lite):
    client = MilvusClient(str(lite))
    schema = client.create_schema(description="bitprint.index")
    schema.add_field("ordinal", milvus_collections.DataType.INT64, is_primary=True)
    schema.add_field("code", milvus_collections.DataType.BINARY_VECTOR, dim=8)
    client.create_collection("early", schema=schema)
    for create_it in (True, False):
        with pytest.raises(ValueError, match=r"early has the layout of an earlier .* build the"):
            open_index(f"milvus://{lite}?index=early", bits=8, create=create_it)
    client.close()


def test_index_of_a_newer_version_is_refused(lite_places, monkeypatch):
    place = lite_places()
    with monkeypatch.context() as patch:
        patch.setattr(milvus_collections, "_VERSION", 3)
        create(place, 12).close()
    with pytest.raises(ValueError, match="index format version 3 is not supported"):
        open_index(place)


def test_index_deleted_while_open_is_missing(lite_places):
    place = lite_places()
    with create(place, 12) as index:
        index.add([1], codes_of(1))
        drop(place)
        for call in (lambda: len(index), lambda: index.search(codes_of(1)), index.attachments):
            with pytest.raises(FileNotFoundError, match="no such index"):
                call()


def test_milvus_lite_has_no_approximate_search(lite_places, monkeypatch):
    with create(lite_places(), 12) as index:
        with pytest.raises(ValueError, match="call build_ivf, or search exactly"):
            index.search(codes_of(1), approximate=True)
        index.add([1, 2], codes_of(1, 2))
        with pytest.raises(ValueError, match="Milvus Lite has no index for approximate searches"):
            index.build_ivf()
        with pytest.raises(ValueError, match="call build_ivf, or search exactly"):
            index.search(codes_of(1), approximate=True)
        monkeypatch.setattr(index._codes, "vector_index", lambda: "BIN_IVF_FLAT")
        asked = []
        call = MilvusConnection.call
        monkeypatch.setattr(
            MilvusConnection,
            "call",
            lambda self, name, **given: (asked.append((name, given)), call(self, name, **given))[1],
        )
        found = index.search(codes_of(2), k=3, approximate=True, nprobe=5)
        assert found.ids.tolist() == [[2, 1, -1]]
        ((name, given),) = asked
        assert (name, given["search_params"]["params"]) == ("search", {"nprobe": 5})
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
        ("milvus:///photos", "end in .db"),
        ("milvus:///a/é.db", "end in .db"),
        ("milvus://me:hush@host:port", "is not milvus://user:password@host"),
        ("milvus://me:12?hush@host", "is not milvus://user:password@host"),
        ("milvus://me:12/hush@host", "is not milvus://user:password@host"),
        ("milvus://me:12#hush@host", "is not milvus://user:password@host"),
        ("milvus://me:[hush]@host", "is not milvus://user:password@host"),
        ("milvus://me:hush\u2100@host", "is not milvus://user:password@host"),
        ("milvus://host#photos", "is not milvus://user:password@host"),
        ("milvus://me:hush@host?tls=yes", "must be true or false, got 'yes'"),
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


def test_collections_have_the_consistency_level_strong(lite_places, monkeypatch):
    """Milvus Lite ignores the level and has only this one."""
    levels = []
    create_collection = MilvusClient.create_collection

    def note(self, **arguments):
        levels.append(arguments["consistency_level"])
        create_collection(self, **arguments)

    monkeypatch.setattr(MilvusClient, "create_collection", note)
    with create(lite_places(), 12) as index:
        index.add([1], codes_of(1))
    assert levels == ["Strong", "Strong"]


def test_rows_are_readable_in_other_tools(lite, lite_places):
    place = lite_places()
    name = parse_address(place).index
    codes = Codes(np.array([[0b10110000, 0b11110000], [0, 0]], np.uint8), 12)
    with create(place, 12, model="itq", attachments={"notes/1": b"by Ada"}) as index:
        index.add(["a", "it's"], codes, ["/a.jpg", None], [['say "hi"', "cat"], []])
        index.attach({"bytes": b"\xff\0"})
        client = MilvusClient(str(lite))
        described = client.describe_collection(name)
        rows = client.query(name, filter="added > 0", output_fields=["*"])
        attached = client.query(f"{name}_attachments", filter="part >= 0", output_fields=["*"])
        client.close()
    assert [field["name"] for field in described["fields"]] == [
        *("id", "code", "path", "labels", "added"),
    ]
    assert described["fields"][1]["description"] == "code of 12 bits"
    assert described["description"] == "Codes of a bitprint index, one row per code"
    first, second = sorted(rows, key=lambda row: row["added"])
    assert second["added"] == first["added"] + 1
    assert first | {"added": 0} == {
        "id": "a",
        "code": [bytes([0b10110000, 0b11110000])],
        "path": "/a.jpg",
        "labels": {"names": ["say ~0022hi~0022", "cat"]},
        "added": 0,
    }
    assert (second["id"], second["path"], second["labels"]) == ("it~0027s", "", {"names": []})
    contents = {row["key"]: (row["encoding"], row["content"]) for row in attached}
    assert contents == {
        "notes/1#0": ("ascii", "by Ada"),
        "bytes#0": ("base64", "/wA="),
        "~index#0": ("ascii", '{"version": 2, "bits": 12, "model": "itq"}'),
    }
