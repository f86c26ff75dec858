import contextlib
import functools
import itertools
import os
import random
import resource
import shutil
import signal
import sqlite3
import threading
import time
import traceback

import numpy as np
import pytest

from bitprint.codes import Codes
from bitprint.search.index import Index

BITS = 40


def code_of(key):
    """Return a pseudo-random code that is determined by its id."""
    return np.random.default_rng(abs(key)).integers(0, 256, BITS // 8, np.uint8)


def codes_of(ids):
    return Codes(np.array([code_of(key) for key in ids], np.uint8).reshape(-1, BITS // 8), BITS)


def add(index, ids):
    index.add(ids, codes_of(ids), [f"{key}.png" for key in ids], [[str(key % 3)] for key in ids])


def stored_ids(index):
    """Return all ids, after a check of codes, paths and labels."""
    (ids,), _ = index.within(Codes(np.zeros((1, BITS // 8), np.uint8), BITS), radius=BITS)
    ids = ids.tolist()
    nearest, distances = index.search(codes_of(ids), k=1)
    assert not np.any(distances)
    assert [code_of(key).tobytes() for key in nearest[:, 0].tolist()] == [
        code_of(key).tobytes() for key in ids
    ]
    expected = [(f"{key}.png", (str(key % 3),)) for key in ids]
    assert [tuple(item) for item in index.items(ids)] == expected
    assert len(index) == len(ids) == len(set(ids))
    return set(ids)


def operations(seed, held):
    """Yield an endless sequence of additions, replacements, removals and compactions."""
    rng = random.Random(seed)
    batches = [held] if held else []
    number = seed * 100
    while True:
        kind = rng.random()
        if kind < 0.6 or not batches:
            number += 1
            ids = list(range(number * 100, number * 100 + rng.randint(1, 40)))
            if batches and rng.random() < 0.3:
                ids += batches.pop(rng.randrange(len(batches)))
            batches.append(ids)
            yield "add", ids
        elif kind < 0.85:
            yield "remove", batches.pop(rng.randrange(len(batches)))
        else:
            yield "compact", []


def work(path, plan, acknowledgements):
    """Run a plan until killed, and acknowledge each call after it returns."""
    index = Index.open(path)
    for kind, ids in plan:
        if kind == "add":
            add(index, ids)
        elif kind == "remove":
            index.remove(ids)
        else:
            index.compact()
        os.write(acknowledgements, b".")


def in_child(task):
    """Start a child that runs `task(pipe)`; return its id and the reading end of the pipe."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receiving)
            task(sending)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(sending)
    return child, os.fdopen(receiving, "rb", buffering=0)


def states(plan, steps):
    """Return the ids stored after `steps` calls, and after the next call."""
    held = set()
    for number, (kind, ids) in enumerate(plan):
        before = set(held)
        held = held - set(ids) if kind == "remove" else held | set(ids)
        if number == steps:
            return before, held
    raise AssertionError("the plan never ends")


def check_integrity(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_killed_writer_loses_no_acknowledged_call(tmp_path):
    rng = random.Random(0)
    calls = 0
    for seed in range(200):
        if seed % 10 == 0:
            path, held = tmp_path / f"{seed}.bp", []
            Index.create(path, BITS).close()

        child, pipe = in_child(functools.partial(work, path, operations(seed, held)))
        with pipe:
            # Some children are killed while they open the file, most during one of the first calls.
            acknowledged = sum(len(pipe.read(1)) for _ in range(rng.randint(0, 2)))
            time.sleep(rng.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            assert os.WIFSIGNALED(status), "the child failed before it was killed"
            acknowledged += len(pipe.read())

        with Index.open(path) as index:
            found = stored_ids(index)
        check_integrity(path)
        plan = itertools.chain([("add", held)], operations(seed, held))
        assert found in states(plan, acknowledged + 1)
        held = sorted(found)
        calls += acknowledged
    assert calls > 150


def test_a_full_disk_loses_nothing_acknowledged(tmp_path):
    """A limit on the file size simulates a full disk."""
    path = tmp_path / "a.bp"
    Index.create(path, BITS).close()

    def task(pipe):
        index = Index.open(path)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, hard))
        for number in range(10_000):
            try:
                add(index, [2 * number, 2 * number + 1])
            except OSError:
                break
            os.write(pipe, b".")
        assert stored_ids(index) == set(range(2 * number))
        with pytest.raises(OSError, match="the disk failed or is full"):
            add(index, range(10_000, 20_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert stored_ids(index) == set(range(2 * number))
        add(index, [-1])
        assert stored_ids(index) == {-1, *range(2 * number)}

    child, pipe = in_child(task)
    with pipe:
        acknowledged = len(pipe.read())
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert acknowledged > 0
    with Index.open(path) as index:
        assert stored_ids(index) == {-1, *range(2 * acknowledged)}
    check_integrity(path)


def test_readers_in_other_processes_see_complete_batches(tmp_path):
    path = tmp_path / "a.bp"
    Index.create(path, BITS).close()
    anything = Codes(np.zeros((1, BITS // 8), np.uint8), BITS)
    waiting, going = os.pipe()

    def write(pipe):
        with Index.open(path) as index:
            for number in range(60):
                if number % 20 == 0:  # the reader sees at least three sizes, however slow it is
                    os.read(waiting, 1)
                add(index, range(number * 10, number * 10 + 10))
                os.write(pipe, b".")
                time.sleep(0.005)
                if number % 20 == 19:
                    index.compact()

    child, pipe = in_child(write)
    sizes, written = [], 0
    with pipe, Index.open(path) as index:
        index.within(anything, radius=BITS)  # compile before the writer starts
        os.write(going, b".")
        while part := pipe.read(1):
            written += len(part)
            (found,), _ = index.within(anything, radius=BITS)
            assert sorted(found.tolist()) == list(range(len(found)))
            assert len(found) % 10 == 0
            assert len(found) >= 10 * written
            sizes.append(len(found))
            if written % 20 == 0:
                os.write(going, b".")
    os.close(waiting)
    os.close(going)
    assert os.waitpid(child, 0)[1] == 0
    assert sizes == sorted(sizes)
    assert len(set(sizes)) > 2


def test_a_second_writer_waits_or_times_out(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, BITS) as first, Index.open(path, timeout=0.05) as hasty:
        blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        blocker.execute("BEGIN IMMEDIATE")
        for call in (lambda: add(hasty, [1]), lambda: hasty.compact()):
            with pytest.raises(TimeoutError, match="another process is writing to this index"):
                call()
        assert stored_ids(hasty) == set()
        release = threading.Timer(0.3, lambda: blocker.execute("COMMIT"))
        release.start()
        add(first, [1, 2])
        add(hasty, [2, 3])
        assert stored_ids(first) == stored_ids(hasty) == {1, 2, 3}
        release.join()
        blocker.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A closed file with all kinds of rows and trees of several pages, and its contents."""
    path = tmp_path_factory.mktemp("sample") / "a.bp"
    attachments = {f"{number:03}" + "/long" * 150: bytes([number]) * 900 for number in range(40)}
    with Index.create(path, BITS, model="itq") as index:
        add(index, range(600))
        index.add(range(600, 700), codes_of(range(600, 700)))
        index.remove(range(0, 700, 7))
        index.compact()
        add(index, range(700, 900))
        add(index, range(50, 90))
        index.remove([51, 53, 701])
        index.attach({"model/model.json": b"{}", "unfinished copy": b"1", **attachments})
    return path, answers(path)


def answers(path):
    with Index.open(path) as index:
        queries = codes_of(range(0, 900, 100))
        ids, distances = index.search(queries, 900)
        held = sorted(ids[0][distances[0] >= 0].tolist())
        labeled = index.search(queries, 30, "1")
        return (
            (len(index), index.model, ids.tolist(), distances.tolist()),
            [array.tolist() for array in labeled],
            (index.items(held), index.labels()),
            [index.attachments(prefix) for prefix in ("", "model/", "unfinished copy", "01")],
        )


def test_a_truncated_file_is_refused(sample, tmp_path):
    path, _ = sample
    content = path.read_bytes()
    cuts = {0, 1, 15, 16, 50, 99, 100, 4096, len(content) - 1}
    cuts |= set(range(0, len(content), 1777)) | set(range(0, len(content), 16_384))
    damaged = tmp_path / "a.bp"
    for cut in sorted(cuts):
        damaged.write_bytes(content[:cut])
        with pytest.raises(ValueError, match=r"a\.bp: (not a bitprint index|the file is damaged)"):
            answers(damaged)


def refusals_of_flips(sample, folder, places, rng):
    """Change one byte at each place; return the error messages. Without one, nothing may differ."""
    path, expected = sample
    content = path.read_bytes()
    damaged = folder / "a.bp"
    messages = []
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= rng.choice([1, 2, 4, 8, 16, 32, 64, 128, 255])
        damaged.write_bytes(flipped)
        for suffix in ("-wal", "-shm", "-journal"):
            damaged.with_name("a.bp" + suffix).unlink(missing_ok=True)
        try:
            found = answers(damaged)
        except (ValueError, OSError) as error:
            messages.append(str(error))
        else:
            assert found == expected, f"byte {place % 16_384} of page {place // 16_384}"
    assert all(message.startswith(f"{damaged}: ") for message in messages)
    assert not any("\n" in message for message in messages)
    return messages


def test_a_flipped_byte_is_refused_or_makes_no_difference(sample, tmp_path):
    used = [place for place, byte in enumerate(sample[0].read_bytes()) if byte]
    rng = random.Random(0)
    places = [*range(110), *rng.sample(used, 400)]
    assert len(refusals_of_flips(sample, tmp_path, places, rng)) > 350


def test_a_flipped_page_header_is_noticed_or_harmless(sample, tmp_path):
    """The first 24 bytes of a page are its header and the places of its first rows."""
    pages = range(0, sample[0].stat().st_size, 16_384)
    assert len(pages) > 10
    places = [page + place for page in pages for place in range(24 if page else 124)]
    refused = refusals_of_flips(sample, tmp_path, places, random.Random(0))
    assert len(refused) > len(places) / 4


def test_a_newer_version_is_refused(sample, tmp_path):
    newer = tmp_path / "a.bp"
    shutil.copy(sample[0], newer)
    with contextlib.closing(sqlite3.connect(newer)) as db:
        db.execute("UPDATE meta SET value = '3' WHERE key = 'version'")
        db.commit()
    with pytest.raises(ValueError, match="index format version 3 is not supported"):
        Index.open(newer)


def test_foreign_files_are_refused_and_left_alone(tmp_path):
    (tmp_path / "text.bp").write_text("hello " * 1000)
    (tmp_path / "noise.bp").write_bytes(np.random.default_rng(0).bytes(50_000))
    (tmp_path / "magic.bp").write_bytes(b"SQLite format 3\0" + bytes(200))
    for name, columns in [("other", "x"), ("meta", "key, value")]:
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.bp")) as db:
            db.execute(f"CREATE TABLE {name} ({columns})")
            db.commit()
    for path in sorted(tmp_path.glob("*.bp")):
        content = path.read_bytes()
        with pytest.raises(ValueError, match=f"{path.name}: (not a bitprint|the file is damaged)"):
            Index.open(path)
        assert path.read_bytes() == content
    with pytest.raises(ValueError, match="not a file"):
        Index.open(tmp_path)


def test_missing_and_existing_files_are_refused(sample, tmp_path):
    with pytest.raises(FileNotFoundError, match="no such index"):
        Index.open(tmp_path / "a.bp")
    content = sample[0].read_bytes()
    with pytest.raises(FileExistsError, match="exists already"):
        Index.create(sample[0], BITS)
    assert sample[0].read_bytes() == content
    with Index.open(sample[0]), pytest.raises(FileExistsError, match="exists already"):
        Index.create(sample[0], BITS)  # the log exists while the index is open
    (tmp_path / "b.bp-wal").write_bytes(b"left over")
    with pytest.raises(FileExistsError, match="left over"):
        Index.create(tmp_path / "b.bp", BITS)
    assert [path.name for path in tmp_path.iterdir()] == ["b.bp-wal"]


def test_a_process_killed_while_it_creates_leaves_no_index(tmp_path):
    def task(pipe):
        os.fsync = lambda descriptor: os._exit(9)
        Index.create(tmp_path / "a.bp", BITS)

    child, pipe = in_child(task)
    pipe.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert list(tmp_path.iterdir()) == []
    with Index.create(tmp_path / "a.bp", BITS) as index:
        add(index, [1])
        assert stored_ids(index) == {1}


def test_a_pipe_is_refused_as_an_index(tmp_path):
    os.mkfifo(tmp_path / "a.bp")
    with pytest.raises(ValueError, match=r"a\.bp: not a file, so not a bitprint index"):
        Index.open(tmp_path / "a.bp")
    with pytest.raises(FileExistsError, match="exists already"):
        Index.create(tmp_path / "a.bp", BITS)


def test_an_index_is_created_where_the_file_system_has_no_links(tmp_path, monkeypatch):
    def refuse(source, target, **options):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    Index.create(tmp_path / "a.bp", BITS).close()
    with pytest.raises(FileExistsError, match="exists already"):
        Index.create(tmp_path / "a.bp", BITS)
    assert [path.name for path in tmp_path.iterdir()] == ["a.bp"]
