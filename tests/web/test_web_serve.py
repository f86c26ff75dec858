import itertools
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack

import httpx
import pytest
import typer
from typer.testing import CliRunner
from web_pictures import as_file

from bitprint.cli.serve import serve
from bitprint.photos import Photos
from bitprint.search.index import Index
from bitprint.web import listen

app = typer.Typer()
app.command()(serve)


def start(index, first="", **environment):
    """Start the command after a statement; return the process and its address."""
    command = f"{first}import typer; from bitprint.cli.serve import serve; typer.run(serve)"
    process = subprocess.Popen(
        [sys.executable, "-c", command, os.fspath(index), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    line = process.stdout.readline()
    return process, re.fullmatch(r"serving on (http://127\.0\.0\.1:\d+)/\n", line)[1]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_interrupted(codes_file, stop):
    process, address = start(codes_file, BITPRINT_TOKEN="sesame")
    try:
        with httpx.Client(base_url=address, timeout=60) as client:
            assert client.get("/health").json() == {"status": "ok", "codes": 50}
            assert client.get("/api/info").status_code == 401
            headers = {"Authorization": "Bearer sesame"}
            assert client.get("/api/info", headers=headers).json()["bits"] == 12
    finally:
        process.send_signal(stop)
        _, errors = process.communicate(timeout=120)
    assert "50 codes of 12 bits" in errors
    assert "Traceback" not in errors
    assert process.returncode == 0
    assert not codes_file.with_name("codes.bp-wal").exists()  # the index was closed


def test_more_clients_than_open_files_are_served(photos_file):
    """With a limit of 128 files, 200 slow clients and the index do not use up all of them."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 128)); "
    process, address = start(photos_file, first=limit)
    port = int(address.rpartition(":")[2])
    try:
        with ExitStack() as stack, httpx.Client(base_url=address, timeout=60) as client:
            for _ in range(200):
                slow = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                slow.sendall(b"GET / HTTP/1.1\r\n")
            search = client.post("/api/search", json={"code": "00" * 8, "k": 5}).json()
            for result in search["results"]:
                for kind in ("picture", "thumbnail"):
                    assert client.get(f"/api/{kind}/{result['id']}").status_code == 200
            assert client.get("/static/app.js").status_code == 200
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=120)
    assert "open files" not in errors
    assert process.returncode == 0


class Uploads(threading.Thread):
    """Upload a photo in a loop until the server stops accepting connections."""

    def __init__(self, address, photo):
        super().__init__(daemon=True)
        self.arguments = {"url": f"{address}/api/search", "files": {"picture": ("a.png", photo)}}
        self.answered = threading.Event()
        self.statuses, self.failures = set(), []
        self.start()

    def run(self):
        try:
            while True:
                answer = httpx.post(**self.arguments, timeout=120)
                self.statuses.add((answer.status_code, len(answer.json()["results"])))
                self.answered.set()
        except httpx.ConnectError:
            return
        except httpx.TransportError as error:  # the connection waited to be accepted
            self.failures.append(str(error))


def test_stop_under_load_loses_nothing(photos_file, scenes, tmp_path):
    """The server writes nothing itself; another process adds codes while it stops."""
    path = tmp_path / "photos.bp"
    shutil.copy(photos_file, path)
    process, address = start(path)
    clients = [Uploads(address, as_file(scenes[0])) for _ in range(4)]
    added = []
    with Photos.open(path) as photos:
        codes = photos.encoder.encode(list(scenes[:1]))
        for number in itertools.count():
            photos.index.add([f"new {number}"], codes)
            added.append(f"new {number}")
            if number == 20:
                for client in clients:
                    assert client.answered.wait(120)
                process.send_signal(signal.SIGTERM)
            if process.poll() is not None:
                break
    _, errors = process.communicate(timeout=120)
    for client in clients:
        client.join(120)
        assert client.statuses == {(200, 24)}
        assert all("incomplete" not in failure for failure in client.failures)
    assert process.returncode == 0
    assert "Traceback" not in errors
    assert len(added) > 20
    assert not path.with_name("photos.bp-wal").exists()
    with Index.open(path) as index:
        assert set(index.ids()) >= set(added)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.bp"], "missing.bp"),
        (["missing.bp", "--token", ""], "token is empty"),
        (["missing.bp", "--host", "no.such.host.invalid"], "cannot listen"),
    ],
)
def test_serve_with_invalid_arguments_raises(arguments, message):
    result = CliRunner().invoke(app, [*arguments, "--port", "0"])
    assert result.exit_code == 1
    assert message in str(result.exception)


def test_serve_on_a_used_port_raises(codes_file):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, [os.fspath(codes_file), "--port", port])
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in str(result.exception)


@pytest.mark.parametrize("port", [-4, 65536, 99999])
def test_a_port_that_does_not_exist_is_refused(port, codes_file):
    with pytest.raises(ValueError, match=f"invalid port {port}: choose one from 0 to 65535"):
        listen("127.0.0.1", port)
    result = CliRunner().invoke(app, [os.fspath(codes_file), "--port", str(port)])
    assert result.exit_code == 2
    assert "--port" in result.output


def test_import_without_fastapi_names_the_packages():
    hide = "import sys; sys.modules['fastapi'] = None; import bitprint.web"
    result = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert result.returncode == 1
    assert (
        "needs fastapi: pip install fastapi uvicorn python-multipart"
        in result.stderr.splitlines()[-1]
    )
