import os
import signal
import subprocess
import sys
import time

import pytest
from store_contract import codes_of, create, random_codes

from bitprint.search.stores import index_exists, open_index

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL needs pip install .[postgres]")

from bitprint.search.stores import postgres, postgres_tables  # noqa: E402
from bitprint.search.stores.postgres_connection import parse_address  # noqa: E402


def test_a_connection_lost_while_idle_is_not_noticed(postgres_places, end_connections):
    with create(postgres_places(), 12) as index:
        index.add([1], codes_of(1))
        end_connections()
        assert index.ids().tolist() == [1]
        index.add([2], codes_of(2))
        assert len(index) == 2


def test_a_connection_lost_as_it_begins_is_explained(postgres_places, monkeypatch, end_connections):
    connect = psycopg.connect

    def connect_and_lose(**parameters):
        connection = connect(**parameters)
        end_connections()
        return connection

    with create(postgres_places(), 12) as index:
        end_connections()
        monkeypatch.setattr(psycopg, "connect", connect_and_lose)
        with pytest.raises(ConnectionError, match=r"cannot reach the server .* check that it is"):
            index.add([1], codes_of(1))
        monkeypatch.undo()
        index.add([1], codes_of(1))
        assert index.ids().tolist() == [1]


def test_a_connection_lost_midway_leaves_nothing_half_written(postgres_places, end_connections):
    with create(postgres_places(), 12) as index:
        index.add([1], codes_of(1), labels=[["x"]])

        def fail():
            with index.transaction():
                index.add([1, 2], codes_of(2, 3))
                index.attach({"a": b"1"})
                end_connections()
                index.add([3], codes_of(4))

        with pytest.raises(ConnectionError, match=r"connection was lost .*; repeat the call"):
            fail()
        assert index.ids().tolist() == [1]
        assert index.codes([1]) == codes_of(1)
        assert (len(index), index.labels(), index.attachments()) == (1, ["x"], {})


def test_a_connection_lost_between_rows_leaves_nothing(
    postgres_places, monkeypatch, end_connections
):
    def interrupted(*arguments):
        for number, row in enumerate(copied_rows(*arguments)):
            yield row
            if number == 10:
                end_connections()

    copied_rows = postgres_tables._copied_rows

    with create(postgres_places(), 12) as index:
        index.add(range(10), random_codes(10, 12))
        with monkeypatch.context() as patch:
            patch.setattr(postgres_tables, "_copied_rows", interrupted)
            with pytest.raises(ConnectionError, match="connection was lost"):
                index.add(range(5, 25), random_codes(20, 12, seed=1))
        assert index.ids().tolist() == list(range(10))
        assert index.codes(range(10)) == random_codes(10, 12)


def test_a_killed_process_leaves_nothing_and_frees_the_index(postgres_places):
    program = (
        "import sys, time; from bitprint.codes import Codes\n"
        "from bitprint.search.stores import open_index\n"
        "index = open_index(sys.argv[1])\n"
        "with index.transaction():\n"
        "    index.add([2], Codes.from_signs([[1] * 12]))\n"
        "    print('ready', flush=True); time.sleep(600)\n"
    )
    place = postgres_places()
    with create(place, 12) as index:
        index.add([1], codes_of(1))
        process = subprocess.Popen(
            [sys.executable, "-c", program, place], stdout=subprocess.PIPE, env=dict(os.environ)
        )
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        index.add([3], codes_of(3))
        assert index.ids().tolist() == [1, 3]


def test_a_server_that_is_not_there():
    with pytest.raises(ConnectionError, match=r"cannot reach the server .* check that it is"):
        open_index("postgresql://me:sesame@127.0.0.1:1/photos", timeout=2)


def test_an_option_that_libpq_does_not_take():
    with pytest.raises(ConnectionError, match=r"bad value for connect_timeout.*the options of"):
        open_index("postgresql://me:sesame@127.0.0.1:1/photos?connect_timeout=soon")


def test_a_database_or_user_that_is_not_there(postgres_server):
    uri = postgres_server.get_uri("nowhere")
    with pytest.raises(
        ConnectionError, match=r'refused .*"nowhere" does not exist.*check the user'
    ):
        open_index(uri)


@pytest.fixture
def guarded(postgres_server, admin):
    """Return the address, with a password, of a user without any rights."""
    rules = postgres_server.pgdata / "pg_hba.conf"
    before = rules.read_text()
    admin.execute("CREATE ROLE walter LOGIN PASSWORD 'open sesame'")
    rules.write_text("local all walter scram-sha-256\n" + before)
    admin.execute("SELECT pg_reload_conf()")
    yield postgres_server.get_uri().replace("postgres:@", "walter:open%20sesame@")
    rules.write_text(before)
    admin.execute("SELECT pg_reload_conf()")
    admin.execute("DROP OWNED BY walter")
    admin.execute("DROP ROLE walter")


def hides_password(error):
    while error is not None:
        assert "sesame" not in f"{error} {error!r} {vars(error)} {getattr(error, 'pgconn', None)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def test_passwords_are_asked_for_and_never_shown(guarded, admin, postgres_places, caplog):
    wrong = guarded.replace("open%20sesame", "shut%20sesame")
    deadline = time.monotonic() + 120
    while True:  # until the server has read its rules again
        with pytest.raises((ConnectionError, FileNotFoundError)) as refused:
            open_index(wrong)
        if refused.type is ConnectionError or time.monotonic() > deadline:
            break
    assert refused.match("refused the connection .*password.*; check the user, the password")
    hides_password(refused.value)
    with pytest.raises(
        PermissionError, match=r"does not allow this .*connect as a user with more"
    ) as no:
        create(f"{guarded}&index=walters", 12)
    hides_password(no.value)
    place = postgres_places()
    create(place, 12).close()
    index_name = place.partition("index=")[2]
    with pytest.raises(PermissionError, match="does not allow this"):
        open_index(f"{guarded}&index={index_name}")
    admin.execute("GRANT CREATE ON DATABASE postgres TO walter")
    with create(f"{guarded}&index=walters", 12) as index:
        index.add([1], codes_of(1))
        assert index.path.startswith("postgresql://walter@/postgres?host=")
        assert index.path.endswith("&index=walters")
        assert "sesame" not in repr(index) + repr(index._connections.address)
        with pytest.raises(ValueError, match="12 bits, got 8") as wrong_bits:
            index.search(random_codes(1, 8))
        hides_password(wrong_bits.value)
    assert "sesame" not in caplog.text


@pytest.mark.parametrize(
    ("uri", "index", "shown"),
    [
        ("postgresql://h/d", "bitprint", "postgresql://h/d"),
        ("postgresql://u:p%40@h:1/d?index=a%20b", "a b", "postgresql://u@h:1/d?index=a%20b"),
        (
            "postgresql://u@/d?host=/run&index=x&sslmode=require&password=p&sslpassword=p",
            "x",
            "postgresql://u@/d?host=/run&sslmode=require&index=x",
        ),
        ("postgresql://[::1]:5/d", "bitprint", "postgresql://[::1]:5/d"),
        ("postgresql://a:1,b:2/d", "bitprint", "postgresql:///d?host=a%2Cb&port=1%2C2"),
    ],
)
def test_addresses(uri, index, shown):
    address = parse_address(uri)
    assert (address.index, address.shown) == (index, shown)
    assert parse_address(shown).shown == shown
    assert "p@" not in repr(address)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("postgresql://u:se/same@h/d", "write signs such as @"),
        ("postgresql://u:12/same@h/d", "write signs such as @"),
        ("postgresql://u:se@same@h/d", "write signs such as @"),
        ("postgresql://u:sesame@h/d?nonsense=same", "write signs such as @"),
        ("postgresql://h/d?index=", "1 to 63 printable bytes"),
        ("postgresql://h/d?index=" + "%C3%A9" * 32, "1 to 63 printable bytes"),
        ("postgresql://h/d?index=a%00b", "1 to 63 printable bytes"),
        ("postgresql://h/d?index=pg_x", "PostgreSQL reserves names"),
    ],
)
def test_wrong_addresses(uri, message):
    with pytest.raises(ValueError, match=message) as refused:
        open_index(uri)
    assert "same" not in str(refused.value)


def test_a_missing_driver_is_named(monkeypatch):
    for name in list(sys.modules):
        if name.startswith(("psycopg", "bitprint.search.stores.postgres")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ValueError, match=r"psycopg: pip install 'psycopg\[binary\]'"):
        open_index("postgresql://localhost/photos")


def test_a_database_without_the_extension(database, admin):
    place = database()
    name = parse_address(place).parameters["dbname"]
    admin.execute(f"ALTER DATABASE {name} SET extension_control_path = '/nowhere'")
    with pytest.raises(ValueError, match="lacks the extension vector; install pgvector"):
        create(place, 12)
    with pytest.raises(FileNotFoundError, match="no such index"):
        open_index(place)
    admin.execute(f"ALTER DATABASE {name} RESET extension_control_path")
    create(place, 12).close()
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("UPDATE pg_extension SET extversion = '0.6.2' WHERE extname = 'vector'")
        with pytest.raises(ValueError, match=r"vector is 0\.6\.2.*ALTER EXTENSION vector UPDATE"):
            open_index(place)
        connection.execute("DROP EXTENSION vector")
        with pytest.raises(ValueError, match="lacks the extension vector"):
            open_index(place)


def test_a_database_that_is_not_in_utf8(postgres_server, admin):
    admin.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    with pytest.raises(ValueError, match=r"encoding LATIN1, .* use a database in UTF8"):
        create(postgres_server.get_uri("latin"), 12)


def test_what_is_not_an_index_of_this_version(database):
    place = database()
    with create(place, 12, model="itq") as index:
        index.add([1], codes_of(1))
    with psycopg.connect(place, autocommit=True) as connection:
        for change, undo, message in [
            ("version = 3", "version = 2", "version 3 is not supported.*upgrade bitprint"),
            ("version = 1", "version = 2", "version 1 is not supported.*build the index again"),
            ("format = 'x'", "format = 'bitprint.index'", "is not a bitprint index"),
            ("bits = 0", "bits = 12", "is damaged .invalid table meta"),
            ("id_type = 'float'", "id_type = 'integer'", "is damaged"),
        ]:
            connection.execute(f"UPDATE bitprint.meta SET {change}")
            with pytest.raises(ValueError, match=message):
                open_index(place)
            connection.execute(f"UPDATE bitprint.meta SET {undo}")
        open_index(place).close()
        connection.execute("DELETE FROM bitprint.meta")
        with pytest.raises(ValueError, match="is damaged"):
            open_index(place)
        connection.execute("DROP TABLE bitprint.meta")
        with pytest.raises(FileNotFoundError, match="no such index"):
            open_index(place)
        connection.execute("CREATE TABLE bitprint.meta AS SELECT 1 AS a")
        with pytest.raises(ValueError, match="is not a bitprint index"):
            open_index(place)


def test_an_index_that_is_deleted_while_open(database):
    place = database()
    with create(place, 12) as index, psycopg.connect(place, autocommit=True) as connection:
        index.add([1], codes_of(1))
        connection.execute("DROP SCHEMA bitprint CASCADE")
        for call in (lambda: len(index), lambda: index.search(codes_of(1))):
            with pytest.raises(FileNotFoundError, match="no such index"):
                call()


def test_missing_column_is_a_failure_of_the_server(database):
    place = database()
    with create(place, 12) as index, psycopg.connect(place, autocommit=True) as connection:
        index.add([1], codes_of(1))
        connection.execute("ALTER TABLE bitprint.codes DROP COLUMN path")
        for call in (lambda: index.items([1]), lambda: index.add([2], codes_of(2))):
            with pytest.raises(OSError, match=r'failed .column "path" .*does not exist') as failed:
                call()
            assert str(failed.value).startswith(f"{index.path}: ")
            assert "\n" not in str(failed.value)
        assert index.ids().tolist() == [1]


def test_a_create_that_fails_leaves_nothing(postgres_places, monkeypatch):
    place = postgres_places()
    monkeypatch.setattr(postgres_tables, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match=": the attachment big has 11 bytes; the limit is 10"):
        create(place, 12, attachments={"big": bytes(11)})
    assert not index_exists(place)
    with postgres.PostgresIndex.create(place, 12) as index:
        assert index.attachments() == {}


def test_the_command_to_serve_hides_the_password():
    import typer
    from typer.testing import CliRunner

    from bitprint.cli.serve import serve

    app = typer.Typer()
    app.command()(serve)
    uri = "postgresql://me:sesame@127.0.0.1:1/photos"
    result = CliRunner().invoke(app, [uri, "--port", "0"])
    assert "postgresql://me@127.0.0.1:1/photos: cannot reach the server" in str(result.exception)
    assert "sesame" not in str(result.exception) + result.output
