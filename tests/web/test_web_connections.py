"""Slow and invalid clients on raw sockets."""

import asyncio
import json
import logging
import select
import socket
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from unittest.mock import create_autospec

import httpx
import numpy as np
import pytest
import uvicorn
from PIL import Image

from bitprint.codes import Codes
from bitprint.search.index import Index
from bitprint.web import Collection, Limits, create_app
from bitprint.web.collection import key_of
from bitprint.web.connections import Connection, Connections

SECONDS = Limits().seconds
GET = "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
POST = "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
HALF_HEADER = GET.format(path="/health")
HALF_BODY = POST.format(kind="application/json") + 'Content-Length: 1000\r\n\r\n{"code"'


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """Return a collection of one photo that is larger than the buffers of a connection."""
    folder = tmp_path_factory.mktemp("big").resolve()
    path = folder / "big.bmp"
    pixels = np.random.default_rng(0).integers(0, 256, (2200, 3000, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    with Index.create(folder / "big.bp", bits=8) as index:
        index.add([str(path)], Codes(np.zeros((1, 1), np.uint8), 8), paths=[str(path)])
        yield Collection(index, roots=[folder])


@pytest.fixture
def picture(big):
    [identifier] = big.index.ids()
    return f"/api/picture/{key_of(identifier)}"


@contextmanager
def clients(address, count, request, source="127.0.0.1", buffer=4096):
    """Open connections that send a request and do not read the response."""
    host, port = address.removeprefix("http://").split(":")
    with ExitStack() as stack:
        opened = []
        for _ in range(count):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            client.bind((source, 0))
            client.settimeout(60)
            client.connect((host, int(port)))
            opened.append(stack.enter_context(client))
            client.sendall(request.encode())
        yield opened


def send(client, data):
    """Send bytes; the server may have closed the connection."""
    with suppress(BrokenPipeError, ConnectionResetError):
        client.sendall(data)


def settle(address):
    """Wait until the server has received what other clients have sent before."""
    assert httpx.get(f"{address}/health", timeout=60).status_code == 200


def rest_of(client):
    """Return what a client receives until the server closes the connection."""
    parts = []
    try:
        while part := client.recv(1 << 20):
            parts.append(part)
    except ConnectionResetError:
        parts.append(b"(reset)")
    return b"".join(parts)


def split(response):
    """Return status, headers and JSON of a response."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines), body


def is_open(client):
    """Return whether the server has neither responded nor closed the connection."""
    return select.select([client], [], [], 0) == ([], [], [])


def wait_for_response(client):
    """Wait until the server has responded or closed the connection, less than a deadline."""
    assert select.select([client], [], [], SECONDS / 2)[0] == [client]


def test_half_header_returns_408(collection, serve, clock):
    with (
        serve(collection) as address,
        clients(address, 1, HALF_HEADER) as [half],
        clients(address, 1, "") as [silent],
    ):
        settle(address)
        clock.advance(SECONDS / 3)
        settle(address)
        assert is_open(half)
        assert is_open(silent)
        clock.advance(SECONDS)
        status, headers, body = split(rest_of(half))
        assert status == 408
        assert json.loads(body) == {"detail": "the request did not arrive within 30 seconds"}
        assert headers["x-content-type-options"] == "nosniff"
        assert rest_of(silent) in (b"", b"(reset)")


def test_header_in_small_parts_returns_408(collection, serve, clock):
    with serve(collection) as address, clients(address, 1, HALF_HEADER) as [client]:
        for _ in range(4):
            send(client, b"x")
            settle(address)
            clock.advance(SECONDS / 4)
        wait_for_response(client)
        assert split(rest_of(client))[0] == 408


def test_rest_of_a_refused_request_has_a_deadline(collection, serve, clock):
    request = POST.format(kind="text/plain") + "Content-Length: 60000\r\n\r\nx"
    with serve(collection, token="sesame") as address, clients(address, 1, request) as [client]:
        response = b""
        while not response.endswith(b"}"):
            response += client.recv(10_000)
        assert split(response)[0] == 401
        for _ in range(20):  # uvicorn starts its own timeout of 5 seconds again
            send(client, b"x")
            settle(address)
            clock.advance(SECONDS / 20)
        wait_for_response(client)
        assert rest_of(client) in (b"", b"(reset)")


def test_rest_of_a_refused_request_is_read(collection, serve):
    """A client that sends everything before it reads receives the refusal."""
    request = POST.format(kind="text/plain") + "Content-Length: 60000\r\n\r\n"
    again = GET.format(path="/health") + "Connection: close\r\n\r\n"
    with (
        serve(collection, token="sesame") as address,
        clients(address, 1, request) as [client],
    ):
        client.sendall(b"x" * 60_000 + again.encode())
        response = rest_of(client)
        assert response.startswith(b"HTTP/1.1 401 ")
        assert b"HTTP/1.1 200 " in response


def test_response_that_is_not_read_has_a_deadline(big, picture, serve, clock):
    request = GET.format(path=picture) + "\r\n"
    with serve(big) as address, clients(address, 1, request) as [client]:
        assert client.recv(8, socket.MSG_PEEK) == b"HTTP/1.1"
        ended = False  # the deadline starts when the buffers are full
        for _ in range(6000):
            clock.advance(SECONDS)
            text = httpx.get(f"{address}/metrics", timeout=60).text
            if ended := "/api/picture/{key}" in text:
                break
            time.sleep(0.01)
        assert ended
        response = rest_of(client)
        assert response.startswith(b"HTTP/1.1 200 ")
        assert len(response) < 10_000_000


def test_response_that_is_read_slowly_is_complete(big, picture, serve, clock):
    """The time is limited for each part of the response."""
    request = GET.format(path=picture) + "Connection: close\r\n\r\n"
    more_than_the_buffers = 1 << 21
    with serve(big) as address, clients(address, 1, request, buffer=1 << 18) as [client]:
        response = bytearray()
        pauses = 0
        while part := client.recv(1 << 16):
            response += part
            if len(response) > (pauses + 1) * more_than_the_buffers:
                pauses += 1
                clock.advance(SECONDS / 2)
        assert pauses > 2
        status, headers, body = split(bytes(response))
        assert status == 200
        assert len(body) == int(headers["content-length"])


def test_unread_response_before_half_a_header_is_dropped(collection):
    """A refusal would wait until the client reads."""

    async def scenario():
        loop = asyncio.get_running_loop()
        state = Connections(Limits(seconds=0.05))
        config = uvicorn.Config(create_app(collection), http=Connection, ws="none")
        config.load()
        connection = Connection(config, state, {}, loop)
        transport = create_autospec(asyncio.Transport, instance=True)
        transport.get_extra_info.return_value = None
        aborted = asyncio.Event()
        transport.abort.side_effect = aborted.set
        connection.connection_made(transport)
        connection.data_received(b"GET / HTTP/1.1\r\n")
        connection.pause_writing()
        await asyncio.wait_for(aborted.wait(), 60)
        transport.write.assert_not_called()

    asyncio.run(scenario())


def test_many_unread_responses_leave_others_whole(big, picture, serve, caplog):
    """With more than `waiting` of them, every photo was an empty response of status 200."""
    request = GET.format(path=picture) + "\r\n"
    with serve(big, limits=Limits(waiting=4)) as address, ExitStack() as stack:
        for _ in range(40):
            [client] = stack.enter_context(clients(address, 1, request))
            # The response has begun, so that this request is no longer queued.
            assert client.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
        for _ in range(5):
            response = httpx.get(f"{address}{picture}", timeout=60)
            assert response.status_code == 200
            assert len(response.content) == int(response.headers["content-length"]) > 10_000_000
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("request_text", ["", HALF_HEADER, HALF_BODY])
def test_slow_clients_at_the_limit_do_not_block_others(collection, serve, request_text):
    with (
        serve(collection, limits=Limits(connections=5)) as address,
        clients(address, 20, request_text) as slow,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        for _ in range(3):
            assert client.post("/api/search", json={"code": "00" * 8}).status_code == 200
        for one in slow[:16]:
            wait_for_response(one)
        assert all(map(is_open, slow[16:]))


def test_connection_closed_for_another_returns_503(collection, serve):
    with (
        serve(collection, limits=Limits(connections=2)) as address,
        clients(address, 1, HALF_HEADER) as [slow],
    ):
        settle(address)
        with clients(address, 2, ""):
            status, headers, body = split(rest_of(slow))
    assert (status, headers["retry-after"]) == (503, "1")
    assert "overloaded" in json.loads(body)["detail"]


@pytest.mark.skipif(sys.platform != "linux", reason="needs several loopback addresses")
@pytest.mark.parametrize(
    ("limits", "counts", "expected"),
    [
        (Limits(connections_per_address=5), (3, 12, 0), (3, 5, 0)),
        (Limits(connections=10), (3, 12, 0), (3, 6, 0)),
        (Limits(connections=10, connections_per_address=8), (2, 8, 3), (2, 4, 3)),
    ],
)
def test_address_with_most_connections_gives_way(collection, serve, limits, counts, expected):
    with serve(collection, limits=limits) as address, ExitStack() as stack:
        opened = [
            stack.enter_context(clients(address, count, HALF_HEADER, source=f"127.0.0.{number}"))
            for number, count in enumerate(counts, start=2)
        ]
        settle(address)
        for group, kept in zip(opened, expected, strict=True):
            closed = len(group) - kept
            for one in group[:closed]:  # those that have waited longest
                wait_for_response(one)
            assert all(map(is_open, group[closed:]))


@pytest.mark.parametrize("parts", [1, 2])
def test_header_of_40_kilobytes_returns_431(collection, serve, parts):
    with serve(collection) as address, clients(address, 1, HALF_HEADER) as [client]:
        line = b"X-Long: " + b"y" * 40_000
        if parts == 1:
            send(client, line + b"\r\n\r\n")
        else:
            send(client, line[:20_000])
            settle(address)
            send(client, line[20_000:])
        status, _, body = split(rest_of(client).removesuffix(b"(reset)"))
        assert status == 431
        assert json.loads(body) == {"detail": "the header is larger than 32 KiB"}


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        ("nonsense\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        (POST + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (POST + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (POST + "Transfer-Encoding: gzip\r\n\r\n", 501),
        (POST + "Content-Length: 65537\r\n\r\n", 413),
    ],
)
def test_invalid_request_is_refused(collection, serve, request_text, expected):
    request = request_text.replace("{kind}", "application/json")
    with serve(collection) as address, clients(address, 1, request) as [client]:
        status, headers, body = split(rest_of(client))
        assert status == expected
        assert set(json.loads(body)) == {"detail"}
        assert headers["connection"] == "close"
        assert headers["x-content-type-options"] == "nosniff"


def test_requests_in_one_packet_are_answered_in_order(collection, serve):
    requests = [GET.format(path=path) for path in ("/health", "/static/app.js", "/nowhere")]
    packet = "\r\n".join(requests) + "Connection: close\r\n\r\n"
    with serve(collection) as address, clients(address, 1, packet) as [client]:
        response = rest_of(client)
    assert [response.count(b"HTTP/1.1 %d " % status) for status in (200, 404)] == [2, 1]


def test_invalid_requests_log_few_lines(collection, serve):
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logger = logging.getLogger("uvicorn.error")
    with serve(collection) as address:
        logger.addHandler(handler)
        try:
            for _ in range(30):
                with clients(address, 1, "nonsense\r\n\r\n") as [client]:
                    rest_of(client)
        finally:
            logger.removeHandler(handler)
    assert 1 <= len(records) <= 5
    assert "further messages of this kind" in records[-1].getMessage()
