"""The table of promises in `docs/scale.md`, and the tests behind it."""

from pathlib import Path

import pytest
from store_contract import StoreContract

from bitprint.search.index import Index
from bitprint.search.promises import Promise

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def read_table():
    """Return the promises of each column."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text("utf-8").split("| promise |")[1].split("\n\n")[0].splitlines()
    ]
    header, _, *body = rows
    assert [row[0] for row in body] == [promise.value for promise in Promise]
    assert all(cell.startswith(("yes", "no")) for row in body for cell in row[1:])
    return {
        engine: {Promise(row[0]) for row in body if row[number].startswith("yes")}
        for number, engine in enumerate(header, 1)
    }


def test_table_states_the_promises_of_the_index_file():
    assert read_table()["SQLite file"] == Index.promises


def test_table_states_the_promises_of_postgresql():
    pytest.importorskip("psycopg", reason="PostgreSQL needs pip install .[postgres]")
    from bitprint.search.stores.postgres import PostgresIndex

    assert read_table()["PostgreSQL"] == PostgresIndex.promises


def test_table_states_the_promises_of_milvus():
    pytest.importorskip("pymilvus", reason="Milvus needs pip install .[milvus]")
    from bitprint.search.stores import milvus

    table = read_table()
    assert table["Milvus Lite"] == milvus.LITE_PROMISES
    assert table["Milvus server"] == milvus.SERVER_PROMISES


@pytest.mark.parametrize("promise", Promise)
def test_every_promise_has_a_test(promise):
    tests = [getattr(test, "promise", None) for test in vars(StoreContract).values()]
    assert promise in tests
