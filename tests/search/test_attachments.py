import contextlib
import sqlite3

import numpy as np
import pytest

from bitprint.codes import Codes
from bitprint.search.index import Index


def codes_of(*numbers, bits=12):
    rng = [np.random.default_rng(number) for number in numbers]
    return Codes.from_signs(np.array([r.random(bits) < 0.5 for r in rng]).reshape(-1, bits))


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
        with Index.open(path) as index, pytest.raises(ValueError, match=f"damaged .{what} failed"):
            index.attachments()
        path.unlink()


def test_a_file_without_the_attachments_table(tmp_path):
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
