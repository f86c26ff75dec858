import os
import re
import signal
import socket
import subprocess
import sys

import httpx
import pytest
import typer
from typer.testing import CliRunner

from bitprint.cli.serve import serve
from bitprint.web import listen

app = typer.Typer()
app.command()(serve)


def test_the_command_serves_until_interrupted(codes_file):
    command = "import typer; from bitprint.cli.serve import serve; typer.run(serve)"
    process = subprocess.Popen(
        [sys.executable, "-c", command, os.fspath(codes_file), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"BITPRINT_TOKEN": "sesame"},
    )
    try:
        address = re.fullmatch(
            r"serving on (http://127\.0\.0\.1:\d+)/\n", process.stdout.readline()
        )
        assert address
        assert httpx.get(f"{address[1]}/health").json() == {"status": "ok", "codes": 50}
        assert httpx.get(f"{address[1]}/api/info").status_code == 401
        headers = {"Authorization": "Bearer sesame"}
        assert httpx.get(f"{address[1]}/api/info", headers=headers).json()["bits"] == 12
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert "50 codes of 12 bits" in errors
    assert "Traceback" not in errors
    assert process.returncode == 0
    assert not codes_file.with_name("codes.bp-wal").exists()  # it was closed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.bp"], "missing.bp"),
        (["missing.bp", "--token", ""], "token is empty"),
        (["missing.bp", "--host", "no.such.host.invalid"], "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_said(arguments, says):
    result = CliRunner().invoke(app, [*arguments, "--port", "0"])
    assert result.exit_code == 1
    assert says in str(result.exception)


def test_a_port_in_use_is_said(codes_file):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(app, [os.fspath(codes_file), "--port", port])
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in str(result.exception)


@pytest.mark.parametrize("port", [-4, 65536, 99999])
def test_a_port_that_does_not_exist_is_refused(port, codes_file):
    with pytest.raises(ValueError, match=f"no port {port}: choose one from 0 to 65535"):
        listen("127.0.0.1", port)
    result = CliRunner().invoke(app, [os.fspath(codes_file), "--port", str(port)])
    assert result.exit_code == 2
    assert "--port" in result.output


def test_without_the_extra_one_sentence_says_what_to_install():
    hide = "import sys; sys.modules['fastapi'] = None; import bitprint.web"
    result = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True)
    assert result.returncode == 1
    assert (
        "needs fastapi: pip install fastapi uvicorn python-multipart"
        in result.stderr.splitlines()[-1]
    )
