import pytest
from fastapi.testclient import TestClient

from bitprint.web import create_app

HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 200),
        ("GET", "/static/app.js", 200),
        ("GET", "/static/draw.js", 200),
        ("GET", "/api/info", 200),
        ("GET", "/health", 200),
        ("GET", "/metrics", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/nowhere", 404),
        ("GET", "/docs", 404),
        ("GET", "/static/", 404),
        ("GET", "/static/../app.py", 404),
        ("GET", "/static/%2e%2e/app.py", 404),
        ("GET", "/static/..%2fapp.py", 404),
        ("DELETE", "/api/search", 405),
        ("POST", "/api/search", 415),
    ],
)
def test_every_answer_carries_the_headers(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert HEADERS.items() <= dict(response.headers).items()
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "server" not in response.headers


def test_a_failure_carries_the_headers_and_no_trace(collection, monkeypatch):
    def fail(searches):
        raise RuntimeError("secret")

    app = create_app(collection)
    with TestClient(app, base_url="http://localhost") as client:
        monkeypatch.setattr(app.state.server._searches, "_work", fail)
        response = client.post("/api/search", json={"code": "00" * 8})
    assert response.status_code == 500
    assert HEADERS.items() <= dict(response.headers).items()
    assert set(response.json()) == {"detail"}
    assert "secret" not in response.text


def test_the_page_has_no_inline_code(client):
    page = client.get("/").text
    assert "style=" not in page
    assert "<style" not in page
    assert " on" + "click" not in page
    assert page.count("<script") == 1
    assert "://" not in page


@pytest.fixture(scope="module")
def guarded(collection):
    app = create_app(collection, token="open sesame, é")
    with TestClient(app, base_url="http://example.org") as client:
        yield client


@pytest.mark.parametrize("path", ["/api/info", "/metrics", "/api/thumbnail/n1", "/nowhere"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer "},
        {"Authorization": "open sesame"},
        {"Authorization": "Basic b3BlbiBzZXNhbWU="},
        {"Cookie": "bitprint-token="},
        {"Cookie": "bitprint-token=wrong"},
        {"Cookie": "other=open%20sesame%2C%20%C3%A9"},
    ],
)
def test_without_the_token_nothing_is_told(guarded, path, headers):
    response = guarded.get(path, headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert set(response.json()) == {"detail"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer open sesame, é".encode()},
        {"Authorization": "bearer open sesame, é".encode()},
        {"Cookie": "a=b; bitprint-token=open%20sesame%2C%20%C3%A9"},
    ],
)
def test_with_the_token_everything_is(guarded, headers):
    assert guarded.get("/api/info", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/health", "/openapi.json"])
def test_the_page_and_the_health_need_no_token(guarded, path):
    assert guarded.get(path).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8000", 200),
        ("localhost:8000", 200),
        ("[::1]:8000", 200),
        ("192.168.1.20", 200),
        ("Photos.lan:8000", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8000", 421),
        ("[evil]:1", 421),
        ("", 421),
    ],
)
def test_only_its_own_names_are_answered_to(collection, host, status):
    app = create_app(collection, names=["photos.lan"])
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/health", headers={"Host": host}).status_code == status
