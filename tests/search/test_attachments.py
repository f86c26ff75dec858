import contextlib
import sqlite3

import numpy as np
import pytest

from bitprint.codes import Codes
from bitprint.search.index import Index


def codes_of(*numbers, bits=12):
    rng = [np.random.default_rng(number) for number in numbers]
    return Codes.from_signs(np.array([r.random(bits) < 0.5 for r in rng]).reshape(-1, bits))


ODD = ["plain", "two words", "caf\u00e9", "\udcff\udcfe", "line\nbreak", "", "x" * 3000]


def test_attachments_are_kept_replaced_and_deleted(tmp_path):
    path = tmp_path / "a.bp"
    contents = {name: name.encode("utf-8", "surrogatepass") * 2 for name in ODD}
    with Index.create(path, bits=12) as index, Index.open(path) as reader:
        assert index.attachments() == {}
        index.attach(contents)
        assert reader.attachments() == index.attachments() == contents
        index.attach({"plain": b"other", "caf\u00e9": None, "never there": None})
        contents["plain"] = b"other"
        del contents["caf\u00e9"]
        assert reader.attachments() == contents
    with Index.open(path) as index:
        assert index.attachments() == contents
        index.add([1], codes_of(1))
        index.compact()
        assert index.attachments() == contents


def test_a_prefix_selects(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=12) as index:
        index.attach({name: b"" for name in ["a", "a/1", "a/2", "a/\U0010ffff", "a0", "b/1"]})
        assert list(index.attachments("a/")) == ["a/1", "a/2", "a/\U0010ffff"]
        assert list(index.attachments("c")) == []


def test_attachments_from_the_beginning(tmp_path):
    contents = {"model": bytes(100_000)}
    with Index.create(tmp_path / "a.bp", bits=12, attachments=contents) as index:
        assert index.attachments() == contents
        index.attach({"more": b"x"})
    with Index.open(tmp_path / "a.bp") as index:
        assert index.attachments() == contents | {"more": b"x"}


def change(path, statement, *values):
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(statement, values)
        db.commit()


def test_damage_is_noticed(tmp_path):
    path = tmp_path / "a.bp"
    for statement, what in [
        ("UPDATE attachments SET content = x'00'", "an attachment"),
        ("UPDATE attachments SET name = x'62'", "an attachment"),
        ("DELETE FROM attachments", "the number of attachments"),
    ]:
        Index.create(path, bits=12, attachments={"a": b"content"}).close()
        change(path, statement)
        with Index.open(path) as index, pytest.raises(ValueError, match=f"damaged .{what} does"):
            index.attachments()
        path.unlink()


def test_a_file_from_before_there_were_attachments(tmp_path):
    from bitprint.search.file import checksum

    path = tmp_path / "a.bp"
    with Index.create(path, bits=12) as index:
        index.add(["a"], codes_of(1))
    with contextlib.closing(sqlite3.connect(path)) as db:
        rows = dict(db.execute("SELECT key, value FROM meta"))
        del rows["attached"], rows["checksum"]
        db.execute("DELETE FROM meta WHERE key = 'attached'")
        total = str(checksum(*sorted(rows.items())))
        db.execute("UPDATE meta SET value = ? WHERE key = 'checksum'", (total,))
        db.commit()
    with Index.open(path) as index:
        assert index.attachments() == {}
        index.attach({"a": b"1"})
        assert index.attachments() == {"a": b"1"}
        assert index.codes(["a"]) == codes_of(1)


def fail_half_way(index, reader):
    with index.transaction():
        index.add(["c", "a"], codes_of(3, 4), labels=[["z"], ["z"]])
        index.attach({"n": b"3"})
        index.remove(["b"])
        assert sorted(index.ids()) == ["a", "c"]
        assert (len(index), index.labels(), len(reader)) == (2, ["z"], 2)
        index.remove(["z"])


def test_a_transaction_happens_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.bp"
    with Index.create(path, bits=12) as index, Index.open(path) as reader:
        index.add(["a", "b"], codes_of(1, 2), labels=[["x"], ["y"]])
        index.attach({"n": b"2"})
        with pytest.raises(ValueError, match="holds no id 'z'"):
            fail_half_way(index, reader)
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
        for view in (index, reader):
            assert view.ids().tolist() == ["a"]
            assert view.attachments() == {"n": b"1"}


@pytest.mark.parametrize("bits", [1, 12, 64, 100])
def test_ids_and_codes_come_back(tmp_path, bits):
    codes = codes_of(*range(10), bits=bits)
    with Index.create(tmp_path / "a.bp", bits=bits) as index:
        assert index.ids().tolist() == []
        assert len(index.codes([])) == 0
        index.add(range(6), codes[:6])
        index.add(range(6, 10), codes[6:])
        index.remove([0, 7])
        index.add([3], codes[:1])
        assert index.ids().tolist() == [1, 2, 4, 5, 6, 8, 9, 3]
        assert index.codes([9, 3, 1]) == codes[[9, 0, 1]]
        with pytest.raises(ValueError, match="holds no id 7"):
            index.codes([1, 7])
        index.compact()
        assert index.codes([9, 3, 1]) == codes[[9, 0, 1]]


def test_labels_in_use(tmp_path):
    with Index.create(tmp_path / "a.bp", bits=12) as index:
        assert index.labels() == []
        index.add([1, 2, 3], codes_of(1, 2, 3), labels=[["b", "a"], ["c"], []])
        index.add([4], codes_of(4))
        assert index.labels() == ["a", "b", "c"]
        index.remove([2])
        assert index.labels() == ["a", "b"]
        index.add([1], codes_of(1), labels=[["\udcff"]])
        assert index.labels() == ["\udcff"]
        index.compact()
        assert index.labels() == ["\udcff"]
