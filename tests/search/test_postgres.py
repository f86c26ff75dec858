import re
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
from store_contract import Naive, StoreContract, check_answers, codes_of, create, random_codes

from bitprint.codes import Codes
from bitprint.search.stores import index_exists, open_index

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs pip install .[postgres]")

from bitprint.search.stores import postgres_tables  # noqa: E402
from bitprint.search.stores.postgres import PostgresIndex  # noqa: E402
from bitprint.search.stores.postgres_connection import parse_address  # noqa: E402


class TestPostgres(StoreContract):
    promises = PostgresIndex.promises

    @pytest.fixture
    def places(self, postgres_places):
        return postgres_places


def schema_of(place):
    return parse_address(place).index


def test_tables_are_readable_in_psql(postgres_places, admin):
    place = postgres_places()
    schema = schema_of(place).replace('"', '""')
    codes = random_codes(3, 12)
    with create(place, 12, attachments={"notes/é": b"by Ada"}) as index:
        index.add(["a", "b\udcff", "c"], codes, ["p", None, None], [["x", "y"], [], []])
        index.remove(["a"])
        index.add(["a"], codes[2])
    rows = admin.execute(
        f'SELECT ordinal, code::text, id, path, labels FROM "{schema}".codes ORDER BY ordinal'
    ).fetchall()
    strings = ["".join("01"[int(sign > 0)] for sign in row) for row in codes.signs()]
    assert rows == [
        (1, strings[1], "b\x1adcff", None, []),
        (2, strings[2], "c", None, []),
        (3, strings[2], "a", None, []),
    ]
    attached = admin.execute(f'SELECT name, content FROM "{schema}".attachments').fetchall()
    assert attached == [("notes/é", b"by Ada")]
    described = admin.execute(
        "SELECT relname, attname, atttypid::regtype::text, col_description(attrelid, attnum) "
        "FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "WHERE relnamespace = %s::regnamespace AND relkind = 'r' AND attnum > 0 "
        "ORDER BY relname, attnum",
        (f'"{schema}"',),
    ).fetchall()
    assert all(comment for *_, comment in described)
    assert [column[:3] for column in described if column[0] == "codes"] == [
        ("codes", "ordinal", "bigint"),
        ("codes", "id", "text"),
        ("codes", "code", "bit"),
        ("codes", "path", "text"),
        ("codes", "labels", "text[]"),
    ]
    assert {table for table, *_ in described} == {"meta", "codes", "attachments"}
    tables = admin.execute(
        "SELECT obj_description(oid) FROM pg_class "
        "WHERE relnamespace = %s::regnamespace AND relkind = 'r'",
        (f'"{schema}"',),
    ).fetchall()
    assert all(comment for (comment,) in tables)


def test_large_batches_are_converted_in_blocks(postgres_places, monkeypatch):
    monkeypatch.setattr(postgres_tables, "_ROWS", 7)
    codes = random_codes(50, 21)
    with create(postgres_places(), 21) as index:
        index.add(range(50), codes, labels=[[str(i)] for i in range(50)])
        assert index.codes(range(50)) == codes
        assert index.ids().tolist() == list(range(50))
        assert index.search(codes[:1], k=1, label="44").ids.tolist() == [[44]]


def test_long_names_that_do_not_compress(postgres_places):
    rng = np.random.default_rng(0)
    names = ["".join(map(chr, rng.integers(33, 3000, 4000))) for _ in range(2)]
    with create(postgres_places(), 12) as index:
        index.add(names, random_codes(2, 12), paths=names)
        index.attach({name: b"1" for name in names})
        assert index.items(names[1:]) == [(names[1], ())]
        assert index.attachments(names[0]) == {names[0]: b"1"}
        with pytest.raises(ValueError, match=r"too long for PostgreSQL.*shorten the labels"):
            index.add(["x"], random_codes(1, 12), labels=[[names[0]]])
        assert index.ids().tolist() == names


def test_several_indexes_in_one_database(postgres_places):
    first, second = postgres_places(), postgres_places()
    with create(first, 12) as a, create(second, 16) as b:
        a.add([1], random_codes(1, 12))
        b.add(["x", "y"], random_codes(2, 16))
        assert (len(a), len(b)) == (1, 2)
    assert index_exists(first)
    assert not index_exists(postgres_places())


def test_the_extension_may_be_in_another_schema(database):
    place = database()
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "my ""extensions"')
        connection.execute('CREATE EXTENSION vector SCHEMA "my ""extensions"')
    naive = Naive()
    with create(place, 12) as index:
        index.add(range(40), random_codes(40, 12))
        naive.add(range(40), random_codes(40, 12), [(None, [])] * 40)
        check_answers(index, naive, random_codes(2, 12, seed=1), 5, None, 4)
        index.build_hnsw()
        assert index.search(random_codes(1, 12), 1, approximate=True).ids.tolist() == [[0]]


@pytest.fixture
def clustered():
    """3,000 codes of 64 bits around 100 centres, and 20 queries."""
    rng = np.random.default_rng(0)
    centres = rng.random((100, 64)) < 0.5
    signs = centres[rng.integers(0, 100, 3020)] ^ (rng.random((3020, 64)) < 0.08)
    codes = Codes.from_signs(signs)
    return codes[:3000], codes[3000:]


def test_the_graph_finds_most_of_the_nearest(postgres_places, clustered):
    codes, queries = clustered
    distances = queries.hamming(codes)
    even = np.arange(3000) % 2 == 0
    with create(postgres_places(), 64) as index:
        index.add(range(3000), codes, labels=[["even", "all"] if e else ["all"] for e in even])
        index.build_hnsw(m=8, ef_construction=32)
        for label, allowed in [(None, even | True), ("even", even), ("all", even | True)]:
            expected = np.sort(np.where(allowed, distances, 99), axis=1)[:, :10]
            ids, found = index.search(queries, 10, label, approximate=True, ef=200)
            np.testing.assert_array_equal(np.take_along_axis(distances, ids, axis=1), found)
            assert allowed[ids].all()
            assert np.all(np.diff(found, axis=1) >= 0)
            assert np.mean(found == expected) > 0.9
        ids, _ = index.search(queries[:1], 400, approximate=True, ef=1)
        assert len(set(ids[0].tolist())) == 400  # the scan continues until k codes are found
        assert index.search(queries[:1], 2, "none", approximate=True).ids.tolist() == [[-1, -1]]
        index.remove(range(0, 3000, 3))
        index.add([9000], queries[0])
        assert index.search(queries[:1], 1, approximate=True).ids.tolist() == [[9000]]
        index.build_hnsw()
        ids, _ = index.search(queries, 10, approximate=True)
        assert not np.any((ids % 3 == 0) & (ids < 9000))


def test_exact_searches_never_use_the_graph_and_approximate_ones_do(
    postgres_places, clustered, admin
):
    codes, queries = clustered
    place = postgres_places()

    def scans():
        statement = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'codes_hnsw' "
        statement += "AND schemaname = %s"
        return admin.execute(statement, (schema_of(place),)).fetchone()[0]

    with create(place, 64) as index:
        index.add(range(3000), codes)
        index.build_hnsw()
        index.search(queries, 10)
        index.within(queries, 3)
    assert scans() == 0
    with open_index(place) as index:
        index.search(queries, 10, approximate=True)
    deadline = time.monotonic() + 120  # the server reports its counts with a delay
    while scans() < len(queries) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert scans() == len(queries)


@pytest.mark.parametrize("size", [30, 3000])
def test_the_plans(postgres_places, clustered, size):
    codes, queries = clustered
    with create(postgres_places(), 64) as index:
        index.add(range(size), codes[:size], labels=[["rare"]] + [[]] * (size - 1))
        index.build_hnsw()
        index.compact()

        def plan(connection, statement, label):
            rows = index._tables.search(connection, "EXPLAIN " + statement, queries, label, k=5)
            return "\n".join(line for (line,) in rows)

        with index._connections.transaction() as connection:
            exact = plan(connection, postgres_tables.NEAREST, None)
            rare = plan(connection, postgres_tables.NEAREST, "rare")
            index._tables.prefer_hnsw(connection, 40, None)
            again = plan(connection, postgres_tables.NEAREST, None)
            approximate = plan(connection, postgres_tables.NEAREST_APPROXIMATELY, None)
    assert "Seq Scan on codes" in exact
    assert "codes_hnsw" not in exact + again + rare
    assert "Index Scan using codes_hnsw" in approximate
    if size == 3000:
        assert "codes_labels" in rare


def test_what_approximate_searches_ask_for(postgres_places):
    with create(postgres_places(), 12) as index:
        named = f"^{re.escape(index.path)}: "
        with pytest.raises(ValueError, match=named + r".*no graph .* call build_hnsw"):
            index.search(random_codes(1, 12), approximate=True)
        with pytest.raises(ValueError, match="is empty; add codes first"):
            index.build_hnsw()
        index.add([1], random_codes(1, 12), labels=[["a"]])
        with pytest.raises(ValueError, match="no graph"):
            index.search(random_codes(1, 12), approximate=True)
        for options, message in [
            ({"m": 1}, "m must be an integer >= 2"),
            ({"m": 101}, "m is at most 100"),
            ({"m": 16, "ef_construction": 31}, "ef_construction must be an integer >= 32"),
            ({"ef_construction": 1001}, "at most 1000"),
        ]:
            with pytest.raises(ValueError, match=message):
                index.build_hnsw(**options)
        index.build_hnsw()
        for ef in (0, 1001, 2.5):
            with pytest.raises(ValueError, match=r"ef (is|must be)"):
                index.search(random_codes(1, 12), approximate=True, ef=ef)
        vector = index._tables._vector
        index._tables._vector = vector._replace(version=(0, 7))
        assert index.search(random_codes(1, 12), 1, approximate=True).ids.tolist() == [[1]]
        with pytest.raises(ValueError, match=named + r".*needs pgvector 0.8"):
            index.search(random_codes(1, 12), label="a", approximate=True)


def test_writers_take_turns_and_nothing_is_lost(postgres_places):
    """Two indexes with three threads each add and replace the same ids."""
    place, codes, wrong = postgres_places(), random_codes(10, 16), []

    def write(index, shift):
        try:
            for round_ in range(5):
                index.add(range(shift * 5, shift * 5 + 10), codes, labels=[[str(round_)]] * 10)
        except Exception as error:
            wrong.append(error)

    with create(place, 16) as first, open_index(place) as second:
        threads = [
            threading.Thread(target=write, args=(index, shift))
            for index in (first, second)
            for shift in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert sorted(first.ids().tolist()) == list(range(20))
        assert len(first) == 20
        rank = {int(key): number for number, key in enumerate(first.ids())}
        assert first.within(codes[:1], 16).ids[0].tolist() == sorted(
            range(20), key=lambda i: (first.codes([i]).hamming(codes[:1])[0, 0], rank[i])
        )


def test_readers_do_not_wait_for_a_writer_but_writers_do(postgres_places):
    place = postgres_places()
    with create(place, 12) as index, open_index(place, timeout=0.2) as other:
        index.add([1], codes_of(1))
        with index.transaction():
            index.add([2], codes_of(2))
            assert other.ids().tolist() == [1]
            with pytest.raises(TimeoutError, match="another process is writing to this index"):
                other.add([3], codes_of(3))
            thread_sees = []
            thread = threading.Thread(target=lambda: thread_sees.append(len(index)))
            thread.start()
            thread.join()
            assert thread_sees == [1]
        other.add([3], codes_of(3))
        assert index.ids().tolist() == [1, 2, 3]


def test_more_threads_than_connections(postgres_places):
    codes, answers = random_codes(30, 16), []
    with create(postgres_places(), 16) as index:
        index.add(range(30), codes)

        def ask(number):
            for _ in range(5):
                answers.append((number, index.search(codes[number], k=1).ids[0, 0]))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(index._connections._idle) <= 8
    expected = [(n, int(codes[n].hamming(codes)[0].argmin())) for n in range(20)]
    assert sorted(answers) == sorted(expected * 5)
    assert index._connections._idle == []


def test_an_id_kind_that_is_undone_is_forgotten(postgres_places):
    with create(postgres_places(), 12) as index:

        def fail():
            with index.transaction():
                index.add(["a"], codes_of(1))
                assert index.search(codes_of(1), k=1).ids.tolist() == [["a"]]
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert index.ids().tolist() == []
        index.add([7], codes_of(1))
        assert index.ids().tolist() == [7]


def test_failed_read_in_a_transaction_is_undone_alone(database):
    place = database()
    with create(place, 12) as index, psycopg.connect(place, autocommit=True) as connection:
        index.add([1], codes_of(1))
        connection.execute("ALTER TABLE bitprint.codes RENAME path TO file")
        with index.transaction():
            index.attach({"a": b"1"})
            with pytest.raises(OSError, match=r"failed .column .*path.* does not exist"):
                index.items([1])
            index.attach({"b": b"2"})
        assert index.attachments() == {"a": b"1", "b": b"2"}


@pytest.mark.parametrize("nested", [False, True])
def test_lost_connection_fails_the_rest_of_a_transaction(postgres_places, end_connections, nested):
    def run(index):
        with index.transaction(), index.transaction() if nested else nullcontext():
            index.add([2], codes_of(2))
            end_connections()
            for call in (
                lambda: index.add([3], codes_of(3)),
                lambda: index.attach({"a": b"1"}),
                lambda: index.remove([1]),
                index.ids,
                lambda: index.search(codes_of(1)),
                lambda: index.transaction().__enter__(),
            ):
                with pytest.raises(ConnectionError, match="connection was lost"):
                    call()

    with create(postgres_places(), 12) as index:
        index.add([1], codes_of(1))
        with pytest.raises(ConnectionError, match="connection was lost"):
            run(index)
        assert index.ids().tolist() == [1]
        index.add([2], codes_of(2))
        assert index.ids().tolist() == [1, 2]


def test_lost_connection_fails_the_end_of_a_transaction(postgres_places, end_connections):
    def run(index):
        with index.transaction():
            index.add([2], codes_of(2))
            end_connections()

    with create(postgres_places(), 12) as index:
        with pytest.raises(ConnectionError, match="connection was lost"):
            run(index)
        assert index.ids().tolist() == []
