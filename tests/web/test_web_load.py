import json
import select
import socket
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice

import httpx
from web_pictures import as_file

from bitprint.web import Collection, Limits, listen


class HeldEncoder:
    """Block until `go` is set, then encode."""

    def __init__(self, encoder):
        self.encoder = encoder
        self.size = encoder.size
        self.go = threading.Event()

    def describe(self):
        return "held"

    def encode(self, pictures):
        assert self.go.wait(120)
        return self.encoder.encode(pictures)


def upload(client, pixels):
    return client.post("/api/search", files={"picture": ("a.png", as_file(pixels))})


def test_overloaded_server_returns_503_and_recovers(collection, serve, scenes):
    held = HeldEncoder(collection.encoder)
    held.go.set()  # for the warm-up
    busy = Collection(collection.index, held, collection.roots)
    with (
        serve(busy, limits=Limits(waiting=3, seconds=120)) as address,
        httpx.Client(base_url=address, timeout=120) as client,
        ThreadPoolExecutor(64) as pool,
    ):
        held.go.clear()
        answers = [pool.submit(upload, client, scenes[0]) for _ in range(64)]
        # At most 16 are being encoded, 3 are queued; all others have been rejected.
        refused = list(islice(as_completed(answers, timeout=120), 64 - 16 - 3))
        assert {answer.result().status_code for answer in refused} == {503}
        assert all(answer.result().headers["retry-after"] == "1" for answer in refused)
        code = client.post("/api/search", json={"code": "00" * 8})
        assert code.status_code == 200  # code searches are not blocked by uploads
        held.go.set()
        statuses = [answer.result().status_code for answer in answers]
        assert set(statuses) == {200, 503}
        assert upload(client, scenes[0]).status_code == 200


def test_listen_sets_the_socket_protocol():
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_slow_clients_do_not_block_others(collection, serve, clock):
    with serve(collection) as address:
        host, port = address.removeprefix("http://").split(":")
        head = (
            "POST /api/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            "Content-Length: 1000\r\n\r\n"
        )
        slow = [socket.create_connection((host, int(port))) for _ in range(50)]
        try:
            for connection in slow:
                connection.sendall(head.encode() + b'{"code"')
            with httpx.Client(base_url=address, timeout=120) as client:
                for _ in range(5):
                    response = client.post("/api/search", json={"code": "00" * 8})
                    assert response.status_code == 200
            assert select.select(slow, [], [], 0) == ([], [], [])  # all still wait
            clock.advance(Limits().seconds)
            slow[0].settimeout(120)
            answer = b"".join(
                iter(lambda: slow[0].recv(10_000), b"")
            )  # until the server closes the connection
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert "arrive" in json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
        finally:
            for connection in slow:
                connection.close()
