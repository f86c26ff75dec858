import hashlib
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from store_contract import ODD_NAMES, codes_of, create, random_codes
from typer.testing import CliRunner

from bitprint.cli import app
from bitprint.codes import Codes
from bitprint.search import copying
from bitprint.search.copying import copy_index
from bitprint.search.index import Index
from bitprint.search.stores import open_index

NAMES = [f"name {number}" for number in range(50)] + ODD_NAMES
MARK = "unfinished copy"


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(copying, "_BATCH", 16)
    monkeypatch.setattr(copying, "_ATTACHED", 2)


@pytest.fixture
def places(tmp_path):
    numbers = iter(range(100))
    return lambda: str(tmp_path / f"{next(numbers)}.bp")


@pytest.fixture
def milvus_places(tmp_path):
    pytest.importorskip("pymilvus", reason="Milvus needs pip install .[milvus]")
    pytest.importorskip("milvus_lite", reason="Milvus needs pip install .[milvus]")
    with create(f"milvus://{tmp_path}/a.db?index=kept", 8):  # keeps the engine running
        yield lambda: f"milvus://{tmp_path}/a.db?index=copied"


@pytest.fixture
def source(places):
    """Names of any kind; some with a path and labels; one replaced, one removed."""
    place = places()
    attached = {name: name.encode("utf-8", "surrogatepass") for name in ODD_NAMES}
    with create(place, 12, model="itq/é", attachments={"big": bytes(100_000), **attached}) as index:
        codes = random_codes(len(NAMES), 12)
        index.add(NAMES[:30], codes[:30])
        paths = [None, *(f"/{name}" for name in NAMES[31:])]
        labels = [[name, "all"][: number % 3] for number, name in enumerate(NAMES[30:])]
        index.add(NAMES[30:], codes[30:], paths, labels)
        index.add(NAMES[3:4], codes[:1], ["new"], [["b", "a", "b"]])
        index.remove(NAMES[7:8])
    return place


@pytest.fixture
def integers(places):
    """100 codes of 64 bits, without paths and labels."""
    place = places()
    with create(place, 64) as index:
        index.add(range(1000, 1100), random_codes(100, 64))
    return place


def content(place):
    """Return the full contents of an index."""
    with open_index(place) as index:
        ids = index.ids()
        return (
            (index.bits, index.model, len(index), ids.tolist(), index.labels()),
            index.codes(ids).packed.tolist(),
            index.items(ids),
            index.attachments(),
        )


def start_copy(source, target, batches):
    """Start a copy that fails after `batches` batches."""

    def fail(done, total):
        if done >= 16 * batches:
            raise OSError("pulled the plug")

    with pytest.raises(OSError, match="pulled the plug"):
        copy_index(source, target, progress=fail)


def test_a_copy_equals_its_source(source, places):
    target, calls = places(), []
    copied = copy_index(source, target, progress=lambda *call: calls.append(call))
    assert (copied.new, copied.kept) == (len(NAMES) - 1, 0)
    assert content(target) == content(source)
    count = len(NAMES) - 1
    ends = [16, 32, 48, count]
    assert calls == [(end, 2 * count) for end in ends + [count + end for end in ends]]


def test_through_postgres_and_back(source, postgres_places, places):
    between, target = postgres_places(), places()
    there = copy_index(source, between)
    back = copy_index(between, target)
    assert content(between) == content(target) == content(source)
    assert there.checksum == back.checksum


def test_to_milvus(source, milvus_places, places):
    between, target = milvus_places(), places()
    there = copy_index(source, between)
    assert content(between) == content(source)
    assert copy_index(between, target) == there
    assert content(target) == content(source)


def test_integers_without_details_stay_without(integers, places):
    target = places()
    copy_index(integers, target)
    assert content(target) == content(integers)
    with Index.open(target) as index:
        assert not any(chunk.described for chunk in index._mirror._memory.chunks)


@pytest.mark.parametrize("bits", [1, 12, 100])
def test_an_empty_index(places, postgres_places, bits):
    first, between, target = places(), postgres_places(), places()
    with create(first, bits, attachments={"a": b"1"}) as index:
        index.add(["x"], random_codes(1, bits))
        index.remove(["x"])
    assert copy_index(first, between)[:2] == (0, 0)
    copy_index(between, target)
    assert content(target) == ((bits, None, 0, [], []), [], [], {"a": b"1"})


def test_the_checksum_covers_all_contents_in_order(source, places, monkeypatch):
    """The expected checksum is computed here without batches."""
    (_, _, _, ids, _), packed, items, attachments = content(source)
    parts = [
        "".join(f"{name}\0" for name in ids).encode("utf-8", "surrogatepass"),
        bytes(np.array(packed, np.uint8)),
        "".join(f"{json.dumps(item)}, " for item in items).encode(),
        b"".join(
            f"{json.dumps(name)} {len(attachments[name])} ".encode() + attachments[name]
            for name in sorted(attachments)
        ),
    ]
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    assert copy_index(source, places()).checksum == hashlib.sha256(digests).hexdigest()
    monkeypatch.setattr(copying, "_BATCH", 7)
    assert copy_index(source, places()).checksum == hashlib.sha256(digests).hexdigest()


@pytest.mark.parametrize("store", ["places", "postgres_places", "milvus_places"])
def test_an_interrupted_copy_resumes(source, request, store):
    target = request.getfixturevalue(store)()
    start_copy(source, target, batches=2)
    with open_index(target) as index:
        assert len(index) == 32
        assert list(index.attachments()) == [MARK]
    added = []
    copied = copy_index(source, target, progress=lambda done, total: added.append(done))
    assert copied[:2] == (len(NAMES) - 1 - 32, 32)
    assert added[0] == 48
    assert content(target) == content(source)


def test_copy_to_milvus_interrupted_in_a_batch_resumes(source, milvus_places, monkeypatch):
    from bitprint.search.stores import milvus_collections
    from bitprint.search.stores.milvus_connection import MilvusConnection

    target, call, requests = milvus_places(), MilvusConnection.call, []

    def fail_in_the_second_batch(self, method, **arguments):
        if method == "upsert" and "code" in arguments["data"][0]:
            requests.append(method)
            if len(requests) == 4:
                raise OSError("pulled the plug")
        return call(self, method, **arguments)

    monkeypatch.setattr(milvus_collections, "_BATCH_ROWS", 10)
    with monkeypatch.context() as patch:
        patch.setattr(MilvusConnection, "call", fail_in_the_second_batch)
        with pytest.raises(OSError, match="pulled the plug"):
            copy_index(source, target)
    with open_index(target) as index:
        assert index.ids().tolist() == content(source)[0][3][:26]
    assert copy_index(source, target)[:2] == (len(NAMES) - 1 - 26, 26)
    assert content(target) == content(source)


def test_a_copy_interrupted_during_comparison_resumes(source, places):
    target = places()
    start_copy(source, target, batches=6)
    assert MARK in content(target)[3]
    assert copy_index(source, target)[:2] == (0, len(NAMES) - 1)
    assert content(target) == content(source)


KILLED = """
import os, signal, sys
from bitprint.search import copying
from bitprint.search.stores import open_index

copying._BATCH = 16
with open_index(sys.argv[2]) as index:
    store = type(index)
add, calls = store.add, []

def add_and_die(self, *batch):
    add(self, *batch)
    calls.append(batch)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

store.add = add_and_die
copying.copy_index(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("store", ["local", "postgres"])
def test_a_killed_copy_resumes(source, places, postgres_places, store):
    """The process is killed after the third batch is written, before it is committed."""
    target = {"local": places, "postgres": postgres_places}[store]()
    start_copy(source, target, batches=1)
    child = subprocess.run([sys.executable, "-c", KILLED, source, target], check=False, timeout=300)
    assert child.returncode == -signal.SIGKILL
    with open_index(target) as index:
        assert index.ids().tolist() == content(source)[0][3][:48]
    assert copy_index(source, target)[:2] == (len(NAMES) - 1 - 48, 48)
    assert content(target) == content(source)


def test_a_finished_copy_is_only_compared(source, places):
    target = places()
    checksum = copy_index(source, target).checksum
    before = content(target)
    assert copy_index(source, target) == (0, len(NAMES) - 1, checksum)
    assert content(target) == before


@pytest.mark.parametrize("part", ["code", "path", "labels"])
def test_a_batch_that_arrives_damaged_is_noticed(integers, places, monkeypatch, part):
    add = Index.add

    def damage(self, ids, codes, paths=None, labels=None):
        if 1040 in ids.tolist():
            packed = codes.packed.copy()
            packed[-1, -1] ^= part == "code"
            codes = Codes(packed, 64)
            paths = ["p"] * len(ids) if part == "path" else None
            labels = [["l"]] * len(ids) if part == "labels" else None
        add(self, ids, codes, paths, labels)

    target = places()
    with monkeypatch.context() as patch:
        patch.setattr(Index, "add", damage)
        with pytest.raises(ValueError, match=r"1\.bp: differs from .*0\.bp.* delete the copy"):
            copy_index(integers, target)
    assert MARK in content(target)[3]  # the copy is marked as unfinished
    with pytest.raises(ValueError, match="differs from") as error:
        copy_index(integers, target)
    assert "\n" not in str(error.value)


def test_a_damaged_attachment_is_noticed_and_replaced(source, places, monkeypatch):
    attach = Index.attach
    target = places()
    with monkeypatch.context() as patch:
        patch.setattr(Index, "attach", lambda self, given: attach(self, given | {"plain": b"?"}))
        with pytest.raises(ValueError, match="differs from"):
            copy_index(source, target)
    copy_index(source, target)
    assert content(target) == content(source)


def test_rows_in_another_order_are_noticed(integers, places, monkeypatch):
    add = Index.add

    def backwards(self, ids, codes, paths=None, labels=None):
        add(self, ids[::-1], codes[::-1], paths, labels)

    target = places()
    with monkeypatch.context() as patch:
        patch.setattr(Index, "add", backwards)
        with pytest.raises(ValueError, match="differs from"):
            copy_index(integers, target)


def test_a_target_that_holds_something_else_is_refused(source, integers, places):
    before = content(integers)
    with pytest.raises(ValueError, match=r"1\.bp: exists and is not a copy of .*0\.bp; choose"):
        copy_index(source, integers)
    assert content(integers) == before
    target = places()
    start_copy(source, target, batches=2)
    with pytest.raises(ValueError, match="unfinished copy of another index"):
        copy_index(integers, target)
    with pytest.raises(ValueError, match="is itself an unfinished copy; finish it first"):
        copy_index(target, places())
    with open_index(target) as index:
        index.add(["stray"], codes_of(1))
    with pytest.raises(ValueError, match="another writer changed the unfinished copy"):
        copy_index(source, target)


@pytest.mark.parametrize("change", ["bits", "model", "order"])
def test_indexes_with_another_identity_are_refused(places, change):
    first, other = places(), places()
    with create(first, 12, model="a") as index:
        index.add([1, 2], codes_of(1, 2))
    bits = 11 if change == "bits" else 12
    with create(other, bits, model="b" if change == "model" else "a") as index:
        ids = [2, 1] if change == "order" else [1, 2]
        index.add(ids, codes_of(*ids, bits=bits))
    with pytest.raises(ValueError, match="is not a copy of"):
        copy_index(first, other)


def disturbing(place, change):
    """Return a progress function that changes an index during its copy."""

    def disturb(done, total):
        if done != (total if change == "at the end" else 16):
            return
        with open_index(place) as index:
            if change == "removed":
                index.remove([1050])
            else:
                index.add([1010 if change == "replaced" else 7], random_codes(1, 64))
            index.attach({"note": b"changed"})

    return disturb


CHANGES = pytest.mark.parametrize("change", ["removed", "added", "replaced", "at the end"])


@CHANGES
def test_a_file_that_changes_is_copied_as_it_was(integers, places, change):
    target, before = places(), content(integers)
    copy_index(integers, target, progress=disturbing(integers, change))
    assert content(target) == before
    assert content(integers) != before
    with pytest.raises(ValueError, match="exists and is not a copy of"):
        copy_index(integers, target)


def test_a_file_changed_before_the_copy_resumes_is_refused(integers, places):
    target = places()
    start_copy(integers, target, batches=2)
    disturbing(integers, "added")(16, 200)
    with pytest.raises(ValueError, match=r"unfinished copy of .* an earlier state of"):
        copy_index(integers, target)


@CHANGES
def test_a_source_that_changes_meanwhile_is_noticed(integers, places, postgres_places, change):
    source, target = postgres_places(), places()
    copy_index(integers, source)
    with pytest.raises(ValueError, match="the source was changed while it was copied"):
        copy_index(source, target, progress=disturbing(source, change))
    with pytest.raises(ValueError, match=r"unfinished copy of .* an earlier state of"):
        copy_index(source, target)


def test_a_concurrent_copy_is_noticed(integers, places):
    target = places()

    def interfere(done, total):
        if done == 16:
            start_copy(integers, target, batches=2)

    with pytest.raises(ValueError, match="another writer changed the unfinished copy"):
        copy_index(integers, target, progress=interfere)
    assert copy_index(integers, target)[:2] == (68, 32)
    assert content(target) == content(integers)


def test_a_missing_source_creates_no_target(places, tmp_path):
    with pytest.raises(FileNotFoundError):
        copy_index(places(), places())
    assert list(tmp_path.iterdir()) == []


def run(*arguments):
    return CliRunner().invoke(app, ["index", *map(str, arguments)])


def test_the_command(source, places):
    places = [source, places()]
    result = run("copy", *places)
    assert result.exit_code == 0, result.output
    assert f"{len(NAMES) - 1} new, 0 unchanged, {len(NAMES) - 1} in the index" in result.stdout
    assert "copy verified, checksum " in result.stderr
    about = json.loads(run("copy", *places, "--json").stdout)
    assert (about["new"], about["unchanged"]) == (0, len(NAMES) - 1)
    assert about["checksum"] in result.stderr
    assert content(places[1]) == content(source)


@pytest.mark.parametrize("words", [("copy",), ("copy", "a.bp"), ("copy", "a", "b", "c")])
def test_the_command_requires_two_places(words):
    assert run(*words).exit_code == 2
