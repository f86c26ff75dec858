"""HEAD requests return the headers of GET without a body."""

import asyncio
import socket

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from bitprint.web import app as routes
from bitprint.web import create_app


@pytest.fixture(scope="module")
def key(client):
    [result] = client.post("/api/search", json={"code": "00" * 8, "k": 1}).json()["results"]
    return result["id"]


def same_head(client, path, **options):
    got, head = client.get(path, **options), client.head(path, **options)
    assert head.status_code == got.status_code
    names = set(got.headers) - (
        {"content-length"} if path == "/metrics" else set()
    )  # its body changes
    assert {name: head.headers[name] for name in names} == {
        name: got.headers[name] for name in names
    }
    assert head.content == b""
    return head


def test_every_get_route_answers_head(client, key):
    paths = {route.path for route in routes.router.routes if isinstance(route, APIRoute)}
    assert {"/", "/health", "/api/picture/{key}"} <= paths
    for path in (*paths, "/openapi.json", "/static/app.js"):
        head = same_head(client, path.format(key=key))
        assert head.status_code == 200
        assert int(head.headers["content-length"]) > 0


def test_head_returns_the_errors_of_get(client, key):
    statuses = {
        "/nowhere": 404,
        "/static/..%2fapp.py": 404,
        "/api/picture/n1": 404,
        "/api/thumbnail/x": 422,
        "/api/search": 405,
    }
    for path, status in statuses.items():
        assert same_head(client, path).status_code == status
    assert client.head("/api/search").headers["allow"] == "POST"
    known = {"If-None-Match": client.get(f"/api/thumbnail/{key}").headers["etag"]}
    assert same_head(client, f"/api/thumbnail/{key}", headers=known).status_code == 304
    assert same_head(client, "/health", headers={"Host": "evil.example"}).status_code == 421


def test_head_needs_the_token(collection, key):
    with TestClient(create_app(collection, token="sesame"), base_url="http://a.example") as client:
        for path in ("/api/info", "/metrics", f"/api/picture/{key}", "/nowhere"):
            assert same_head(client, path).headers["www-authenticate"] == "Bearer"
        assert same_head(client, "/health").status_code == 200
        bearer = {"Authorization": "Bearer sesame"}
        assert same_head(client, "/api/info", headers=bearer).status_code == 200


def messages_of(app, method):
    """Return the messages an application sends (servers and clients drop bodies of HEAD)."""
    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": method, "path": "/metrics", "headers": []}
    asyncio.run(app(scope, receive, send))
    return messages


def test_no_body_leaves_the_application(collection):
    guarded = create_app(collection, token="sesame")
    (start, body), (same_start, none) = (messages_of(guarded, name) for name in ("GET", "HEAD"))
    assert start["status"] == 401
    assert start == same_start
    assert b"token required" in body["body"]
    assert none == {"type": "http.response.body"}


def test_head_keeps_the_connection_and_reads_no_file(collection, serve, key, monkeypatch):
    opened, read, chunks = [], [], routes._chunks

    def counted(file, size):
        opened.append(file)
        return (read.append(chunk) or chunk for chunk in chunks(file, size))

    monkeypatch.setattr(routes, "_CHUNK", 1)
    monkeypatch.setattr(routes, "_chunks", counted)
    with serve(collection) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            ask = f"HEAD %s HTTP/1.1\r\nHost: {host}\r\n%s\r\n"
            connection.sendall((ask % (f"/api/picture/{key}", "")).encode())
            connection.sendall((ask % ("/health", "Connection: close\r\n")).encode())
            answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    picture, health, rest = answer.split(b"\r\n\r\n")
    assert picture.startswith(b"HTTP/1.1 200 ")
    assert b"content-type: image/png" in picture
    assert health.startswith(b"HTTP/1.1 200 ")
    assert rest == b""
    assert len(read) <= 2
    assert [file.closed for file in opened] == [True]
