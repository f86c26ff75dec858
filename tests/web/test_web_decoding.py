"""Photos are decoded in processes, which are replaced when one crashes, blocks or fills them."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from web_pictures import as_file, noise

from bitprint.data.decoding import decode_image, decode_thumbnail
from bitprint.data.decoding_process import REQUEST, UPLOAD
from bitprint.data.formats import FORMATS
from bitprint.data.untrusted import stored_limits, upload_limits
from bitprint.photos import Photos
from bitprint.web import Collection, create_app, decoding
from bitprint.web.collection import key_of
from bitprint.web.decoding import Decoders
from fuzz.bombs import bmp, png, saved, slow_bmp, webp, with_another_header

MIB = 2**20
SLOW = 13_000, 13_000, 16
"""A `slow_bmp` that takes about 10 seconds."""
SLOW_PIXELS = 13_000**2
NOT_DECODED = "takes too much memory or time to decode; send a smaller one"
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


def peak_of(pid):
    """Return the largest memory that a process had, in bytes."""
    [line] = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return 1024 * int(line)


@pytest.fixture
def decoders():
    """Two processes at most."""
    decoders = Decoders(2, most_pixels=10_000)
    yield decoders
    decoders.close()


def pid_of(decoders):
    """Return the id of the process that decodes next."""
    decoders.warm_up()
    return decoders._idle.queue[-1]._process.pid


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_pixels_are_the_same_as_without_a_process(decoders, tmp_path, kind):
    (tmp_path / "a").write_bytes(as_file(noise(), kind))
    expected = decode_image(tmp_path / "a", 8)
    assert np.array_equal(decoders.upload((tmp_path / "a").read_bytes(), 8), expected)
    with (tmp_path / "a").open("rb") as file:
        assert decoders.find_format(file) == kind
        assert np.array_equal(decoders.thumbnail(file, 20), decode_thumbnail(file, 20))


def test_a_refusal_has_the_reason_and_keeps_the_process(decoders, tmp_path):
    first = pid_of(decoders)
    for data, reason in (
        (b"hello", "not in a supported photo format"),
        (as_file(noise(200, 200)), "200 x 200 pixels, more than 0.01 million"),
        (as_file(noise())[:500], "damaged and cannot be decoded"),
        (png(1, 30_000), "30000 pixels, more than 0.01 million"),
    ):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(ValueError, match=reason):
            decoders.upload(data, 8)
        with (tmp_path / "a").open("rb") as file, pytest.raises(ValueError, match=reason):
            decoders.thumbnail(file, 8)
    assert pid_of(decoders) == first


def test_a_killed_process_is_replaced_before_the_next_photo(decoders):
    first = pid_of(decoders)
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert decoders.upload(as_file(noise()), 8).shape == (8, 8, 3)
    assert pid_of(decoders) != first


def test_a_process_imports_nothing_from_the_working_directory(decoders, tmp_path, monkeypatch):
    (tmp_path / "PIL.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert decoders.upload(as_file(noise()), 8).shape == (8, 8, 3)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_process_ends_with_its_parent():
    program = """
        from bitprint.web.decoding import Decoders
        decoders = Decoders(1, most_pixels=1000)
        decoders.warm_up()
        print(decoders._all[0]._process.pid, flush=True)
        input()
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        process = os.pidfd_open(int(parent.stdout.readline()))
        assert select.select([process], [], [], 0) == ([], [], [])
        parent.kill()
        assert select.select([process], [], [], 120)[0] == [process]
        os.close(process)


@pytest.fixture
def impostor(monkeypatch):
    """Let processes run other code after they are ready, with `connection` and a request."""

    def replace(code):
        program = f"""
            import os, socket, sys, time
            from bitprint.data.decoding_process import *
            connection = socket.socket(fileno=int(sys.argv[1]))
            connection.sendall(REPLY.pack(READY, 0, 0, 0))
            while (request := connection.recv(10_000)):
                {code}
        """
        command = [sys.executable, "-c", textwrap.dedent(program)]
        monkeypatch.setattr(decoding, "_COMMAND", command)

    return replace


@pytest.mark.parametrize(
    "code",
    [
        "os.abort()",
        "sys.exit()",
        "time.sleep(60)",
        "connection.sendall(b'u')",
        "connection.sendall(REPLY.pack(UPLOAD, 8, 8, 192)); time.sleep(60)",
        "connection.sendall(REPLY.pack(UPLOAD, 8, 8, 2**32 - 1))",
        "connection.sendall(REPLY.pack(UPLOAD, 9, 9, 243) + bytes(243))",
        "connection.sendall(REPLY.pack(UPLOAD, 4, 8, 96) + bytes(96))",
        "connection.sendall(REPLY.pack(FORMAT, 0, 0, 0))",
        "connection.sendall(REPLY.pack(READY, 0, 0, 0))",
        "connection.sendall(REPLY.pack(REFUSED, 0, 0, 2**31) + bytes(2**20))",
        "connection.sendall(REPLY.pack(b'x', 0, 0, 0))",
    ],
)
def test_a_process_that_fails_or_sends_nonsense_is_replaced(impostor, code, caplog):
    impostor(code)
    decoders = Decoders(1, most_pixels=10_000, seconds=1)
    try:
        first = pid_of(decoders)
        started = time.monotonic()
        with pytest.raises(ValueError, match=NOT_DECODED):
            decoders.upload(as_file(noise()), 8)
        assert time.monotonic() - started < 30
        assert pid_of(decoders) != first
    finally:
        decoders.close()
    [message] = caplog.messages
    assert message.startswith("replaced a process that could not decode a photo: ")


def test_a_process_that_does_not_start_is_an_error(monkeypatch):
    monkeypatch.setattr(decoding, "_COMMAND", [sys.executable, "-c", "raise SystemExit"])
    decoders = Decoders(1, most_pixels=10_000)
    with pytest.raises(RuntimeError, match="the process that decodes photos did not start"):
        decoders.warm_up()
    monkeypatch.undo()
    assert decoders.upload(as_file(noise()), 8).shape == (8, 8, 3)
    decoders.close()


def test_a_photo_that_takes_too_long_is_refused():
    decoders = Decoders(1, SLOW_PIXELS, seconds=2)
    try:
        with pytest.raises(ValueError, match=NOT_DECODED):
            decoders.upload(slow_bmp(*SLOW), 8)
        assert decoders.upload(as_file(noise()), 8).shape == (8, 8, 3)
    finally:
        decoders.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_a_process_ends_in_time_without_its_parent():
    """The parent was killed while a photo is decoded."""
    mine, other = socket.socketpair()
    command = [*decoding._COMMAND, str(other.fileno()), str(SLOW_PIXELS), "1"]
    with mine, other, subprocess.Popen(command, pass_fds=[other.fileno()]) as process:
        data = slow_bmp(*SLOW)
        mine.sendall(REQUEST.pack(UPLOAD, 8, len(data)) + data)
        try:
            assert process.wait(120) == -signal.SIGALRM
        finally:
            process.kill()


@linux
def test_a_file_with_more_pixels_than_its_header_is_refused(monkeypatch, tmp_path):
    if "AVIF" not in FORMATS:
        pytest.skip("AVIF cannot be read here")
    program = "from bitprint.data import decoding_process as p; p._OTHER_MEMORY = 0; p.main()"
    monkeypatch.setattr(decoding, "_COMMAND", [sys.executable, "-c", program])
    (tmp_path / "a").write_bytes(with_another_header(5000))
    decoders = Decoders(1, most_pixels=10_000)
    try:
        first = pid_of(decoders)
        before = peak_of(first)
        with (tmp_path / "a").open("rb") as file, pytest.raises(ValueError, match="photo"):
            decoders.thumbnail(file, 8)
        assert peak_of(first) - before < stored_limits(10_000).bytes + 8 * MIB
        assert decoders.upload(as_file(noise()), 8).shape == (8, 8, 3)
    finally:
        decoders.close()


# The server


@contextmanager
def served(path, *options):
    """Run `bitprint serve` in a process; yield the process and a client."""
    command = "import typer; from bitprint.cli.serve import serve; typer.run(serve)"
    process = subprocess.Popen(
        [sys.executable, "-c", command, os.fspath(path), "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = re.search(r"http://\S+/", process.stdout.readline())[0]
        with httpx.Client(base_url=address, timeout=120) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def children_of(pid):
    """Return the ids of the child processes."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            children += map(int, task.read_text().split())
    return children


def upload(client, data):
    return client.post("/api/search", files={"picture": ("a", data)})


HOSTILE_UPLOADS = {
    "PNG, tall": lambda: png(1, 64_000_000),
    "PNG, wide": lambda: png(64_000_000, 1, kind=0, depth=1),
    "PNG": lambda: png(5000, 5000, kind=6),
    "WebP": lambda: webp(8000, 8000),
    "BMP": lambda: bmp(5000, 5000),
    "BMP, slow": lambda: slow_bmp(2000, 2000),
    "GIF": lambda: saved("GIF", "P", 5000, 5000),
    "TIFF": lambda: saved("TIFF", "RGBA", 5000, 5000, compression="zstd", tiffinfo={278: 5000}),
}


@linux
def test_hostile_uploads_leave_the_server_small_and_answering(photos_file, scenes):
    hostile = [build() for build in HOSTILE_UPLOADS.values()]
    with served(photos_file) as (server, client), ThreadPoolExecutor(3) as pool:
        assert upload(client, as_file(scenes[0])).status_code == 200
        before = peak_of(server.pid)
        attacks = [pool.submit(upload, client, data) for data in hostile for _ in range(2)]
        honest = 0
        while not all(attack.done() for attack in attacks) or not honest:
            answer = upload(client, as_file(scenes[honest % len(scenes)]))
            assert answer.status_code == 200
            assert answer.json()["results"][0]["distance"] == 0
            honest += 1
        answers = [attack.result() for attack in attacks]
        growth = peak_of(server.pid) - before
        processes = [peak_of(child) for child in children_of(server.pid)]
    assert {answer.status_code for answer in answers} == {200, 415}
    for answer in answers[:4] + answers[6:8]:  # too large
        assert answer.status_code == 415
        assert answer.json()["detail"].startswith("the photo is too large: ")
    assert growth < 64 * MIB
    assert 1 <= len(processes) <= 4
    assert max(processes) < upload_limits(64_000_000).bytes + 64 * MIB


def test_hostile_files_of_a_collection_have_no_thumbnail(tmp_path, photos_file, folder):
    copy = tmp_path / "photos.bp"
    copy.write_bytes(photos_file.read_bytes())
    album = tmp_path / "album"
    album.mkdir()
    hostile = {"tall.png": png(1, 70_000), "large.webp": webp(8000, 8000), "empty.bmp": b""}
    for name in hostile:
        (album / name).write_bytes(as_file(noise()))
    with Photos.open(copy) as photos:
        photos.add(album)
    for name, data in hostile.items():
        (album / name).write_bytes(data)
    collection = Collection.open(copy)
    with TestClient(create_app(collection), base_url="http://127.0.0.1") as client:
        for name in hostile:
            assert client.get(f"/api/thumbnail/{key_of(str(album / name))}").status_code == 404
        assert client.get(f"/api/picture/{key_of(str(album / 'empty.bmp'))}").status_code == 404
        good = key_of(str(next(folder.rglob("1?.png"))))
        assert client.get(f"/api/thumbnail/{good}").status_code == 200
        assert client.get(f"/api/picture/{good}").status_code == 200
    collection.index.close()


def test_requests_without_photos_do_not_wait_for_decoding(collection, serve, monkeypatch):
    """All processes are busy."""
    busy, go = threading.Semaphore(0), threading.Event()

    def blocked(self, data, size):
        busy.release()
        assert go.wait(120)
        raise ValueError("refused")

    monkeypatch.setattr(Decoders, "upload", blocked)
    with (
        serve(collection) as address,
        httpx.Client(base_url=address, timeout=120) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        uploads = [pool.submit(upload, client, b"") for _ in range(8)]
        try:
            assert busy.acquire(timeout=120)
            query = {"id": key_of(collection.index.ids()[0])}
            assert client.post("/api/search", json=query).status_code == 200
            assert client.get("/api/info").status_code == 200
        finally:
            go.set()
        assert {answer.result().status_code for answer in uploads} == {415}
